package clonecontroller

import (
	"context"
	"slices"
	"strings"
	"testing"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// oneClass has a class of snapshots for the StorageClass fast.
type oneClass struct{}

func (oneClass) Settled(context.Context) (bool, error) { return true, nil }

func (oneClass) ReadClasses(context.Context) (snapshots.Classes, error) {
	return snapshots.Classes{
		Provisioners: map[string]string{"fast": "csi.example", "plain": "other.example"},
		Snapshots:    []snapshots.Class{{Name: "snap", Driver: "csi.example"}},
	}, nil
}

// takeClaims plays the CSI driver for the VolumeSnapshots of claims.
func (w *world) takeClaims() {
	w.Helper()
	for _, o := range w.volumeSnapshots() {
		if o.Spec.Source.PersistentVolumeClaimName == nil || o.Status != nil {
			continue
		}
		bound := &snapshotsv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: "bound-" + string(o.UID)}}
		bound.Spec.Driver, bound.Spec.DeletionPolicy = "csi.example", snapshotsv1.VolumeSnapshotContentDelete
		bound.Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: o.Namespace, Name: o.Name, UID: o.UID}
		bound.Status = &snapshotsv1.VolumeSnapshotContentStatus{SnapshotHandle: new("handle")}
		w.must(w.client.Create(w.Context(), bound))
		o.Status = &snapshotsv1.VolumeSnapshotStatus{
			ReadyToUse: new(true), BoundVolumeSnapshotContentName: &bound.Name, RestoreSize: w.restoreSize,
		}
		w.must(w.client.Status().Update(w.Context(), &o))
	}
}

// bindClaims plays the CSI driver for copies of images, whose VolumeSnapshot must be there.
func (w *world) bindClaims() {
	w.Helper()
	for _, claim := range w.claims() {
		if claim.Status.Phase != "" || claim.Annotations[clones.CopiedAnnotation] == "" || w.late {
			continue
		}
		for _, o := range w.volumeSnapshots() {
			if from := claim.Spec.DataSource; from != nil && o.Namespace == claim.Namespace && o.Name == from.Name &&
				o.Status != nil && *from.APIGroup == snapshotsv1.GroupName {
				claim.Status.Phase = corev1.ClaimBound
				w.must(w.client.Status().Update(w.Context(), &claim))
			}
		}
	}
}

// imaged is a world with an image, claim src/debian-13, and a clone of it to claim ns/copy.
func imaged(
	t *testing.T, change func(*corev1.PersistentVolumeClaim, *clonev1beta1.VirtualMachineClone), more ...client.Object,
) *world {
	t.Helper()
	image := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "src", Name: "debian-13", UID: "image-uid", Labels: map[string]string{
			uploads.LabelImage: "debian", uploads.LabelImageVersion: "13", uploads.LabelInstancetype: "u1.small",
		},
	}}
	image.Spec.StorageClassName, image.Spec.VolumeMode = new("fast"), new(corev1.PersistentVolumeBlock)
	image.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	image.Status.Phase = corev1.ClaimBound
	image.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "c", UID: "c-uid",
		Annotations: map[string]string{clones.NamespaceAnnotation: "src", clones.UIDAnnotation: "image-uid"},
	}}
	c.Spec.Source = &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: "debian-13"}
	c.Spec.Target = &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: "copy"}
	if change != nil {
		change(image, c)
	}
	return newWorld(t, append(more, image, c)...)
}

// copyOf is the copy of the image, nil when there is none.
func (w *world) copyOf() *corev1.PersistentVolumeClaim {
	w.Helper()
	for _, claim := range w.claims() {
		if claim.Namespace == "ns" && claim.Labels[clones.UIDLabel] == "c-uid" {
			return &claim
		}
	}
	return nil
}

// checkImageRest finds what a clone of an image has left.
func (w *world) checkImageRest(n int) {
	w.Helper()
	for _, o := range w.volumeSnapshots() {
		w.Fatalf("after %d writes VolumeSnapshot %s/%s is left of %v", n, o.Namespace, o.Name, w.writes)
	}
	w.checkCopies(n)
}

