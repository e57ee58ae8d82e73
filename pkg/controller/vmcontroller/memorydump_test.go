package vmcontroller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A request goes from Associating to Completed as the instance's volume comes, is written and goes; every other way
// ends, too.
func TestMemoryDump(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	began, ended := metav1.NewTime(now.Add(-2*time.Second)), metav1.NewTime(now.Add(-time.Second))
	file := "vm-dump-20261121.memory.dump"
	volume := v1.Volume{Name: "dump", VolumeSource: v1.VolumeSource{MemoryDump: &v1.MemoryDumpVolumeSource{}}}
	volume.MemoryDump.ClaimName, volume.MemoryDump.Hotpluggable = "dump", true
	root := v1.Volume{Name: "root"}
	instance := func(asked bool, status ...v1.VolumeStatus) *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Volumes = []v1.Volume{root}
		if asked {
			vmi.Spec.Volumes = append(vmi.Spec.Volumes, volume)
		}
		vmi.Status.Phase, vmi.Status.VolumeStatus = v1.Running, status
		return vmi
	}
	state := func(phase v1.VolumePhase, info *v1.DomainMemoryDumpInfo) v1.VolumeStatus {
		return v1.VolumeStatus{Name: "dump", Phase: phase, Message: "told", MemoryDumpVolume: info}
	}
	stopped := instance(true)
	stopped.Status.Phase = v1.Succeeded
	request := func(phase v1.MemoryDumpPhase, change ...func(*v1.VirtualMachineMemoryDumpRequest),
	) *v1.VirtualMachineMemoryDumpRequest {
		r := &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: phase}
		for _, f := range change {
			f(r)
		}
		return r
	}
	started := func(r *v1.VirtualMachineMemoryDumpRequest) { r.StartTimestamp = &began }
	done := func(r *v1.VirtualMachineMemoryDumpRequest) { r.EndTimestamp, r.FileName = &ended, &file }
	removed := func(r *v1.VirtualMachineMemoryDumpRequest) { r.Remove = true }
	under := &v1.DomainMemoryDumpInfo{ClaimName: "dump", StartTimestamp: &began, TargetFileName: file}
	over := &v1.DomainMemoryDumpInfo{
		ClaimName: "dump", StartTimestamp: &began, EndTimestamp: &ended, TargetFileName: file,
	}

	for name, tc := range map[string]struct {
		request, want *v1.VirtualMachineMemoryDumpRequest
		instance      *v1.VirtualMachineInstance
		volumes       string // what becomes of the instance's: added, removed or nothing
	}{
		"none":      {nil, nil, instance(false), ""},
		"asked for": {request(v1.MemoryDumpAssociating), request(v1.MemoryDumpAssociating), instance(false), "added"},
		"plugging in": {
			request(v1.MemoryDumpAssociating), request(v1.MemoryDumpInProgress),
			instance(true, state(v1.HotplugVolumeAttachedToNode, nil)), "",
		},
		"under way": {
			request(v1.MemoryDumpInProgress), request(v1.MemoryDumpInProgress, started),
			instance(true, state(v1.MemoryDumpVolumeInProgress, under)), "",
		},
		"written": {
			request(v1.MemoryDumpInProgress), request(v1.MemoryDumpUnmounting, started, done),
			instance(true, state(v1.MemoryDumpVolumeCompleted, over)), "removed",
		},
		"failed": {
			request(v1.MemoryDumpInProgress),
			request(v1.MemoryDumpFailed, started, func(r *v1.VirtualMachineMemoryDumpRequest) {
				r.EndTimestamp, r.Message = &ended, "told"
			}),
			instance(true, state(v1.MemoryDumpVolumeFailed, over)), "removed",
		},
		"going": {
			request(v1.MemoryDumpUnmounting), request(v1.MemoryDumpUnmounting),
			instance(false, state(v1.HotplugVolumeDetaching, over)), "",
		},
		"gone":          {request(v1.MemoryDumpUnmounting), request(v1.MemoryDumpCompleted), instance(false), ""},
		"stopped since": {request(v1.MemoryDumpUnmounting), request(v1.MemoryDumpCompleted), nil, ""},
		"completed": {
			request(v1.MemoryDumpCompleted, done), request(v1.MemoryDumpCompleted, done), instance(false), "",
		},
		"let go": {request(v1.MemoryDumpCompleted, removed), nil, instance(false), ""},
		"let go early": {
			request(v1.MemoryDumpInProgress, removed), request(v1.MemoryDumpDissociating, removed),
			instance(true, state(v1.MemoryDumpVolumeInProgress, under)), "removed",
		},
		"stops": {
			request(v1.MemoryDumpInProgress),
			request(v1.MemoryDumpFailed, func(r *v1.VirtualMachineMemoryDumpRequest) {
				at := metav1.NewTime(now)
				r.EndTimestamp, r.Message = &at, "the virtual machine does not run any more"
			}),
			stopped, "removed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{}
			vm.Status.MemoryDumpRequest = tc.request
			got := dumpRequest(View{VM: vm, VMI: tc.instance, Now: now})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			volumes, changed := dumpVolumes(got, tc.instance)
			want := map[string][]v1.Volume{"": nil, "added": {root, volume}, "removed": {root}}[tc.volumes]
			if diff := cmp.Diff(want, volumes); diff != "" || changed != (tc.volumes != "") {
				t.Errorf("volumes, changed %t: %s", changed, diff)
			}
		})
	}
}
