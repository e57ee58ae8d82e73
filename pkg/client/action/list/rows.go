// Package list makes rows of virtual machines: what a table of them shows, joined from VirtualMachines and their
// instances. Rows is pure; Follow keeps rows current by watching.
package list

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// Kind chooses what becomes a row.
type Kind string

const (
	// VMs makes a row of each VirtualMachine.
	VMs Kind = "vm"
	// VMIs makes a row of each VirtualMachineInstance.
	VMIs Kind = "vmi"
	// All makes a row of each VirtualMachine and of each instance that belongs to none.
	All Kind = "all"
)

// Row is one machine. Strings are as shown; empty means unknown or not there.
type Row struct {
	Namespace, Name string
	// Instance is whether the row is of an instance without VirtualMachine, or Kind is VMIs.
	Instance bool
	// Status is the VM's printableStatus or the instance's phase.
	Status string
	Ready  bool
	Node   string
	IPs    []string
	// CPUs is the number of virtual CPUs, Memory what the guest sees; 0 where the instance type of a VM without
	// instance says it, until Sizes has asked that.
	CPUs    uint32
	Memory  resource.Quantity
	GuestOS string
	// RunStrategy is empty for an instance.
	RunStrategy string
	Created     time.Time
	// Progress is how far the migration of a guest that moves is, such as "63%"; Progress finds it.
	Progress string
	// sizing is the instance type of a VM that does not say its size itself and has no instance.
	sizing *v1.InstancetypeMatcher
	// Object is the VirtualMachine, or the VirtualMachineInstance, that the row is of.
	Object runtime.Object
}

// Headers returns the column titles of Cells.
func Headers(namespaces, wide bool) []string {
	headers := []string{"NAME", "STATUS", "READY", "NODE", "IP", "AGE"}
	if wide {
		headers = append(headers, "CPU", "MEMORY", "RUN STRATEGY", "GUEST OS", "MIGRATION")
	}
	if namespaces {
		headers = append([]string{"NAMESPACE"}, headers...)
	}
	return headers
}

// Cells returns the row's columns at a time.
func (r Row) Cells(now time.Time, namespaces, wide bool) []string {
	name := r.Name
	if r.Instance {
		name = "vmi/" + name
	}
	cells := []string{name, r.Status, Ready(r.Ready), r.Node, r.ip(wide), r.age(now)}
	if wide {
		cells = append(cells, count(r.CPUs), amount(r.Memory), r.RunStrategy, r.GuestOS, r.Progress)
	}
	if namespaces {
		cells = append([]string{r.Namespace}, cells...)
	}
	for i, c := range cells {
		if c == "" {
			cells[i] = "<none>"
		}
	}
	return cells
}

// age returns the time since the creation, as kubectl shows it.
func (r Row) age(now time.Time) string {
	if r.Created.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(r.Created))
}

// ip returns the first address, or all of them when there is room.
func (r Row) ip(wide bool) string {
	if wide || len(r.IPs) == 0 {
		return strings.Join(r.IPs, ",")
	}
	return r.IPs[0]
}

func count(n uint32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func amount(q resource.Quantity) string {
	if q.IsZero() {
		return ""
	}
	return q.String()
}

// Rows joins machines and instances by namespace and name, sorted by both. An instance belongs to the VM that
// controls it.
func Rows(kind Kind, vms []v1.VirtualMachine, vmis []v1.VirtualMachineInstance) []Row {
	instances := map[string]*v1.VirtualMachineInstance{}
	for i := range vmis {
		instances[key(&vmis[i])] = &vmis[i]
	}
	var rows []Row
	if kind != VMIs {
		for i := range vms {
			vmi := instances[key(&vms[i])]
			if vmi != nil && !store.Owned(vmi) {
				vmi = nil
			}
			rows = append(rows, vmRow(&vms[i], vmi))
		}
	}
	if kind != VMs {
		for i := range vmis {
			if kind == All && store.Owned(&vmis[i]) {
				continue
			}
			row := vmiRow(&vmis[i])
			row.Instance = kind == All
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

func key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func vmRow(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) Row {
	r := Row{}
	if r.CPUs, r.Memory = store.SizeOf(vm); r.CPUs == 0 || r.Memory.IsZero() {
		r.sizing = vm.Spec.Instancetype
	}
	if vmi != nil {
		r = vmiRow(vmi)
	}
	r.Namespace, r.Name, r.Created, r.Object = vm.Namespace, vm.Name, vm.CreationTimestamp.Time, vm
	r.Status = string(vm.Status.PrintableStatus)
	r.Ready = vm.Status.Ready
	strategy, err := vm.RunStrategy()
	if err == nil {
		r.RunStrategy = string(strategy)
	}
	return r
}

func vmiRow(vmi *v1.VirtualMachineInstance) Row {
	r := Row{
		Namespace: vmi.Namespace,
		Name:      vmi.Name,
		Status:    string(vmi.Status.Phase),
		Node:      vmi.Status.NodeName,
		Created:   vmi.CreationTimestamp.Time,
		GuestOS:   store.GuestOS(vmi.Status.GuestOSInfo),
		Object:    vmi,
	}
	r.CPUs, r.Memory = uint32(sizing.VCPUs(&vmi.Spec.Domain)), sizing.Current(vmi)
	r.Ready = conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	r.IPs = store.Addresses(vmi)
	return r
}

// Ready prints whether a machine is ready, as conditions do.
func Ready(is bool) string {
	if is {
		return string(corev1.ConditionTrue)
	}
	return string(corev1.ConditionFalse)
}