// An image is copied by a clone that is killed after each of its writes, and nothing temporary is left; a clone that is
// deleted after any of its writes leaves a claim that is filled, or none.
func TestImageKills(t *testing.T) {
	w := imaged(t, func(_ *corev1.PersistentVolumeClaim, c *clonev1beta1.VirtualMachineClone) {
		c.Annotations[clones.SizeAnnotation] = "6Gi"
	})
	c, copied := w.finish(), w.copyOf()
	if c == nil || c.Status.Phase != clonev1beta1.Succeeded || c.Status.SnapshotName != nil ||
		c.Status.TargetName == nil || *c.Status.TargetName != "copy" || len(c.Finalizers) > 0 {
		t.Fatalf("after %v: %+v", w.writes, c)
	}
	w.checkImageRest(-1)
	size := copied.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.String() != "6Gi" || *copied.Spec.StorageClassName != "fast" ||
		*copied.Spec.VolumeMode != corev1.PersistentVolumeBlock || copied.Labels[uploads.LabelImage] != "" ||
		copied.Labels[uploads.LabelInstancetype] != "u1.small" || copied.Status.Phase != corev1.ClaimBound {
		t.Errorf("the copy is %+v", copied)
	}
	for n := 1; n < len(w.writes); n++ {
		w := imaged(t, nil)
		w.run(n)
		w.must(client.IgnoreNotFound(w.client.Delete(w.Context(), w.clone())))
		w.settle()
		w.run(100)
		w.settle()
		if w.clone() != nil {
			t.Fatalf("deleted after %d writes, it is there: %+v", n, w.clone())
		}
		w.checkImageRest(n)
		if made := w.copyOf(); made != nil && made.Status.Phase != corev1.ClaimBound {
			t.Errorf("deleted after %d writes, the copy is not filled: %+v", n, made)
		}
	}
	// A clone whose claim is gone has nothing to say any more.
	w.must(w.client.Delete(t.Context(), copied))
	if c := w.finish(); c != nil {
		t.Errorf("without its claim it is %+v", c)
	}
}

// A claim that is bound late keeps the clone until then, even a deleted one.
func TestImageLate(t *testing.T) {
	w := imaged(t, nil)
	w.late = true
	c := w.finish()
	if c.Status.Phase != clonev1beta1.Succeeded || c.Status.SnapshotName == nil || len(w.volumeSnapshots()) != 2 {
		t.Fatalf("after %v: %+v", w.writes, c.Status)
	}
	w.must(w.client.Delete(t.Context(), c))
	if c = w.finish(); c == nil || !strings.Contains(c.Status.Conditions[0].Message, "once claim copy is bound") {
		t.Fatalf("deleted: %+v", c)
	}
	w.late = false
	w.settle()
	if c = w.finish(); c != nil || w.copyOf().Status.Phase != corev1.ClaimBound {
		t.Errorf("bound: %+v, %+v", c, w.copyOf())
	}
	w.checkImageRest(-1)

	// What fills it is taken away: it says so. The garbage collector takes nothing of it.
	for _, namespace := range []string{"src", "ns"} {
		w = imaged(t, nil)
		w.late = true
		w.finish()
		for _, o := range w.volumeSnapshots() {
			if len(o.OwnerReferences) > 0 {
				t.Errorf("%s/%s goes with %v", o.Namespace, o.Name, o.OwnerReferences)
			}
			if o.Namespace == namespace {
				w.must(w.client.Delete(t.Context(), &o))
			}
		}
		c = w.finish()
		if said := c.Status.Conditions[0].Message; !strings.HasPrefix(said,
			"claim copy cannot be filled: VolumeSnapshot "+namespace+"/") {
			t.Errorf("it says %q", said)
		}
	}
}

// A VolumeSnapshot names its claim by name alone: when that is another claim by the time it is ready, nothing is
// copied.
func TestImageMadeAnew(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"another":  func(i *corev1.PersistentVolumeClaim) { i.UID = "another" },
		"none":     nil,
		"no image": func(i *corev1.PersistentVolumeClaim) { i.Labels = nil },
	} {
		whole := imaged(t, nil)
		whole.finish()
		for n := 1; n < len(whole.writes); n++ {
			w := imaged(t, nil)
			w.run(n)
			if w.copyOf() != nil {
				break // it is filled by what was ready
			}
			image := &corev1.PersistentVolumeClaim{}
			key := types.NamespacedName{Namespace: "src", Name: "debian-13"}
			w.must(w.client.Get(w.Context(), key, image))
			w.must(w.client.Delete(w.Context(), image))
			if change != nil {
				image.ResourceVersion = ""
				change(image)
				w.must(w.client.Create(w.Context(), image))
			}
			if c := w.finish(); c.Status.Phase != clonev1beta1.Failed || w.copyOf() != nil {
				t.Errorf("%s, after %d writes: %s, %+v", name, n, c.Status.Phase, w.copyOf())
			}
			w.checkImageRest(n)
		}
	}
}

// The copy is as large as its VolumeSnapshot asks for.
func TestImageRestoreSize(t *testing.T) {
	w := imaged(t, nil)
	w.restoreSize = new(resource.MustParse("7Gi"))
	w.finish()
	if size := w.copyOf().Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "7Gi" {
		t.Errorf("the copy asks for %s", size.String())
	}
}

// A copy whose label somebody has taken is the clone's still, and its VolumeSnapshots stay until it is filled.
func TestImageWithoutLabel(t *testing.T) {
	w := imaged(t, nil)
	w.late = true
	w.finish()
	copied := w.copyOf()
	copied.Labels = nil
	w.must(w.client.Update(t.Context(), copied))
	if c := w.finish(); c == nil || c.Status.SnapshotName == nil || len(w.volumeSnapshots()) != 2 {
		t.Errorf("%+v, %d VolumeSnapshots", c, len(w.volumeSnapshots()))
	}
}

