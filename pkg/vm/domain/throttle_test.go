package domain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"
)

func TestThrottle(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Annotations = map[string]string{
		"disk.virtkit.io/root": "read-iops=1,write-iops=2,bps=50Mi", "disk.virtkit.io/cd": "iops=1",
		"disk.virtkit.io/raw": "iops=1", "disk.virtkit.io/wrong": "fast",
	}
	for _, tc := range []struct {
		disk v1.Disk
		want *libvirtxml.DomainDiskIOTune
	}{
		{
			v1.Disk{Name: "root"},
			&libvirtxml.DomainDiskIOTune{ReadIopsSec: 1, WriteIopsSec: 2, TotalBytesSec: 50 << 20},
		},
		{v1.Disk{Name: "data"}, nil},
		{v1.Disk{Name: "wrong"}, nil},
		{v1.Disk{Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}, nil},
		{v1.Disk{Name: "raw", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{}}}, nil},
	} {
		if diff := cmp.Diff(tc.want, throttle(vmi, &tc.disk)); diff != "" {
			t.Errorf("%s:\n%s", tc.disk.Name, diff)
		}
	}
}

// A disk that is plugged in has its limits from the first request on.
func TestThrottleOfPlugged(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Annotations = map[string]string{"disk.virtkit.io/data": "bps=1Mi"}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}},
	}
	got, err := Hotplugged(vmi, "data", Source{Path: "/x", Format: "raw"}, nil, 0)
	if err != nil || got.IOTune == nil || got.IOTune.TotalBytesSec != 1<<20 {
		t.Errorf("%+v, %v", got, err)
	}
}
