package virtapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/report/guestfs"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/version"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/peripherals"
)

const (
	// maxBody bounds what a request may carry, bytes: the API server's own limit.
	maxBody = 3 << 20
	// attempts is the number of tries of a change that conflicts with another one.
	attempts = 5
)

// requests answers the subresources.
type requests struct {
	machines  *machines
	nodes     *nodes
	streams   *streams
	locations *locations
	handlers  *handlers
	// serverVersion asks the API server, for healthz.
	serverVersion func() (string, error)
	// guestfsImage is what the path guestfs says.
	guestfsImage string
}

// newRequests takes what makes the TLS configuration with which the virt-handler of a node is dialled, and no other.
func newRequests(
	machines *machines, nodes *nodes, config func(node string) *tls.Config, serverVersion func() (string, error),
) *requests {
	return &requests{
		machines: machines, nodes: nodes, streams: newStreams(config), locations: newLocations(time.Now),
		serverVersion: serverVersion,
		handlers:      newHandlers(config),
	}
}

// decode reads a body of options; an empty one is fine.
func decode(r *http.Request, into any) error {
	err := utilyaml.NewYAMLOrJSONDecoder(http.MaxBytesReader(nil, r.Body, maxBody), 1024).Decode(into)
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return badRequest("cannot read the request's body: " + err.Error())
}

func checkDryRun(values []string) error {
	for _, value := range values {
		if value != metav1.DryRunAll {
			return badRequest(fmt.Sprintf("dryRun: %q is not supported; use %s", value, metav1.DryRunAll))
		}
	}
	return nil
}

