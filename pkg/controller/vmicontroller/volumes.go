package vmicontroller

import (
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/peripherals"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// networkDataSuffix distinguishes the mount of a cloud-init network data secret from that of the user data.
const networkDataSuffix = "-networkdata"

// podVolumes collects what a VMI's volumes need of its pod.
type podVolumes struct {
	volumes     []corev1.Volume
	mounts      []corev1.VolumeMount
	devices     []corev1.VolumeDevice
	pullSecrets []corev1.LocalObjectReference
	// shared are those that the guest has as file systems.
	shared []shared
}

// planVolumes makes the pod's volumes: the emptyDirs of the launcher, then one for each of the
// VMI's that needs one.
func planVolumes(vmi *v1.VirtualMachineInstance, facts Facts) podVolumes {
	var p podVolumes
	known := facts.Claims
	p.mount(names.VolumeRun, names.RunDir, false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	p.mount(names.VolumeDisks, names.DisksDir, false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	if filesystems.Any(&vmi.Spec.Domain) {
		p.mount(names.VolumeFilesystems, names.FilesystemsDir, false,
			corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	}
	if peripherals.TPM(&vmi.Spec.Domain.Devices) {
		// swtpm_setup insists on a temporary file in /tmp, whatever TMPDIR says.
		p.mount("tmp", "/tmp", false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	}
	for i := range vmi.Spec.Volumes {
		volume := &vmi.Spec.Volumes[i]
		switch {
		case hotplug.Is(volume): // an attachment pod's
		case filesystems.Of(&vmi.Spec, volume.Name) != nil:
			p.share(volume)
		case volume.ContainerDisk != nil:
			p.containerDisk(volume.Name, volume.ContainerDisk)
		case volume.PersistentVolumeClaim != nil, volume.DataVolume != nil:
			source := claims.Of(volume).PersistentVolumeClaimVolumeSource
			p.claim(volume.Name, source, source.ReadOnly, known)
		case volume.Ephemeral != nil && volume.Ephemeral.PersistentVolumeClaim != nil:
			p.claim(volume.Name, *volume.Ephemeral.PersistentVolumeClaim, true, known)
		case volume.CloudInitNoCloud != nil:
			source := volume.CloudInitNoCloud
			p.secret(volume.Name, source.UserDataSecretRef)
			p.secret(volume.Name+networkDataSuffix, source.NetworkDataSecretRef)
		case volume.CloudInitConfigDrive != nil:
			source := volume.CloudInitConfigDrive
			p.secret(volume.Name, source.UserDataSecretRef)
			p.secret(volume.Name+networkDataSuffix, source.NetworkDataSecretRef)
		case volume.Sysprep != nil:
			p.secret(volume.Name, volume.Sysprep.Secret)
			p.configMap(volume.Name, volume.Sysprep.ConfigMap)
		case volume.HostDisk != nil:
			p.hostDisk(volume.Name, volume.HostDisk)
		case volume.ConfigMap != nil, volume.Secret != nil, volume.DownwardAPI != nil, volume.ServiceAccount != nil:
			p.configuration(volume)
		}
	}
	if page := pageSize(vmi); page != "" {
		p.mount("hugepages", names.HugepagesDir, false, corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumHugePagesPrefix +
				corev1.StorageMedium(page)},
		})
	}
	p.kernelBoot(vmi)
	p.credentials(vmi)
	p.mountState(vmi, known, facts.StateClaim)
	p.mountMemory(vmi)
	return p
}

// mountMemory mounts the claim with the memory from which the guest is resumed. A launcher to which it moves later does
// not need it.
func (p *podVolumes) mountMemory(vmi *v1.VirtualMachineInstance) {
	mark, err := savedmemory.ResumeOf(vmi.Annotations)
	if err != nil || mark == nil || vmi.Status.Phase == v1.Running {
		return // The launcher says what is wrong with the annotation.
	}
	p.mount("memory", names.ResumeDir, false, corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: mark.Claim},
	})
}

func (p *podVolumes) containerDisk(name string, source *v1.ContainerDiskSource) {
	p.image(name, path.Join(names.ContainerDisksDir, name), source.Image, source.ImagePullPolicy,
		source.ImagePullSecret)
}

// image mounts a container image.
func (p *podVolumes) image(name, directory, image string, policy corev1.PullPolicy, pullSecret string) {
	p.mount(name, directory, true,
		corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: policy}})
	secret := corev1.LocalObjectReference{Name: pullSecret}
	if secret.Name != "" && !slices.Contains(p.pullSecrets, secret) {
		p.pullSecrets = append(p.pullSecrets, secret)
	}
}

func (p *podVolumes) claim(
	name string, source corev1.PersistentVolumeClaimVolumeSource, readOnly bool,
	byName map[string]*corev1.PersistentVolumeClaim,
) {
	if known := byName[source.ClaimName]; known != nil && isBlock(known) {
		p.devices = append(p.devices, corev1.VolumeDevice{
			Name:       p.add(name, corev1.VolumeSource{PersistentVolumeClaim: &source}),
			DevicePath: path.Join(names.BlockDevicesDir, name),
		})
		return
	}
	p.mount(name, path.Join(names.ClaimsDir, name), readOnly, corev1.VolumeSource{PersistentVolumeClaim: &source})
}

func (p *podVolumes) secret(name string, ref *corev1.LocalObjectReference) {
	if ref == nil {
		return
	}
	p.mount(name, path.Join(names.SecretsDir, name), true, corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: ref.Name},
	})
}

func (p *podVolumes) configMap(name string, ref *corev1.LocalObjectReference) {
	if ref == nil {
		return
	}
	p.mount(name, path.Join(names.SecretsDir, name), true, corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: *ref},
	})
}

func (p *podVolumes) mount(name, directory string, readOnly bool, source corev1.VolumeSource) {
	p.mounts = append(p.mounts, corev1.VolumeMount{
		Name: p.add(name, source), MountPath: directory, ReadOnly: readOnly,
	})
}

// add appends a volume and returns the name it got in the pod: the VMI's, unless that is too long
// or taken, by one of the launcher's own for example. Nothing but the mounts refers to it.
func (p *podVolumes) add(name string, source corev1.VolumeSource) string {
	taken := func(name string) bool {
		return slices.ContainsFunc(p.volumes, func(v corev1.Volume) bool { return v.Name == name })
	}
	if len(name) > 63 || taken(name) {
		name = "volume-" + strconv.Itoa(len(p.volumes))
		for taken(name) {
			name += "x"
		}
	}
	p.volumes = append(p.volumes, corev1.Volume{Name: name, VolumeSource: source})
	return name
}

func isBlock(claim *corev1.PersistentVolumeClaim) bool {
	return claims.IsBlock(claim.Spec.VolumeMode)
}

// bootClaimNames returns the names of the claims that the VMI needs to start.
func bootClaimNames(vmi *v1.VirtualMachineInstance) []string {
	boot := *vmi
	boot.Spec = *hotplug.Without(&vmi.Spec)
	return claimNames(&boot)
}

// claimNames returns the names of the PersistentVolumeClaims that the VMI uses, or has hotplugged disks copied from, in
// order, once each.
func claimNames(vmi *v1.VirtualMachineInstance) []string {
	var out []string
	for _, spec := range []*v1.VirtualMachineInstanceSpec{&vmi.Spec, &hotplug.AtSource(vmi).Spec} {
		for i := range spec.Volumes {
			if name := claims.Name(&spec.Volumes[i]); name != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}
