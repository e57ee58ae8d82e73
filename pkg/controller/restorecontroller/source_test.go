package restorecontroller

import (
	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// source is a VM of four cores with a claim, a DataVolume and state, which had one core when it was snapshotted.
func source(withCDI bool) (vm *v1.VirtualMachine, objects []client.Object) {
	spec := v1.VirtualMachineInstanceSpec{
		Domain: v1.DomainSpec{CPU: &v1.CPU{Cores: 4}, Devices: v1.Devices{TPM: &v1.TPMDevice{Persistent: new(true)}}},
		Volumes: []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
			{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}},
		},
	}
	vm = &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm-uid", Labels: map[string]string{"a": "b"}},
		Spec: v1.VirtualMachineSpec{
			RunStrategy:         new(v1.RunStrategyManual),
			Template:            &v1.VirtualMachineInstanceTemplateSpec{Spec: spec},
			DataVolumeTemplates: []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "root"}}},
		},
	}
	then := vm.DeepCopy()
	then.Spec.Template.Spec.Domain.CPU.Cores = 1
	then.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "small", RevisionName: "s-small-1"}
	content := &v1beta1.VirtualMachineSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "content"},
		Status:     &v1beta1.VirtualMachineSnapshotContentStatus{ReadyToUse: new(true)},
	}
	content.Spec.Source.VirtualMachine = &v1beta1.VirtualMachine{ObjectMeta: then.ObjectMeta, Spec: then.Spec}
	for volume, claim := range map[string]string{
		"data":                 "data",
		"root":                 "root",
		vmstate.Prefix + "-vm": vmstate.Prefix + "-vm-xxxxx",
	} {
		one := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: claim, UID: types.UID(claim), Labels: map[string]string{"disk": volume},
				Annotations:     map[string]string{"pv.kubernetes.io/bind-completed": "yes", "note": volume},
				OwnerReferences: []metav1.OwnerReference{ownerOf(vm)},
			},
			Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		}
		if isState(volume) {
			one.Labels[vmstate.Prefix] = "vm"
		}
		if claim == "root" && withCDI {
			dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "root", UID: "dv"}}
			dv.Status.Phase = cdiv1.Succeeded
			one.OwnerReferences = []metav1.OwnerReference{
				*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume")),
			}
			objects = append(objects, dv)
		}
		name := "vmsnapshot-1-volume-" + volume
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, v1beta1.VolumeBackup{
			VolumeName: volume, VolumeSnapshotName: &name,
			PersistentVolumeClaim: v1beta1.PersistentVolumeClaim{
				ObjectMeta: *one.ObjectMeta.DeepCopy(), Spec: one.Spec,
			},
		})
		objects = append(objects, one, &snapshotsv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Status: &snapshotsv1.VolumeSnapshotStatus{
				ReadyToUse: new(true), RestoreSize: new(resource.MustParse("2Gi")),
			},
		})
	}
	snapshot := &v1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"},
		Status: &v1beta1.VirtualMachineSnapshotStatus{
			Phase: v1beta1.Succeeded, ReadyToUse: new(true), SourceUID: &vm.UID,
			VirtualMachineSnapshotContentName: new("content"),
		},
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s-small-1"},
		Data:       runtime.RawExtension{Raw: []byte(`{"spec":{}}`)},
	}
	return vm, append(objects, snapshot, content, revision)
}

func restoreOf(target string, change func(*v1beta1.VirtualMachineRestoreSpec)) *v1beta1.VirtualMachineRestore {
	r := &v1beta1.VirtualMachineRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "r-uid", CreationTimestamp: metav1.NewTime(now)},
		Spec: v1beta1.VirtualMachineRestoreSpec{
			Target: corev1.TypedLocalObjectReference{
				APIGroup: new("kubevirt.io"), Kind: "VirtualMachine", Name: target,
			},
			VirtualMachineSnapshotName: "s",
		},
	}
	if change != nil {
		change(&r.Spec)
	}
	return r
}

func inPlace(s *v1beta1.VirtualMachineRestoreSpec) {
	s.VolumeRestorePolicy = new(v1beta1.VolumeRestorePolicyInPlace)
}
