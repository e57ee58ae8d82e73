package restorecontroller

import (
	"maps"
	"slices"
	"strings"
	"testing"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// The restored claims go with the VM unless volumeOwnershipPolicy is None, whatever volumeRestorePolicy names them;
// with None they have no owner, so that they outlive the VM.
func TestOwnershipPolicy(t *testing.T) {
	claims := map[v1beta1.VolumeRestorePolicy]string{
		"": "restore-r-uid-data", v1beta1.VolumeRestorePolicyRandomizeNames: "restore-r-uid-data",
		v1beta1.VolumeRestorePolicyPrefixTargetName: "vm-data", v1beta1.VolumeRestorePolicyInPlace: "data",
	}
	for naming, name := range claims {
		for owner, owned := range map[v1beta1.VolumeOwnershipPolicy]bool{
			"": true, v1beta1.VolumeOwnershipPolicyVm: true, v1beta1.VolumeOwnershipPolicyNone: false,
		} {
			vm, objects := source(false)
			w := newWorld(t, append(objects, vm, restoreOf("vm", func(s *v1beta1.VirtualMachineRestoreSpec) {
				if naming != "" {
					s.VolumeRestorePolicy = &naming
				}
				if owner != "" {
					s.VolumeOwnershipPolicy = &owner
				}
			}))...)
			w.finished()
			claim := w.claim(name)
			if claim == nil || claim.UID == "data" || metav1.IsControlledBy(claim, vm) != owned ||
				len(claim.OwnerReferences) > 0 != owned {
				t.Errorf("%q, %q: after %v: claim %s is %+v", naming, owner, w.writes, name, claim)
			}
		}
	}
}

// What a restore says of one volume holds for that one: its claim's name, and labels and annotations beside, or instead
// of, those that were snapshotted.
func TestOverrides(t *testing.T) {
	vm, objects := source(false)
	w := newWorld(t, append(objects, vm, restoreOf("vm", func(s *v1beta1.VirtualMachineRestoreSpec) {
		s.VolumeRestoreOverrides = []v1beta1.VolumeRestoreOverride{
			{VolumeName: "root", RestoreName: "mine"},
			{
				VolumeName: "data", Labels: map[string]string{"x": "y"},
				Annotations: map[string]string{"note": "mine", "more": "z"},
			},
		}
	}))...)
	w.finished()
	root, data := w.claim("mine"), w.claim("restore-r-uid-data")
	if root == nil || data == nil {
		t.Fatalf("after %v: claims %v, %v", w.writes, root, data)
	}
	if root.Labels["x"] != "" || root.Annotations["note"] != "root" {
		t.Errorf("root has %v, %v", root.Labels, root.Annotations)
	}
	if data.Labels["x"] != "y" || data.Labels["disk"] != "data" || data.Annotations["note"] != "mine" ||
		data.Annotations["more"] != "z" {
		t.Errorf("data has %v, %v", data.Labels, data.Annotations)
	}
	volumes := w.vm("vm").Spec.Template.Spec.Volumes
	if volumes[0].PersistentVolumeClaim.ClaimName != data.Name || volumes[1].DataVolume.Name != "mine" {
		t.Errorf("the VM has %+v", volumes)
	}
}

// A restored claim of another name is no image of a catalogue, also for the VM that was snapshotted; one that takes the
// place of the image is. It keeps the labels from which a VM's instance type and preference follow.
func TestImageLabels(t *testing.T) {
	image := map[string]string{
		uploads.LabelImage: "debian", uploads.LabelImageVersion: "13", uploads.LabelImageUser: "debian",
	}
	for naming, tc := range map[v1beta1.VolumeRestorePolicy]struct {
		claim string
		image bool
	}{
		v1beta1.VolumeRestorePolicyRandomizeNames:   {"restore-r-uid-data", false},
		v1beta1.VolumeRestorePolicyPrefixTargetName: {"vm-data", false},
		v1beta1.VolumeRestorePolicyInPlace:          {"data", true},
	} {
		vm, objects := source(false)
		for _, o := range objects {
			content, ok := o.(*v1beta1.VirtualMachineSnapshotContent)
			if !ok {
				continue
			}
			for i := range content.Spec.VolumeBackups {
				if backup := &content.Spec.VolumeBackups[i]; backup.VolumeName == "data" {
					maps.Copy(backup.PersistentVolumeClaim.Labels, image)
					backup.PersistentVolumeClaim.Labels[uploads.LabelInstancetype] = "u1.small"
					backup.PersistentVolumeClaim.Annotations[uploads.AnnotationMade] = uploads.MadeFor
				}
			}
		}
		w := newWorld(t, append(objects, vm, restoreOf("vm", func(s *v1beta1.VirtualMachineRestoreSpec) {
			s.VolumeRestorePolicy = &naming
		}))...)
		w.finished()
		claim := w.claim(tc.claim)
		if claim == nil || claim.UID == "data" {
			t.Fatalf("%s: after %v: claim %s is %+v", naming, w.writes, tc.claim, claim)
		}
		if uploads.AskedFor(claim.Annotations) {
			t.Errorf("%s: an upload would replace the restored disk: %v", naming, claim.Annotations)
		}
		for label, value := range image {
			if got, has := claim.Labels[label]; has != tc.image || has && got != value {
				t.Errorf("%s: label %s is %q", naming, label, got)
			}
		}
		if claim.Labels["disk"] != "data" || claim.Labels[uploads.LabelInstancetype] != "u1.small" {
			t.Errorf("%s: labels %v", naming, claim.Labels)
		}
	}
}

// A claim that is restored from a snapshot which was taken during an upload starts none, and is no disk.
func TestUploading(t *testing.T) {
	for _, policy := range []v1beta1.VolumeRestorePolicy{
		v1beta1.VolumeRestorePolicyPrefixTargetName, v1beta1.VolumeRestorePolicyInPlace,
	} {
		vm, objects := source(false)
		for _, o := range objects {
			content, ok := o.(*v1beta1.VirtualMachineSnapshotContent)
			if !ok {
				continue
			}
			for i := range content.Spec.VolumeBackups {
				if backup := &content.Spec.VolumeBackups[i]; backup.VolumeName == "data" {
					maps.Copy(backup.PersistentVolumeClaim.Annotations, map[string]string{
						uploads.AnnotationRequest: uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 1}),
						uploads.AnnotationImage:   "debian/13",
					})
				}
			}
		}
		w := newWorld(t, append(objects, vm, restoreOf("vm", func(s *v1beta1.VirtualMachineRestoreSpec) {
			s.VolumeRestorePolicy = &policy
		}))...)
		w.finished()
		name := map[bool]string{true: "data", false: "vm-data"}[policy == v1beta1.VolumeRestorePolicyInPlace]
		claim := w.claim(name)
		if claim == nil || claim.UID == "data" {
			t.Fatalf("%s: after %v: claim %s is %+v", policy, w.writes, name, claim)
		}
		_, requested := claim.Annotations[uploads.AnnotationRequest]
		_, known := claim.Annotations[uploads.AnnotationImage]
		if requested || !strings.Contains(uploads.Unusable(name, claim.Annotations), "is incomplete") ||
			known != (policy == v1beta1.VolumeRestorePolicyInPlace) {
			t.Errorf("%s: %v", policy, claim.Annotations)
		}
	}
}

