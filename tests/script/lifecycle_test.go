package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// serveLifecycle answers what instances are asked for, migrations and deletions.
func (c *cluster) serveLifecycle(mux *http.ServeMux, kubevirt, subresources string) {
	for _, verb := range []string{"pause", "unpause", "reset", "softreboot", "evacuate/cancel"} {
		mux.HandleFunc("PUT "+subresources+"namespaces/{ns}/virtualmachineinstances/{name}/"+verb,
			func(w http.ResponseWriter, r *http.Request) {
				c.putInstance(w, r, verb)
			})
	}
	mux.HandleFunc("PUT "+subresources+"namespaces/{ns}/virtualmachines/{name}/evacuate/cancel",
		func(w http.ResponseWriter, r *http.Request) {
			c.putInstance(w, r, "evacuate/cancel")
		})
	mux.HandleFunc("PATCH "+kubevirt+"namespaces/{ns}/{resource}/{name}", c.patch)
	mux.HandleFunc("DELETE "+kubevirt+"namespaces/{ns}/{resource}/{name}", c.delete)
}

// putInstance is the server's half of what is asked of an instance.
func (c *cluster) putInstance(w http.ResponseWriter, r *http.Request, verb string) {
	ns, name := r.PathValue("ns"), r.PathValue("name")
	found, ok := c.find(resourceVMIs, ns, name).(*v1.VirtualMachineInstance)
	if !ok {
		refuse(w, apierrors.NewNotFound(group(resourceVMIs), name))
		return
	}
	body, err := io.ReadAll(r.Body)
	var options v1.PauseOptions
	if err == nil {
		err = json.Unmarshal(body, &options)
	}
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	vmi := found.DeepCopy()
	paused := slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
		return c.Type == v1.VirtualMachineInstancePaused
	})
	conflict := ""
	switch {
	case vmi.Status.Phase != v1.Running:
		conflict = " is not running: phase " + string(vmi.Status.Phase)
	case verb == "pause" && paused:
		conflict = ": VMI is already paused"
	case verb == "unpause" && !paused:
		conflict = ": VMI is not paused"
	}
	if conflict != "" {
		stream.WriteStatus(w, metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Message: "VirtualMachineInstance " + ns + "/" + name + conflict,
		})
		return
	}
	c.note(r, bytes.TrimSpace(body))
	w.WriteHeader(http.StatusAccepted)
	if len(options.DryRun) > 0 {
		return
	}
	switch verb {
	case "pause":
		vmi.Status.Conditions = append(vmi.Status.Conditions,
			v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue})
	case "unpause":
		vmi.Status.Conditions = slices.DeleteFunc(vmi.Status.Conditions,
			func(c v1.VirtualMachineInstanceCondition) bool { return c.Type == v1.VirtualMachineInstancePaused })
	case "evacuate/cancel":
		vmi.Status.EvacuationNodeName = ""
	}
	c.put1(resourceVMIs, vmi)
}

