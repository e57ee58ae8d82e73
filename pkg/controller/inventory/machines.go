package inventory

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/metrics"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// groups are KubeVirt's groups of printable statuses, each with the family that says since when a VM is in the group.
var groups = []struct {
	name     string
	family   *metrics.Family
	statuses []v1.VirtualMachinePrintableStatus
}{
	{"starting", metrics.VMStarting, []v1.VirtualMachinePrintableStatus{
		v1.VirtualMachineStatusProvisioning, v1.VirtualMachineStatusStarting,
		v1.VirtualMachineStatusWaitingForVolumeBinding, v1.VirtualMachineStatusWaitingForReceiver,
	}},
	{"running", metrics.VMRunning, []v1.VirtualMachinePrintableStatus{v1.VirtualMachineStatusRunning}},
	{"migrating", metrics.VMMigrating, []v1.VirtualMachinePrintableStatus{v1.VirtualMachineStatusMigrating}},
	{"non_running", metrics.VMNonRunning, []v1.VirtualMachinePrintableStatus{
		v1.VirtualMachineStatusStopped, v1.VirtualMachineStatusPaused, v1.VirtualMachineStatusStopping,
		v1.VirtualMachineStatusTerminating,
	}},
	{"error", metrics.VMError, life.Broken()},
}

// groupOf is the group's index by status.
var groupOf = func() map[v1.VirtualMachinePrintableStatus]int {
	out := map[v1.VirtualMachinePrintableStatus]int{}
	for i, g := range groups {
		for _, status := range g.statuses {
			out[status] = i
		}
	}
	return out
}()

func (c *Cluster) writeMachines(w *metrics.Writer) {
	counts := map[string]int{}
	w.Family(metrics.VMInfo)
	for _, vm := range c.Machines {
		counts[vm.Namespace]++
		writeMachine(w, vm)
	}
	w.Family(metrics.VMCount)
	for namespace, count := range counts {
		w.Series(float64(count), "", namespace)
	}
	w.Family(metrics.VMCreated)
	for _, vm := range c.Machines {
		w.Series(float64(vm.CreationTimestamp.Unix()), "", vm.Name, vm.Namespace)
	}
	for i, g := range groups {
		w.Family(g.family)
		for _, vm := range c.Machines {
			since := 0.0
			if at, ok := groupOf[vm.Status.PrintableStatus]; ok && at == i {
				since = lastTransition(vm)
			}
			w.Series(since, "", vm.Name, vm.Namespace)
		}
	}
	c.writeResources(w)
	c.writeDisks(w)
	w.Family(metrics.VMInterfaces)
	for _, vm := range c.Machines {
		if vm.Spec.Template != nil {
			writeInterfaces(w, vm.Namespace, vm.Name, &vm.Spec.Template.Spec)
		}
	}
}

func writeMachine(w *metrics.Writer, vm *v1.VirtualMachine) {
	var annotations map[string]string
	machine, instancetype, preference := "", "", ""
	if t := vm.Spec.Template; t != nil {
		annotations = t.ObjectMeta.Annotations
		if t.Spec.Domain.Machine != nil {
			machine = t.Spec.Domain.Machine.Type
		}
	}
	if vm.Spec.Instancetype != nil {
		instancetype = vm.Spec.Instancetype.Name
	}
	if vm.Spec.Preference != nil {
		preference = vm.Spec.Preference.Name
	}
	group := "<unknown>"
	if at, ok := groupOf[vm.Status.PrintableStatus]; ok {
		group = groups[at].name
	}
	w.Series(1, "", vm.Name, vm.Namespace, annotations[annotationOS], annotations[annotationWorkload],
		annotations[annotationFlavor],
		machine, instancetype, preference, strings.ToLower(string(vm.Status.PrintableStatus)), group)
}

// lastTransition returns when the VM last changed, by the conditions that make its status; seconds since 1970.
func lastTransition(vm *v1.VirtualMachine) float64 {
	var last time.Time
	for i := range vm.Status.Conditions {
		c := &vm.Status.Conditions[i]
		switch c.Type {
		case v1.VirtualMachineReady, v1.VirtualMachineFailure, v1.VirtualMachinePaused:
			if c.LastTransitionTime.After(last) {
				last = c.LastTransitionTime.Time
			}
		}
	}
	if last.IsZero() {
		return float64(vm.CreationTimestamp.Unix())
	}
	return float64(last.Unix())
}

// writeResources writes what VMs ask for: source is guest or domain for what the guest sees, requests for what its pod
// is to have.
func (c *Cluster) writeResources(w *metrics.Writer) {
	w.Family(metrics.VMRequests)
	for _, vm := range c.Machines {
		if vm.Spec.Template == nil {
			continue
		}
		domain := &vm.Spec.Template.Spec.Domain
		write := func(value float64, resource, unit, source string) {
			if value > 0 {
				w.Series(value, "", vm.Name, vm.Namespace, resource, unit, source)
			}
		}
		if m := domain.Memory; m != nil && m.Guest != nil {
			write(float64(m.Guest.Value()), "memory", "bytes", "guest")
		}
		write(float64(domain.Resources.Requests.Memory().Value()), "memory", "bytes", "domain")
		write(domain.Resources.Requests.Cpu().AsApproximateFloat64(), "cpu", "cores", "requests")
		if cpu := domain.CPU; cpu != nil {
			write(float64(cpu.Cores), "cpu", "cores", "domain")
			write(float64(cpu.Sockets), "cpu", "sockets", "domain")
			write(float64(cpu.Threads), "cpu", "threads", "domain")
		}
	}
	w.Family(metrics.VMLimits)
	for _, vm := range c.Machines {
		if vm.Spec.Template == nil {
			continue
		}
		limits := vm.Spec.Template.Spec.Domain.Resources.Limits
		if memory, ok := limits[corev1.ResourceMemory]; ok {
			w.Series(float64(memory.Value()), "", vm.Name, vm.Namespace, "memory", "bytes")
		}
		if cpu, ok := limits[corev1.ResourceCPU]; ok {
			w.Series(cpu.AsApproximateFloat64(), "", vm.Name, vm.Namespace, "cpu", "cores")
		}
	}
}

// writeDisks writes the claims that are disks of VMs.
func (c *Cluster) writeDisks(w *metrics.Writer) {
	w.Family(metrics.VMDisks)
	for _, vm := range c.Machines {
		if vm.Spec.Template == nil {
			continue
		}
		for i := range vm.Spec.Template.Spec.Volumes {
			volume := &vm.Spec.Template.Spec.Volumes[i]
			name := claims.Name(volume)
			if name == "" {
				continue
			}
			pvc := c.Claim(types.NamespacedName{Namespace: vm.Namespace, Name: name})
			if pvc == nil {
				continue
			}
			mode := corev1.PersistentVolumeFilesystem
			if pvc.Spec.VolumeMode != nil {
				mode = *pvc.Spec.VolumeMode
			}
			w.Series(float64(pvc.Spec.Resources.Requests.Storage().
				Value()), "", vm.Name, vm.Namespace, name, string(mode), volume.Name)
		}
	}
}
