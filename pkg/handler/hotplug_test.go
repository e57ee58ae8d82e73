package handler

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
)

// What is taken from a CD-ROM drive that stays is its medium.
func TestTasksEject(t *testing.T) {
	cdrom := v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}
	disk := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}
	for name, tc := range map[string]struct {
		disks []v1.Disk
		eject bool
	}{
		"drive":   {[]v1.Disk{{Name: "a", DiskDevice: cdrom}}, true},
		"no more": {nil, false},
		"another": {[]v1.Disk{{Name: "b", DiskDevice: cdrom}}, false},
		"disk":    {[]v1.Disk{{Name: "a", DiskDevice: disk}}, false},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Devices.Disks = tc.disks
		vmi.Status.VolumeStatus = []v1.VolumeStatus{
			{Name: "a", Phase: v1.HotplugVolumeDetaching, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodUID: "u"}},
		}
		if got := tasks(vmi); len(got) != 1 || !got[0].detach || got[0].eject != tc.eject {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A volume that cannot be attached is tried again with longer and longer waits, however often its VMI changes, and its
// state does not change meanwhile. Another task with it does not wait.
func TestFailedVolumeIsLeftAlone(t *testing.T) {
	now, changes := time.Unix(1000, 0), 0
	s := &session{
		node: &Node{Name: "a", Now: func() time.Time { return now }}, log: slog.New(slog.DiscardHandler),
		changed: func(bool) { changes++ },
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.NodeName = "a"
	vmi.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true},
	}}}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", Phase: v1.HotplugVolumeAttachedToNode, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodUID: "u"},
	}}
	failed, tries, result := setbacks{}, 0, errors.New("in use")
	plug := func(t task) (vmistatus.Volume, error) {
		tries++
		s.sawMounted(t)
		return vmistatus.Volume{Mounted: true}, result
	}
	for range 600 { // a minute in which the VMI changes all the time
		s.plugAll(t.Context(), vmi, failed, plug)
		if wait := failed.next(now); wait <= 0 || wait > plugRetryMost {
			t.Fatalf("the next attempt is in %s", wait)
		}
		now = now.Add(100 * time.Millisecond)
	}
	if tries < 10 || tries > 20 {
		t.Errorf("%d attempts in a minute", tries)
	}
	if changes != 2 || s.observation().Volumes["data"].Failure != "in use" {
		t.Errorf("%d changes, now %+v", changes, s.observation().Volumes["data"])
	}
	vmi.Status.VolumeStatus[0].Phase, tries = v1.HotplugVolumeDetaching, 0
	if s.plugAll(t.Context(), vmi, failed, plug); tries != 1 {
		t.Errorf("%d attempts to detach it at once", tries)
	}
	now, result = now.Add(plugRetryMost), nil
	s.plugAll(t.Context(), vmi, failed, plug)
	if tries != 2 || failed.next(now) != 0 {
		t.Errorf("%d attempts, and %v is left", tries, failed)
	}
}
