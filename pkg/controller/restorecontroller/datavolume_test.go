package restorecontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// A DataVolume of a restored claim has no source that its user may have no right to clone.
func TestWithoutForeignSource(t *testing.T) {
	pvc := func(namespace string) cdiv1.DataVolumeSpec {
		return cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{
			PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"},
		}}
	}
	snapshot := func(namespace string) cdiv1.DataVolumeSpec {
		return cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{
			Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: "golden"},
		}}
	}
	ref := cdiv1.DataVolumeSpec{SourceRef: &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Name: "golden"}}
	http := cdiv1.DataVolumeSpec{Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://x"}}}
	for name, tc := range map[string]struct {
		spec  cdiv1.DataVolumeSpec
		blank bool
	}{
		"claim of its namespace":              {pvc("ns"), false},
		"claim without a namespace":           {pvc(""), false},
		"claim of another":                    {pvc("images"), true},
		"snapshot of its namespace":           {snapshot("ns"), false},
		"snapshot of another":                 {snapshot("images"), true},
		"DataSource, which may lead anywhere": {ref, true},
		"HTTP":                                {http, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")},
				},
			}}
			dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: *tc.spec.DeepCopy()}
			dv.Spec.Storage = &cdiv1.StorageSpec{}
			withoutForeignSource(dv, claim)
			source := dv.Spec.Source
			if blank := dv.Spec.SourceRef == nil && source != nil && source.Blank != nil; blank != tc.blank {
				t.Fatalf("source %+v, ref %+v", dv.Spec.Source, dv.Spec.SourceRef)
			}
			if tc.blank && (dv.Spec.Source.PVC != nil || dv.Spec.Source.Snapshot != nil) {
				t.Errorf("source %+v has the other one still", dv.Spec.Source)
			}
			size := dv.Spec.Storage.Resources.Requests.Storage().String()
			if tc.blank && size != "3Gi" || !tc.blank && size != "0" {
				t.Errorf("size %s", size)
			}
		})
	}
	// A size of its own is kept.
	dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: pvc("images")}
	dv.Spec.PVC = &corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
	}}
	withoutForeignSource(dv, &corev1.PersistentVolumeClaim{})
	if got := dv.Spec.PVC.Resources.Requests.Storage().String(); got != "5Gi" {
		t.Errorf("size %s", got)
	}
}
