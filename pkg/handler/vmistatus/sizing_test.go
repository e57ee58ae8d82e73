package vmistatus

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

func TestSize(t *testing.T) {
	vmi := vmiOf(t, scheduled) // two cores a socket
	in := Input{VMI: vmi, Pod: pod(), Now: now, Guest: guest(func(g *launcherpb.GuestState) {
		g.Vcpus, g.MemoryRequested, g.MemoryCurrent = 6, 64<<20, 288<<20
	})}
	got := Next(in)
	if topology := got.CurrentCPUTopology; topology.Sockets != 3 || topology.Cores != 2 {
		t.Errorf("topology %+v", topology)
	}
	if m := got.Memory; m.GuestAtBoot.String() != "256Mi" || m.GuestRequested.String() != "320Mi" ||
		m.GuestCurrent.String() != "288Mi" {
		t.Errorf("memory %+v", m)
	}
	// A virt-handler that has not asked yet knows nothing better.
	again := vmi.DeepCopy()
	again.Status = got
	if topology := Next(Input{VMI: again, Pod: pod(), Now: now}).CurrentCPUTopology; topology.Sockets != 3 {
		t.Errorf("topology without a launcher %+v", topology)
	}

	in.Unsized = "no room"
	failed := false
	for _, c := range Next(in).Conditions {
		failed = failed ||
			c.Type == v1.VirtualMachineInstanceSynchronized && c.Status == corev1.ConditionFalse &&
				strings.Contains(c.Message, "no room")
	}
	if !failed {
		t.Error("that it did not get its size is not told")
	}
}

func TestMappedNUMAStays(t *testing.T) {
	vmi := vmiOf(t, scheduled)
	vmi.Spec.Domain.CPU.NUMA = &v1.NUMA{GuestMappingPassthrough: &v1.NUMAGuestMappingPassthrough{}}
	for _, c := range Next(Input{VMI: vmi, Pod: pod(), Now: now, Guest: guest(nil)}).Conditions {
		if c.Type == v1.VirtualMachineInstanceIsMigratable &&
			(c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "guestMappingPassthrough")) {
			t.Errorf("%+v", c)
		}
	}
}
