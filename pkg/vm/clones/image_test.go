package clones

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// TestImageClaimLabels: a copy of an image in another namespace has the image's instance type and preference where they
// are the cluster's, none of the image's namespace, and is no image itself.
func TestImageClaimLabels(t *testing.T) {
	const small, linux = "u1.small", "linux"
	image := map[string]string{
		uploads.LabelImage: "debian", uploads.LabelImageVersion: "13", uploads.LabelImageUser: "debian", "team": "a",
	}
	for name, tc := range map[string]struct{ labels, want map[string]string }{
		"an image alone": {nil, nil},
		"the cluster's, without a kind": {
			map[string]string{uploads.LabelInstancetype: small, uploads.LabelPreference: linux},
			map[string]string{uploads.LabelInstancetype: small, uploads.LabelPreference: linux},
		},
		"the cluster's": {
			map[string]string{
				uploads.LabelInstancetype: small, uploads.LabelInstancetypeKind: "VirtualMachineClusterInstancetype",
				uploads.LabelPreference: linux, uploads.LabelPreferenceKind: "virtualmachineclusterpreference",
			},
			map[string]string{
				uploads.LabelInstancetype: small, uploads.LabelInstancetypeKind: "VirtualMachineClusterInstancetype",
				uploads.LabelPreference: linux, uploads.LabelPreferenceKind: "virtualmachineclusterpreference",
			},
		},
		"the namespace's": {
			map[string]string{
				uploads.LabelInstancetype: small, uploads.LabelInstancetypeKind: "VirtualMachineInstancetype",
				uploads.LabelPreference: linux, uploads.LabelPreferenceKind: "virtualmachinepreference",
			},
			nil,
		},
		"one of either": {
			map[string]string{
				uploads.LabelInstancetype: small, uploads.LabelInstancetypeKind: "VirtualMachineInstancetype",
				uploads.LabelPreference: linux,
			},
			map[string]string{uploads.LabelPreference: linux},
		},
	} {
		source := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "src", Name: "debian-13", Labels: maps.Clone(image)},
			Status: corev1.PersistentVolumeClaimStatus{
				Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}
		maps.Copy(source.Labels, tc.labels)
		clone := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: "c-uid"}}
		clone.Spec.Target = &corev1.TypedLocalObjectReference{Kind: KindClaim, Name: "copy"}
		claim, err := ImageClaim(clone, source)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := map[string]string{UIDLabel: "c-uid"}
		maps.Copy(want, tc.want)
		if !maps.Equal(claim.Labels, want) {
			t.Errorf("%s: labels %v, want %v", name, claim.Labels, want)
		}
	}
}
