//go:build integration

package controller

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// TestImageAcross runs alone: for the others there are no VolumeSnapshots. It copies an image of another namespace, and
// takes such a copy back while it is under way.
func TestImageAcross(tt *testing.T) {
	from := newSerialTest(tt)
	from.storageClass("csi", "csi.example")
	from.installSnapshots()
	from.boundClaim("debian-13", "csi")
	image := &corev1.PersistentVolumeClaim{}
	from.must(cluster.Client.Get(from.ctx, from.key("debian-13"), image))
	before := image.DeepCopy()
	image.Labels[uploads.LabelImage], image.Labels[uploads.LabelImageVersion] = "debian", "13"
	from.must(cluster.Client.Patch(from.ctx, image, client.MergeFrom(before)))
	to := &test{T: tt, ctx: from.ctx, namespace: from.namespace + "-target"}
	to.must(cluster.CreateNamespace(to.ctx, to.namespace))

	c := to.cloneImage("web-disk", image)
	origin := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: from.namespace, Name: clones.OriginName(c)},
	}
	from.waitThere(origin)
	from.bindCut(origin, "image-1")
	copied, binding := to.copied(c)
	if *binding.Spec.Source.SnapshotHandle != "image-1" || binding.Spec.VolumeSnapshotRef.UID != copied.UID {
		tt.Errorf("what is bound to the copy is %+v", binding.Spec)
	}
	to.cut(copied, "")
	made := to.bind("web-disk")
	if made.Spec.DataSource == nil || made.Spec.DataSource.Name != copied.Name ||
		made.Labels[uploads.LabelImage] != "" {
		tt.Errorf("the claim is %+v, labels %v", made.Spec, made.Labels)
	}
	to.waitClone(c, "succeeded", func(s *clonev1beta1.VirtualMachineCloneStatus) bool {
		return s.Phase == clonev1beta1.Succeeded && s.SnapshotName == nil
	})
	for _, part := range []client.Object{origin, copied, binding} {
		to.waitGone(part)
	}
	to.quiet()
	to.must(cluster.Client.Delete(to.ctx, made))

	// One that is deleted amid it leaves nothing in either namespace.
	c = to.cloneImage("cancelled", image)
	origin = &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: from.namespace, Name: clones.OriginName(c)},
	}
	from.waitThere(origin)
	from.bindCut(origin, "image-2")
	copied, binding = to.copied(c)
	to.must(cluster.Client.Delete(to.ctx, c))
	for _, part := range []client.Object{c, origin, copied, binding} {
		to.waitGone(part)
	}
	to.quiet()
}

// cloneImage makes a clone of an image, as virt-api admits it, to a claim of its name.
func (t *test) cloneImage(name string, image *corev1.PersistentVolumeClaim) *clonev1beta1.VirtualMachineClone {
	t.Helper()
	c := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{
		Namespace: t.namespace, Name: name, Annotations: map[string]string{
			clones.NamespaceAnnotation: image.Namespace, clones.UIDAnnotation: string(image.UID),
		},
	}}
	c.Spec.Source = &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: image.Name}
	c.Spec.Target = &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: name}
	t.must(cluster.Client.Create(t.ctx, c))
	return c
}
