// Package guests has what end-to-end tests and `make chaos` share: the VM under test, and what may be left of one on a
// node.
package guests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/tests/instance"
)

// NewVM is the smallest VM that boots the tiny guest; change adds to it.
func NewVM(
	ns, name string, strategy v1.VirtualMachineRunStrategy, change ...func(*v1.VirtualMachine),
) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template: &v1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec: v1.VirtualMachineInstanceSpec{
					TerminationGracePeriodSeconds: new(int64(20)),
					Domain: v1.DomainSpec{
						Memory: &v1.Memory{Guest: new(resource.MustParse("128Mi"))},
						Devices: v1.Devices{
							Disks: []v1.Disk{
								{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
							},
							Interfaces: []v1.Interface{{
								Name: "default",
								InterfaceBindingMethod: v1.InterfaceBindingMethod{
									Masquerade: &v1.InterfaceMasquerade{},
								},
							}},
						},
					},
					Networks: []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}},
					Volumes: []v1.Volume{{
						Name: "root",
						VolumeSource: v1.VolumeSource{
							ContainerDisk: &v1.ContainerDiskSource{Image: instance.TinyDisk()},
						},
					}},
				},
			},
		},
	}
	for _, f := range change {
		f(vm)
	}
	return vm
}

// WithUserData adds a NoCloud disk.
func WithUserData(userData string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
			v1.Disk{Name: "init", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
		spec.Volumes = append(spec.Volumes, v1.Volume{
			Name:         "init",
			VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: userData}},
		})
	}
}

// WithClaim adds a disk from a PersistentVolumeClaim.
func WithClaim(claim string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
			Name: "data", Serial: "DATA",
			DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		})
		spec.Volumes = append(spec.Volumes, v1.Volume{
			Name: "data",
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}},
		})
	}
}

// NewClaim is a claim of 64 MiB that VMs on both nodes may have.
func NewClaim(ns, name string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			VolumeMode:  &mode,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
			},
		},
	}
}