func (c *cluster) delete(w http.ResponseWriter, r *http.Request) {
	ns, resource, name := r.PathValue("ns"), r.PathValue("resource"), r.PathValue("name")
	found := c.find(resource, ns, name)
	if found == nil {
		refuse(w, apierrors.NewNotFound(group(resource), name))
		return
	}
	body, err := io.ReadAll(r.Body)
	var options metav1.DeleteOptions
	if err == nil {
		err = json.Unmarshal(body, &options)
	}
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	c.note(r, bytes.TrimSpace(body))
	answer(w, http.StatusOK,
		metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	if len(options.DryRun) > 0 {
		return
	}
	c.work.Go(func() {
		if m, ok := found.(*v1.VirtualMachineInstanceMigration); ok {
			c.cancelled(m)
		}
		c.remove(resource, id(found))
		if resource == resourceVMs {
			c.remove(resourceVMIs, id(found))
		}
	})
}

// put is the server's half of start, stop and restart.
func (c *cluster) put(w http.ResponseWriter, r *http.Request) {
	ns, name, verb := r.PathValue("ns"), r.PathValue("name"), r.PathValue("verb")
	found := c.find(resourceVMs, ns, name)
	if found == nil {
		refuse(w, apierrors.NewNotFound(group(resourceVMs), name))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	var options struct {
		DryRun []string `json:"dryRun"`
		Paused bool     `json:"paused"`
	}
	if err := json.Unmarshal(body, &options); err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	vm := found.(*v1.VirtualMachine)
	vmi, running := c.find(resourceVMIs, ns, name).(*v1.VirtualMachineInstance)
	switch {
	case verb == "stop" && running && vmi.DeletionTimestamp != nil:
		refuse(w, apierrors.NewConflict(group(resourceVMs), name, errors.New("VM is stopping; Halted only supports "+
			"manual stop requests with a shorter graceperiod")))
		if name == "going" {
			c.work.Go(func() {
				c.remove(resourceVMIs, id(vm))
				c.setStatus(vm, v1.VirtualMachineStatusStopped)
			})
		}
		return
	case verb == "start" && running:
		refuse(w, apierrors.NewConflict(group(resourceVMs), name, errors.New("VM is already running")))
		return
	case verb == "migrate" && running:
		c.note(r, bytes.TrimSpace(body))
		c.migrate(vm, len(options.DryRun) > 0)
		w.WriteHeader(http.StatusAccepted)
		return
	case verb != "start" && !running:
		refuse(w, apierrors.NewConflict(group(resourceVMs), name, errors.New("VM is not running")))
		return
	}
	c.note(r, bytes.TrimSpace(body))
	w.WriteHeader(http.StatusAccepted)
	if len(options.DryRun) > 0 || name == "stuck" {
		return
	}
	vm = withStrategy(vm, verb)
	c.work.Go(func() {
		if verb != "start" {
			c.setStatus(vm, v1.VirtualMachineStatusStopping)
			c.stopGuest(id(vm))
			c.remove(resourceVMIs, id(vm))
			if verb == "stop" {
				c.setStatus(vm, v1.VirtualMachineStatusStopped)
				return
			}
		}
		c.setStatus(vm, v1.VirtualMachineStatusStarting)
		for _, phase := range []v1.VirtualMachineInstancePhase{v1.Pending, v1.Scheduling, v1.Scheduled, v1.Running} {
			c.setPhase(vm, phase)
		}
		c.setStatus(vm, v1.VirtualMachineStatusRunning)
	})
}

// withStrategy changes the run strategy as the real server does.
func withStrategy(vm *v1.VirtualMachine, verb string) *v1.VirtualMachine {
	vm = vm.DeepCopy()
	strategy, err := vm.RunStrategy()
	if err != nil {
		return vm
	}
	switch {
	case verb == "start" && strategy == v1.RunStrategyHalted:
		strategy = v1.RunStrategyAlways
	case verb == "stop" && (strategy == v1.RunStrategyAlways || strategy == v1.RunStrategyOnce):
		strategy = v1.RunStrategyHalted
	}
	if vm.Spec.Running != nil {
		running := strategy == v1.RunStrategyAlways
		vm.Spec.Running = &running
		return vm
	}
	vm.Spec.RunStrategy = &strategy
	return vm
}

func (c *cluster) setStatus(vm *v1.VirtualMachine, status v1.VirtualMachinePrintableStatus) {
	vm = vm.DeepCopy()
	vm.Status.PrintableStatus = status
	vm.Status.Ready = status == v1.VirtualMachineStatusRunning
	c.put1(resourceVMs, vm)
}

func (c *cluster) setPhase(vm *v1.VirtualMachine, phase v1.VirtualMachineInstancePhase) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Name}}
	if have, ok := c.find(resourceVMIs, vm.Namespace, vm.Name).(*v1.VirtualMachineInstance); ok {
		vmi = have.DeepCopy()
	}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	vmi.Status.Phase = phase
	if phase == v1.Running {
		vmi.Status.NodeName = "node1"
		vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{
			{Name: "default", IP: "10.0.0.7", IPs: []string{"10.0.0.7"}},
		}
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
		}
	}
	c.put1(resourceVMIs, vmi)
}
