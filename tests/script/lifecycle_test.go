package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

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
	_, running := c.find(resourceVMIs, ns, name).(*v1.VirtualMachineInstance)
	switch {
	case verb == "start" && running:
		refuse(w, apierrors.NewConflict(group(resourceVMs), name, errors.New("VM is already running")))
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
		vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "default", IP: "10.0.0.7", IPs: []string{"10.0.0.7"}}}
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
	}
	c.put1(resourceVMIs, vmi)
}