// An image that nothing snapshots yet waits, and says for what.
func TestImageUnclassed(t *testing.T) {
	w := imaged(t, func(i *corev1.PersistentVolumeClaim, _ *clonev1beta1.VirtualMachineClone) {
		i.Spec.StorageClassName = new("plain")
	})
	c := w.finish()
	if said := c.Status.Conditions[0].Message; c.Status.Phase != clonev1beta1.SnapshotInProgress ||
		!strings.HasPrefix(said, "claim src/debian-13 cannot be snapshotted: No VolumeSnapshotClass") {
		t.Errorf("%s, it says %q", c.Status.Phase, said)
	}
	w.must(w.client.Delete(t.Context(), c))
	if c = w.finish(); c != nil {
		t.Errorf("deleted: %+v", c)
	}
}

// What is not an image, or not the one that was admitted, is not copied; nor is anything taken that others have made
// under the names of the clone's parts.
func TestImageFails(t *testing.T) {
	const named = "clone-c-uid-0"
	type change = func(*corev1.PersistentVolumeClaim, *clonev1beta1.VirtualMachineClone)
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "foreign"}
	}
	forged := meta("src", "clone-image-c-uid")
	forged.Labels = map[string]string{clones.UIDLabel: "c-uid"}
	for name, tc := range map[string]struct {
		change  change
		foreign client.Object
		says    string
	}{
		"not admitted": {func(_ *corev1.PersistentVolumeClaim, c *clonev1beta1.VirtualMachineClone) {
			delete(c.Annotations, clones.UIDAnnotation)
		}, nil, "virt-api has not admitted the clone of claim src/debian-13"},
		"made anew": {func(i *corev1.PersistentVolumeClaim, _ *clonev1beta1.VirtualMachineClone) {
			i.UID = "another"
		}, nil, "claim src/debian-13 is not the one that the clone was made for"},
		"no target": {func(_ *corev1.PersistentVolumeClaim, c *clonev1beta1.VirtualMachineClone) {
			c.Spec.Target = nil
		}, nil, "the clone has no spec.target"},
		"not there": {func(_ *corev1.PersistentVolumeClaim, c *clonev1beta1.VirtualMachineClone) {
			c.Spec.Source.Name = "none"
		}, nil, "claim src/none does not exist"},
		"data": {func(i *corev1.PersistentVolumeClaim, _ *clonev1beta1.VirtualMachineClone) {
			i.Labels = nil
		}, nil, "claim src/debian-13 has no image"},
		"being deleted": {func(i *corev1.PersistentVolumeClaim, _ *clonev1beta1.VirtualMachineClone) {
			i.DeletionTimestamp, i.Finalizers = new(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
		}, nil, "claim src/debian-13 is being deleted"},
		"being uploaded": {func(i *corev1.PersistentVolumeClaim, _ *clonev1beta1.VirtualMachineClone) {
			i.Annotations = map[string]string{
				uploads.AnnotationRequest: uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 1}),
			}
		}, nil, "claim src/debian-13 cannot be copied: an image is being uploaded"},
		"too small": {func(_ *corev1.PersistentVolumeClaim, c *clonev1beta1.VirtualMachineClone) {
			c.Annotations[clones.SizeAnnotation] = "1Gi"
		}, nil, "annotation virtkit.io/size: the image has 5Gi"},
		"a claim": {nil, &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "copy")}, "claim ns/copy exists"},
		"a VolumeSnapshot": {
			nil, &snapshotsv1.VolumeSnapshot{ObjectMeta: meta("ns", named)}, "VolumeSnapshot ns/" + named + " exists",
		},
		"a VolumeSnapshotContent": {
			nil, &snapshotsv1.VolumeSnapshotContent{ObjectMeta: meta("", named)},
			"VolumeSnapshotContent " + named + " exists",
		},
		"a VolumeSnapshot there": {
			nil, &snapshotsv1.VolumeSnapshot{ObjectMeta: meta("src", "clone-image-c-uid")},
			"VolumeSnapshot src/clone-image-c-uid exists",
		},
		"one of another claim": {nil, &snapshotsv1.VolumeSnapshot{
			ObjectMeta: forged, Spec: snapshotsv1.VolumeSnapshotSpec{
				Source: snapshotsv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("secret")},
			},
		}, "VolumeSnapshot src/clone-image-c-uid exists"},
	} {
		var more []client.Object
		if tc.foreign != nil {
			more = append(more, tc.foreign)
		}
		w := imaged(t, tc.change, more...)
		c := w.finish()
		if c.Status.Phase != clonev1beta1.Failed || !strings.HasPrefix(c.Status.Conditions[0].Message, tc.says) {
			t.Errorf("%s: after %v it is %s and says %+v, want %q", name, w.writes, c.Status.Phase, c.Status.Conditions,
				tc.says)
		}
		if slices.Contains(c.Finalizers, clones.Finalizer) || w.copyOf() != nil {
			t.Errorf("%s: it has finalizers %v, and there is %+v", name, c.Finalizers, w.copyOf())
		}
		if tc.foreign == nil {
			w.checkImageRest(-1)
		} else if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(tc.foreign), tc.foreign); err != nil {
			t.Errorf("%s: what is not the clone's is gone: %v", name, err)
		}
	}
}
