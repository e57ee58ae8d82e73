package gather

import (
	"context"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/why"
)

// Asked is a connection that is asked about.
type Asked struct {
	Source why.Source
	// Protocol is TCP or UDP, Port the guest's; 0 means all.
	Protocol corev1.Protocol
	Port     int32
}

// Source reads the pod that connects. One that does not exist is an action.ErrNotFound.
func Source(ctx context.Context, c *client.Client, namespace, name string) (why.Source, error) {
	pod := &corev1.Pod{}
	err := c.Read(ctx, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/pods/"+url.PathEscape(name), nil, pod)
	switch {
	case apierrors.IsNotFound(err):
		return why.Source{}, action.NotFound("pods", namespace, name)
	case err != nil:
		return why.Source{}, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	return why.Source{Pod: pod}, nil
}

// Connection reads, besides the facts of a VM, what decides on connections to its guest.
func Connection(ctx context.Context, c *client.Client, facts why.Facts, asked Asked) (why.ConnectionFacts, error) {
	out := why.ConnectionFacts{
		Source: asked.Source, Protocol: asked.Protocol, Port: asked.Port,
		Policies: map[string][]networkingv1.NetworkPolicy{}, Namespaces: map[string]map[string]string{},
	}
	g := &gathering{client: c, facts: facts}
	g.facts.Unreadable = slices.Clone(facts.Unreadable)
	namespaces := []string{facts.Namespace}
	if pod := asked.Source.Pod; pod != nil && pod.Namespace != facts.Namespace {
		namespaces = append(namespaces, pod.Namespace)
	}
	reads := map[string]func(context.Context) error{}
	for _, namespace := range namespaces {
		reads["networkpolicies of namespace "+namespace] = func(ctx context.Context) error {
			var list networkingv1.NetworkPolicyList
			err := c.Read(ctx, "/apis/networking.k8s.io/v1/namespaces/"+url.PathEscape(namespace)+"/networkpolicies",
				nil, &list)
			if err != nil {
				return err
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			out.Policies[namespace] = list.Items
			return nil
		}
		if asked.Source.Pod == nil {
			continue // no selector finds it
		}
		reads["namespaces "+namespace] = func(ctx context.Context) error {
			object, err := c.ReadMetadata(ctx, "/api/v1/namespaces/"+url.PathEscape(namespace))
			if err != nil {
				return err
			}
			labels := map[string]string{corev1.LabelMetadataName: namespace}
			for key, value := range object.Labels {
				labels[key] = value
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			out.Namespaces[namespace] = labels
			return nil
		}
	}
	if guest := asked.Source.SourceGuest(); guest != "" && len(facts.Shared(asked.Source.Pod)) > 0 {
		pod := asked.Source.Pod
		reads["virtualmachineinstances of namespace "+pod.Namespace] = func(ctx context.Context) error {
			vmi, err := c.VMI(ctx, pod.Namespace, guest)
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			if err != nil || string(vmi.UID) != pod.Labels[v1.CreatedByLabel] { // another of its name
				out.SourceGone = true
				return nil
			}
			out.SourceVMI = vmi
			return nil
		}
	}
	if facts.VM != nil || facts.VMI != nil {
		g.all(ctx, reads)
	}
	slices.Sort(g.facts.Unreadable)
	out.Facts = g.facts
	return out, g.err
}
