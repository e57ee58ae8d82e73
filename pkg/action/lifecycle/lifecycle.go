// Package lifecycle starts, stops and restarts VirtualMachines through their subresources.
package lifecycle

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/action/client"
)

// API is what the package needs of a client.
type API interface {
	Put(ctx context.Context, resource, namespace, name, subresource string, body any) error
}

// Options of a request; each verb uses those that it has.
type Options struct {
	// DryRun has the server check the request and do nothing.
	DryRun bool
	// GracePeriodSeconds is how long the guest may take to shut down instead of what its spec says; nil leaves
	// that, 0 cuts the power.
	GracePeriodSeconds *int64
}

func (o Options) dryRun() []string {
	if o.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Verb is one of the requests.
type Verb string

const (
	Start   Verb = "start"
	Stop    Verb = "stop"
	Restart Verb = "restart"
)

// Do requests verb of a VirtualMachine. It returns when the request is accepted, not when it is done.
func Do(ctx context.Context, api API, verb Verb, namespace, name string, o Options) error {
	var body any
	switch verb {
	case Start:
		body = &v1.StartOptions{DryRun: o.dryRun()}
	case Stop:
		body = &v1.StopOptions{GracePeriod: o.GracePeriodSeconds, DryRun: o.dryRun()}
	case Restart:
		body = &v1.RestartOptions{GracePeriodSeconds: o.GracePeriodSeconds, DryRun: o.dryRun()}
	default:
		return fmt.Errorf("unknown verb %q", verb)
	}
	if err := api.Put(ctx, client.VMs, namespace, name, string(verb), body); err != nil {
		return &refusal{verb: verb, namespace: namespace, name: name, err: err}
	}
	return nil
}

// refusal is a request that failed. The server begins some of its messages with the VM, which is named already.
type refusal struct {
	verb            Verb
	namespace, name string
	err             error
}

func (r *refusal) Error() string {
	text := strings.TrimPrefix(r.err.Error(), fmt.Sprintf("%s %s/%s: ", v1.VirtualMachineGroupVersionKind.Kind, r.namespace, r.name))
	return fmt.Sprintf("%s VM %s/%s: %s", r.verb, r.namespace, r.name, text)
}

func (r *refusal) Unwrap() error { return r.err }
