package launcher

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// sized is the demo with so many sockets and so much memory.
func sized(sockets uint32, guest, most string) *v1.VirtualMachineInstance {
	vmi := demo()
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: sockets, Cores: 1, Threads: 1, MaxSockets: 4}
	vmi.Spec.Domain.Memory.Guest = new(resource.MustParse(guest))
	if most != "" {
		vmi.Spec.Domain.Memory.MaxGuest = new(resource.MustParse(most))
	}
	return vmi
}

func TestResize(t *testing.T) {
	l := begin(t)
	defer l.end(t)
	l.mustStart()
	l.memory.change(func(d *hypervisor.Domain) {
		d.VCPUs, d.MaxVCPUs, d.MemoryAtBoot, d.Memory = 1, 4, 128<<20, 128<<20
	})
	resize := func(vmi *v1.VirtualMachineInstance) error {
		t.Helper()
		data, err := json.Marshal(vmi)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.client.Resize(t.Context(), &pb.ResizeRequest{VmiJson: data})
		return err
	}
	has := func(vcpus uint32, requested int64) {
		t.Helper()
		stream, err := l.client.Watch(t.Context(), &pb.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; {
			state, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if state.Vcpus == vcpus && state.MemoryRequested == requested && state.MemoryAtBoot == 128<<20 &&
				state.MemoryCurrent == 128<<20+requested {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%+v, want %d vCPUs and %d bytes more", state, vcpus, requested)
			}
		}
	}
	for _, step := range []struct {
		vmi       *v1.VirtualMachineInstance
		vcpus     uint32
		requested int64
		refused   string
	}{
		{sized(1, "128Mi", "512Mi"), 1, 0, ""},
		{sized(2, "128Mi", "512Mi"), 2, 0, ""},
		{sized(3, "256Mi", "512Mi"), 3, 128 << 20, ""},
		{sized(3, "256Mi", "512Mi"), 3, 128 << 20, ""},
		{sized(3, "512Mi", "512Mi"), 3, 384 << 20, ""},
		{sized(3, "1Gi", "1Gi"), 3, 384 << 20, "1Gi is more than the guest was started with room for"},
		{sized(3, "128Mi", "512Mi"), 3, 0, ""},
		{sized(3, "64Mi", "512Mi"), 3, 0, "64Mi is less than the memory that the guest was started with"},
		{sized(5, "128Mi", "512Mi"), 3, 0, "5 vCPUs are more than the 4 that the guest was started with room for"},
		{sized(1, "128Mi", "512Mi"), 3, 0, "the guest has 3 vCPUs and cannot be left with 1 while it runs"},
	} {
		err := resize(step.vmi)
		if step.refused == "" && err != nil ||
			step.refused != "" &&
				(status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%+v: %v", step.vmi.Spec.Domain.CPU, err)
		}
		has(step.vcpus, step.requested)
	}

	own := sized(4, "128Mi", "512Mi")
	own.Spec.Domain.CPU.DedicatedCPUPlacement = true
	cpus, err := ownCPUs(own, "/sys")
	if err != nil {
		t.Fatal(err)
	}
	own.Spec.Domain.CPU.Sockets = 3
	if err := resize(own); len(cpus) >= 3 && err != nil || len(cpus) < 3 && err == nil {
		t.Errorf("%d CPUs for 3 vCPUs: %v", len(cpus), err)
	}
	if got := strings.Join(l.memory.pins, ", "); len(cpus) >= 3 && got != "vCPU 0 on 1, vCPU 1 on 1, vCPU 2 on 1" {
		t.Errorf("pinned: %s", got)
	}
}

func TestResizeOfNothing(t *testing.T) {
	l := begin(t)
	defer func() {
		l.sigterm()
		if err := <-l.err; err != nil {
			t.Error(err)
		}
	}()
	data, err := json.Marshal(sized(2, "256Mi", "512Mi"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.Resize(t.Context(),
		&pb.ResizeRequest{VmiJson: data}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the start: %v", err)
	}
	if _, err := l.client.Resize(t.Context(),
		&pb.ResizeRequest{VmiJson: []byte("{")}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no VMI: %v", err)
	}
}
