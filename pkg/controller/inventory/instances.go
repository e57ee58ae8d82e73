package inventory

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/metrics"
	"github.com/virtkit/virtkit/pkg/vm/eviction"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// annotations in which people, and KubeVirt's templates, say what a guest is.
const (
	annotationOS       = "vm.kubevirt.io/os"
	annotationWorkload = "vm.kubevirt.io/workload"
	annotationFlavor   = "vm.kubevirt.io/flavor"
)

// Write writes everything.
func (c *Cluster) Write(w *metrics.Writer) {
	c.writeInstances(w)
	c.writeMachines(w)
	c.writeSnapshots(w)
	c.writeMigrations(w)
	c.writeNodes(w)
}

// system returns the labels of a VMI that describe its guest, in the order of the families.
func system(i *v1.VirtualMachineInstance) [10]string {
	a, os := i.Annotations, i.Status.GuestOSInfo
	machine := ""
	if i.Status.Machine != nil {
		machine = i.Status.Machine.Type
	}
	return [10]string{
		a[annotationOS], a[annotationWorkload], a[annotationFlavor],
		either(a[v1.InstancetypeAnnotation], a[v1.ClusterInstancetypeAnnotation]),
		either(a[v1.PreferenceAnnotation], a[v1.ClusterPreferenceAnnotation]),
		os.KernelRelease, machine, os.Machine, os.Name, os.VersionID,
	}
}

func either(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func phase(i *v1.VirtualMachineInstance) string { return strings.ToLower(string(i.Status.Phase)) }

// evictable reports whether an eviction may go on: the guest can move, or need not.
func (c *Cluster) evictable(i *v1.VirtualMachineInstance) bool {
	return eviction.Strategy(i, c.Config.EvictionStrategy) != v1.EvictionStrategyLiveMigrate || eviction.Movable(i)
}

// launcher returns the name of the running pod that the guest is in, "" when there is none.
func (c *Cluster) launcher(i *v1.VirtualMachineInstance) string {
	for uid := range i.Status.ActivePods {
		if pod := c.Pods[uid]; pod != nil && life.GuestIn(i, pod) {
			return pod.Name
		}
	}
	return ""
}

func (c *Cluster) writeInstances(w *metrics.Writer) {
	type group struct {
		node, phase string
		system      [10]string
	}
	groups := map[group]int{}
	outdated := 0
	w.Family(metrics.VMIInfo)
	for _, i := range c.Instances {
		s := system(i)
		groups[group{i.Status.NodeName, phase(i), s}]++
		_, old := i.Labels[v1.OutdatedLauncherImageLabel]
		if old {
			outdated++
		}
		w.Series(1, "", i.Status.NodeName, i.Namespace, i.Name, phase(i), s[0], s[1], s[2], s[3], s[4], s[5], s[6],
			s[7], s[8], s[9],
			strconv.FormatBool(c.evictable(i)), strconv.FormatBool(old), c.launcher(i))
	}
	w.Family(metrics.VMIPhaseCount)
	for g, count := range groups {
		s := g.system
		w.Series(float64(count), "", g.node, g.phase, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9])
	}
	w.Family(metrics.VMIOutdated)
	w.Series(float64(outdated), "")
	w.Family(metrics.VMINonEvictable)
	for _, i := range c.Instances {
		value := 1.0
		if c.evictable(i) {
			value = 0
		}
		w.Series(value, "", i.Status.NodeName, i.Namespace, i.Name)
	}
	w.Family(metrics.VMIOverhead)
	for _, i := range c.Instances {
		w.Series(float64(vmicontroller.Overhead(i, c.Config.MemoryOverheadRatio)), "", i.Namespace, i.Name)
	}
	c.writeAddresses(w)
	w.Family(metrics.VMIInterfaces)
	for _, i := range c.Instances {
		writeInterfaces(w, i.Namespace, i.Name, &i.Spec)
	}
	c.writeEphemeral(w)
	c.writeLastMigrations(w)
}

// writeEphemeral writes which plugged volumes a restart would lose.
func (c *Cluster) writeEphemeral(w *metrics.Writer) {
	w.Family(metrics.VMIEphemeralHotplug)
	var machines map[types.UID]*v1.VirtualMachine // looked up seldom: few guests have plugged volumes
	for _, i := range c.Instances {
		owner := metav1.GetControllerOfNoCopy(i)
		if owner == nil || owner.Kind != v1.VirtualMachineGroupVersionKind.Kind {
			continue
		}
		for _, volume := range hotplug.Volumes(&i.Spec) {
			if machines == nil {
				machines = make(map[types.UID]*v1.VirtualMachine, len(c.Machines))
				for _, m := range c.Machines {
					machines[m.UID] = m
				}
			}
			if m := machines[owner.UID]; m != nil && m.Spec.Template != nil &&
				hotplug.Volume(&m.Spec.Template.Spec, volume.Name) == nil {
				w.Series(1, "", i.Namespace, i.Name, volume.Name)
			}
		}
	}
}

