package launcher

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// A volume is put into the drive that is there and taken out of it; the drive stays. Without one it is a device that
// comes and goes.
func TestMedium(t *testing.T) {
	l := begin(t)
	if err := os.MkdirAll(filepath.Join(l.options.Disks.Hotplug, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.mustStart()
	vmi := demo()
	vmi.Spec.Domain.Devices.Disks[0].DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}
	vmi.Spec.Volumes[0].PersistentVolumeClaim.Hotpluggable = true
	attach := func() (*pb.AttachVolumeResponse, error) {
		encoded, err := json.Marshal(vmi)
		if err != nil {
			t.Fatal(err)
		}
		return l.client.AttachVolume(t.Context(), &pb.AttachVolumeRequest{VmiJson: encoded, Volume: "data"})
	}
	eject := func() error {
		_, err := l.client.DetachVolume(t.Context(), &pb.DetachVolumeRequest{Volume: "data", Eject: true})
		return err
	}
	drive := func(there, empty bool) {
		t.Helper()
		l.memory.mu.Lock()
		defer l.memory.mu.Unlock()
		if _, ok := l.memory.domain.Disks["ua-data"]; ok != there || l.memory.domain.Empty["ua-data"] != empty {
			t.Errorf("disks %v, empty %v", l.memory.domain.Disks, l.memory.domain.Empty)
		}
	}

	if _, err := attach(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a sata drive comes: %v", err)
	}
	l.memory.change(func(d *hypervisor.Domain) {
		d.Disks, d.Empty = map[string]string{"ua-data": "sdc"}, map[string]bool{"ua-data": true}
	})
	for range 2 {
		if response, err := attach(); err != nil || response.Target != "sdc" {
			t.Fatalf("%v, %v", response, err)
		}
	}
	drive(true, false)

	l.memory.mu.Lock()
	l.memory.clings = true
	l.memory.mu.Unlock()
	if err := eject(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a mounted disc is taken out: %v", err)
	}
	l.memory.mu.Lock()
	l.memory.clings = false
	l.memory.mu.Unlock()
	for range 2 {
		if err := eject(); err != nil {
			t.Fatal(err)
		}
	}
	drive(true, true)
	l.memory.mu.Lock()
	if targets := volumeTargets(*l.memory.domain); len(targets) != 0 {
		t.Errorf("an empty drive is a volume: %v", targets)
	}
	l.memory.mu.Unlock()

	if _, err := l.client.DetachVolume(t.Context(), &pb.DetachVolumeRequest{Volume: "data"}); err != nil {
		t.Fatal(err)
	}
	vmi.Spec.Domain.Devices.Disks[0].CDRom.Bus = v1.DiskBusSCSI
	if _, err := attach(); err != nil {
		t.Fatal(err)
	}
	drive(true, false)
	l.sigterm()
	if _, err := l.wait(); err != nil {
		t.Error(err)
	}
}

// A claim that another guest writes is named to the user, in words without a code.
func TestLockedVolume(t *testing.T) {
	l := begin(t)
	if err := os.MkdirAll(filepath.Join(l.options.Disks.Hotplug, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.mustStart()
	vmi := demo()
	vmi.Spec.Volumes[0].PersistentVolumeClaim.Hotpluggable = true
	encoded, err := json.Marshal(vmi)
	if err != nil {
		t.Fatal(err)
	}
	l.memory.mu.Lock()
	l.memory.attachErr = hypervisor.Diagnose(`Failed to get "write" lock`)
	l.memory.mu.Unlock()
	_, err = l.client.AttachVolume(t.Context(), &pb.AttachVolumeRequest{VmiJson: encoded, Volume: "data"})
	const words = `volume "data": PersistentVolumeClaim pvc is in use by another virtual machine; stop that one, or ` +
		`make the disk shareable in both`
	if got := status.Convert(err); got.Code() != codes.FailedPrecondition || got.Message() != words {
		t.Errorf("%s, want %s", got, words)
	}
	l.end(t)
}

// A disk with an I/O thread of its own gets one when it comes, which ends with it.
func TestPluggedThread(t *testing.T) {
	l := begin(t)
	if err := os.MkdirAll(filepath.Join(l.options.Disks.Hotplug, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.mustStart()
	vmi, own := demo(), true
	vmi.Spec.Domain.Devices.Disks[0].DedicatedIOThread = &own
	vmi.Spec.Volumes[0].PersistentVolumeClaim.Hotpluggable = true
	encoded, err := json.Marshal(vmi)
	if err != nil {
		t.Fatal(err)
	}
	threads := func(want ...uint) {
		t.Helper()
		l.memory.mu.Lock()
		defer l.memory.mu.Unlock()
		if !slices.Equal(l.memory.domain.Threads, want) {
			t.Errorf("threads %v, want %v", l.memory.domain.Threads, want)
		}
	}
	attach := &pb.AttachVolumeRequest{VmiJson: encoded, Volume: "data"}
	l.memory.mu.Lock()
	l.memory.attachErr = errors.New("no room")
	l.memory.mu.Unlock()
	if _, err := l.client.AttachVolume(t.Context(), attach); err == nil {
		t.Error("attached")
	}
	threads(2001)
	l.memory.mu.Lock()
	l.memory.attachErr = nil
	l.memory.mu.Unlock()
	if _, err := l.client.AttachVolume(t.Context(), attach); err != nil {
		t.Fatal(err)
	}
	threads(2001)
	if _, err := l.client.DetachVolume(t.Context(), &pb.DetachVolumeRequest{Volume: "data"}); err != nil {
		t.Fatal(err)
	}
	threads()
	l.sigterm()
	if _, err := l.wait(); err != nil {
		t.Error(err)
	}
}