// change makes the change that plan finds for a VM. When the VM changes meanwhile, it is read and
// planned again, so that a user meets no conflict that is not about the request.
func (q *requests) change(
	ctx context.Context, namespace, name string, dryRun []string,
	plan func(*v1.VirtualMachine, *v1.VirtualMachineInstance) (change, error),
) error {
	if err := checkDryRun(dryRun); err != nil {
		return err
	}
	var err error
	for range attempts {
		var vm *v1.VirtualMachine
		var vmi *v1.VirtualMachineInstance
		if vm, vmi, err = q.machines.machine(ctx, namespace, name); err != nil {
			return err
		}
		var c change
		if c, err = plan(vm, vmi); err != nil {
			return err
		}
		if err = q.machines.apply(ctx, vm, vmi, c, dryRun); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

func (q *requests) start(r *restful.Request, namespace, name string) error {
	dryRun := func(o *v1.StartOptions) []string { return o.DryRun }
	return changeBy(q, r.Request, namespace, name, dryRun, start)
}

func (q *requests) stop(r *restful.Request, namespace, name string) error {
	dryRun := func(o *v1.StopOptions) []string { return o.DryRun }
	return changeBy(q, r.Request, namespace, name, dryRun, stop)
}

func (q *requests) restart(r *restful.Request, namespace, name string) error {
	dryRun := func(o *v1.RestartOptions) []string { return o.DryRun }
	return changeBy(q, r.Request, namespace, name, dryRun, restart)
}

// changeBy changes a VM as the options in a request's body say.
func changeBy[O any](
	q *requests, r *http.Request, namespace, name string, dryRun func(*O) []string,
	plan func(*v1.VirtualMachine, *v1.VirtualMachineInstance, *O) (change, error),
) error {
	options := new(O)
	if err := decode(r, options); err != nil {
		return err
	}
	return q.change(r.Context(), namespace, name, dryRun(options),
		func(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (change, error) {
			return plan(vm, vmi, options)
		})
}

// steer passes pause, unpause, reset or softreboot on to the node, if check agrees.
func (q *requests) steer(verb string, check func(*v1.VirtualMachineInstance) error) action {
	return func(r *restful.Request, namespace, name string) error {
		options := &v1.PauseOptions{} // what there is to say is the same for all
		if err := decode(r.Request, options); err != nil {
			return err
		}
		if err := checkDryRun(options.DryRun); err != nil {
			return err
		}
		ctx := r.Request.Context()
		vmi, err := q.machines.vmi(ctx, namespace, name)
		if err != nil {
			return err
		}
		target, err := q.nodes.target(vmi, verb, nil)
		if err != nil {
			return err
		}
		if err := check(vmi); err != nil || len(options.DryRun) > 0 {
			return err
		}
		return put(ctx, q.handlers.of(vmi.Status.NodeName), target, vmi.Status.NodeName)
	}
}

func paused(vmi *v1.VirtualMachineInstance) bool {
	return conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
}

// errProbed begins as KubeVirt says it, which its clients look for.
var errProbed = errors.New( //nolint:staticcheck // it is KubeVirt that begins it with a capital
	"Pausing VMIs with LivenessProbe is currently not supported: the probe would end the guest while it is paused")

func mayPause(vmi *v1.VirtualMachineInstance) error {
	if paused(vmi) {
		return conflictVMI(vmi, ": VMI is already paused")
	}
	if vmi.Spec.LivenessProbe != nil {
		return apierrors.NewForbidden(v1.Resource("virtualmachineinstances"), vmi.Name, errProbed)
	}
	return nil
}

func mayUnpause(vmi *v1.VirtualMachineInstance) error {
	if !paused(vmi) {
		return conflictVMI(vmi, ": VMI is not paused")
	}
	return nil
}

func mayReset(*v1.VirtualMachineInstance) error { return nil }

func maySoftReboot(vmi *v1.VirtualMachineInstance) error {
	if paused(vmi) {
		return conflictVMI(vmi, ": VMI is paused; unpause it first")
	}
	features := vmi.Spec.Domain.Features
	deaf := features != nil && features.ACPI.Enabled != nil && !*features.ACPI.Enabled
	if deaf && !conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return conflictVMI(vmi, ": VMI neither have the agent connected nor the ACPI feature enabled; start "+
			"qemu-guest-agent in the guest, or restart the VM")
	}
	return nil
}

// stream joins the user to a stream of the guest, if the guest has the device.
func (q *requests) stream(
	verb string, check func(*v1.VirtualMachineInstance) error,
) func(*restful.Request, *restful.Response) error {
	return func(r *restful.Request, w *restful.Response) error {
		ctx := r.Request.Context()
		vmi, err := q.machines.vmi(ctx, r.PathParameter("namespace"), r.PathParameter("name"))
		if err != nil {
			return err
		}
		if err := check(vmi); err != nil {
			return err
		}
		target, err := q.nodes.streamTarget(vmi, verb, r.Request.URL.Query())
		if err != nil {
			return err
		}
		user := ""
		if info, ok := apirequest.UserFrom(ctx); ok {
			user = info.GetName()
		}
		return q.streams.splice(w.ResponseWriter, r.Request, target, vmi.Status.NodeName, user)
	}
}

func hasSerialConsole(vmi *v1.VirtualMachineInstance) error {
	if !peripherals.SerialConsole(&vmi.Spec.Domain.Devices) {
		return badRequest("No serial consoles are present. spec.domain.devices.autoattachSerialConsole is false")
	}
	if vmi.Status.Phase == v1.Failed {
		// A guest that has failed does not come back: after a conflict KubeVirt's clients try no more.
		return conflictVMI(vmi, ": VMI is in failed status")
	}
	return nil
}

func hasGraphics(vmi *v1.VirtualMachineInstance) error {
	if !peripherals.Graphics(&vmi.Spec.Domain.Devices) {
		return badRequest("No graphics devices are present. spec.domain.devices.autoattachGraphicsDevice is false")
	}
	return nil
}

func takesUSB(vmi *v1.VirtualMachineInstance) error {
	if vmi.Spec.Domain.Devices.ClientPassthrough == nil {
		return badRequest("Not configured with USB Redirection: spec.domain.devices.clientPassthrough is not set")
	}
	return nil
}

func hasVSOCK(vmi *v1.VirtualMachineInstance) error {
	if !passthrough.VSOCK(&vmi.Spec) {
		return badRequest("VSOCK is not attached: spec.domain.devices.autoattachVSOCK is not set")
	}
	return nil
}

// expand answers with the VM and what it refers to written out.
func (q *requests) expand(r *restful.Request, w *restful.Response) error {
	vm, err := q.machines.vm(r.Request.Context(), r.PathParameter("namespace"), r.PathParameter("name"))
	if err != nil {
		return err
	}
	vm, err = expanded(r.Request.Context(), referents{q.machines.kubevirt}, vm)
	if err != nil {
		return err
	}
	return answer(w, vm)
}

// expandBody does the same for a VM that need not exist.
func (q *requests) expandBody(r *restful.Request, w *restful.Response) error {
	vm := &v1.VirtualMachine{}
	if err := decode(r.Request, vm); err != nil {
		return err
	}
	switch {
	case vm.Kind != v1.VirtualMachineGroupVersionKind.Kind:
		return badRequest(fmt.Sprintf("Object is not a valid VirtualMachine: its kind is %q", vm.Kind))
	case vm.Spec.Template == nil:
		return badRequest("Object is not a valid VirtualMachine: spec.template is not set")
	}
	namespace := r.PathParameter("namespace")
	if vm.Namespace != "" && vm.Namespace != namespace {
		return badRequest(fmt.Sprintf("VM namespace must be empty or %s", namespace))
	}
	own := vm.Namespace
	vm.Namespace = namespace
	vm, err := expanded(r.Request.Context(), referents{q.machines.kubevirt}, vm)
	if err != nil {
		return err
	}
	vm.Namespace = own
	return answer(w, vm)
}

func withKind(vm *v1.VirtualMachine) *v1.VirtualMachine {
	vm.SetGroupVersionKind(v1.VirtualMachineGroupVersionKind)
	return vm
}

func (q *requests) version(_ *restful.Request, w *restful.Response) error {
	return answer(w, version.Get())
}

// guestfs says which image has libguestfs.
func (q *requests) guestfs(_ *restful.Request, w *restful.Response) error {
	return answer(w, guestfs.Of(q.guestfsImage))
}

func (q *requests) health(_ *restful.Request, w *restful.Response) error {
	type apiserver struct {
		Connectivity string `json:"connectivity"`
		Version      string `json:"version,omitempty"`
		Error        string `json:"error,omitempty"`
	}
	found, err := q.serverVersion()
	if err != nil {
		return apierrors.NewServiceUnavailable("the API server does not answer virt-api: " + stream.Cause(err))
	}
	return answer(w, map[string]any{"apiserver": apiserver{Connectivity: "ok", Version: found}})
}

func answer(w *restful.Response, object any) error {
	return w.WriteAsJson(object)
}