func (c *Cluster) writeAddresses(w *metrics.Writer) {
	w.Family(metrics.VMIAddresses)
	for _, i := range c.Instances {
		for k := range i.Status.Interfaces {
			nic := &i.Status.Interfaces[k]
			addresses := nic.IPs
			if len(addresses) == 0 && nic.IP != "" {
				addresses = []string{nic.IP}
			}
			if len(addresses) == 0 && nic.Name+nic.InterfaceName != "" {
				w.Series(1, "", i.Status.NodeName, i.Namespace, i.Name, nic.Name, nic.InterfaceName, "",
					"SystemInterface")
			}
			for _, address := range addresses {
				w.Series(1, "", i.Status.NodeName, i.Namespace, i.Name, nic.Name, nic.InterfaceName, address,
					"ExternalInterface")
			}
		}
	}
}

// writeLastMigrations writes when the last migration of each VMI began and ended.
func (c *Cluster) writeLastMigrations(w *metrics.Writer) {
	called := make(map[types.UID]string, len(c.Migrations))
	for _, m := range c.Migrations {
		called[m.UID] = m.Name
	}
	w.Family(metrics.VMIMigrationStart)
	for _, i := range c.Instances {
		if s := i.Status.MigrationState; s != nil && s.StartTimestamp != nil {
			w.Series(float64(s.StartTimestamp.Unix()), "", i.Status.NodeName, i.Namespace, i.Name,
				called[s.MigrationUID])
		}
	}
	w.Family(metrics.VMIMigrationEnd)
	for _, i := range c.Instances {
		s := i.Status.MigrationState
		if s == nil || s.EndTimestamp == nil {
			continue
		}
		status := ""
		switch {
		case migrations.Failed(s):
			status = "failed"
		case migrations.Succeeded(s):
			status = "succeeded"
		}
		w.Series(float64(s.EndTimestamp.Unix()), "", i.Status.NodeName, i.Namespace, i.Name,
			called[s.MigrationUID], status)
	}
}

// writeInterfaces writes the interfaces of a spec; the family is the one of VMs or of VMIs.
func writeInterfaces(w *metrics.Writer, namespace, name string, spec *v1.VirtualMachineInstanceSpec) {
	for k := range spec.Domain.Devices.Interfaces {
		nic := &spec.Domain.Devices.Interfaces[k]
		kind, binding := "core", ""
		switch {
		case nic.Masquerade != nil:
			binding = "masquerade"
		case nic.Bridge != nil:
			binding = "bridge"
		case nic.SRIOV != nil:
			binding = "sriov"
		case nic.Binding != nil:
			kind, binding = "plugin", nic.Binding.Name
		}
		network := ""
		for _, n := range spec.Networks {
			switch {
			case n.Name != nic.Name:
			case n.Pod != nil:
				network = "pod networking"
			case n.Multus != nil:
				network = n.Multus.NetworkName
			}
		}
		w.Series(1, "", name, namespace, nic.Name, kind, network, binding, either(nic.Model, "<none>"))
	}
}

func (c *Cluster) writeMigrations(w *metrics.Writer) {
	var unset, pending, scheduling, running int
	for _, m := range c.Migrations {
		switch m.Status.Phase {
		case v1.MigrationPhaseUnset:
			unset++
		case v1.MigrationPending:
			pending++
		case v1.MigrationScheduling:
			scheduling++
		case v1.MigrationSucceeded, v1.MigrationFailed:
		default:
			running++
		}
	}
	for _, f := range []struct {
		family *metrics.Family
		count  int
	}{
		{metrics.MigrationsUnset, unset},
		{metrics.MigrationsPending, pending},
		{metrics.MigrationsScheduling, scheduling},
		{metrics.MigrationsRunning, running},
	} {
		w.Family(f.family)
		w.Series(float64(f.count), "")
	}
	for _, f := range []struct {
		family *metrics.Family
		phase  v1.VirtualMachineInstanceMigrationPhase
	}{
		{metrics.MigrationSucceeded, v1.MigrationSucceeded}, {metrics.MigrationFailed, v1.MigrationFailed},
	} {
		w.Family(f.family)
		for _, m := range c.Migrations {
			if m.Status.Phase == f.phase {
				w.Series(1, "", m.Spec.VMIName, m.Name, m.Namespace)
			}
		}
	}
}

func (c *Cluster) writeNodes(w *metrics.Writer) {
	var allocatable, kvm int
	for _, n := range c.Nodes {
		if life.TakesVMs(n) {
			allocatable++
		}
		if quantity, ok := n.Status.Allocatable[names.ResourceKVM]; ok && quantity.Sign() > 0 {
			kvm++
		}
	}
	emulation := 0.0
	if c.Config.UseEmulation {
		emulation = 1
	}
	w.Family(metrics.NodesAllocatable)
	w.Series(float64(allocatable), "")
	w.Family(metrics.NodesKVM)
	w.Series(float64(kvm), "")
	w.Family(metrics.Emulation)
	w.Series(emulation, "")
}