// The events of a restore have KubeVirt's names.
func TestEvents(t *testing.T) {
	vm, objects := source(false)
	w := newWorld(t, append(objects, vm, restoreOf("vm", nil))...)
	lost := &snapshotsv1.VolumeSnapshot{}
	lost.Namespace, lost.Name = "ns", "vmsnapshot-1-volume-data"
	w.must(w.client.Delete(t.Context(), lost))
	w.run(100)
	w.run(100)
	if len(w.events) != 1 || !strings.HasPrefix(w.events[0], "Warning VirtualMachineRestoreError "+
		"VirtualMachineRestore encountered error missing volumeSnapshot vmsnapshot-1-volume-data") {
		t.Errorf("of what is stuck: %q", w.events)
	}
	vm, objects = source(false)
	w = newWorld(t, append(objects, vm, restoreOf("vm", nil))...)
	for range 3 {
		w.run(1000)
	}
	if !slices.Equal(w.events, []string{
		"Normal VirtualMachineRestoreComplete Successfully completed VirtualMachineRestore r",
	}) {
		t.Errorf("of what is done: %q", w.events)
	}
	guest := userOf("vmi", "vm", "root")
	vm, objects = source(false)
	w = newWorld(t, append(objects, vm, guest, restoreOf("vm", nil))...)
	w.run(100)
	w.run(100)
	if len(w.events) != 1 || !strings.HasPrefix(w.events[0], "Warning RestoreTargetNotReady ") {
		t.Errorf("of a target that runs: %q", w.events)
	}
}
