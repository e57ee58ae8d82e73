package launcher

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// The disks that the guest has get the limits of the VMI of now, and lose those that it does not say any more.
func TestSetDiskLimits(t *testing.T) {
	l := begin(t)
	set := func(annotations map[string]string) error {
		vmi := demo()
		vmi.Annotations = annotations
		vmi.Spec.Domain.Devices.Disks = []v1.Disk{
			{Name: "root"},
			{Name: "data"},
			{Name: "later"},
			{Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}},
			{Name: "raw", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{}}},
		}
		data, err := json.Marshal(vmi)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.client.SetDiskLimits(t.Context(), &pb.SetDiskLimitsRequest{VmiJson: data})
		return err
	}
	if err := set(nil); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the start: %v", err)
	}
	l.mustStart()
	l.memory.change(func(d *hypervisor.Domain) {
		d.Disks = map[string]string{"ua-root": "vda", "ua-data": "vdb", "ua-cd": "sda", "ua-raw": "sdb"}
	})
	limits := func() map[string]hypervisor.DiskLimits {
		l.memory.mu.Lock()
		defer l.memory.mu.Unlock()
		return maps.Clone(l.memory.limits)
	}
	for _, step := range []struct {
		annotations map[string]string
		want        map[string]hypervisor.DiskLimits
	}{
		{
			map[string]string{"disk.virtkit.io/root": "iops=5", "disk.virtkit.io/later": "iops=6"},
			map[string]hypervisor.DiskLimits{"vda": {IOPS: 5}, "vdb": {}},
		},
		{
			map[string]string{"disk.virtkit.io/data": "read-bps=1Mi,write-bps=2Mi"},
			map[string]hypervisor.DiskLimits{"vda": {}, "vdb": {ReadBPS: 1 << 20, WriteBPS: 2 << 20}},
		},
		{nil, map[string]hypervisor.DiskLimits{"vda": {}, "vdb": {}}},
	} {
		for range 2 { // it is idempotent
			if err := set(step.annotations); err != nil {
				t.Fatal(err)
			}
			if got := limits(); !maps.Equal(got, step.want) {
				t.Errorf("%v: %+v, want %+v", step.annotations, got, step.want)
			}
		}
	}
	l.memory.mu.Lock()
	l.memory.limitErr = errors.New("no throttling")
	l.memory.mu.Unlock()
	if err := set(nil); status.Code(err) != codes.Internal ||
		status.Convert(err).Message() != `disk "root": no throttling` {
		t.Errorf("%v", err)
	}
}
