package vmicontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
)

// virtiofsd is in the launcher's image.
const virtiofsd = "/usr/libexec/virtiofsd"

// shared is a volume that the guest has as a file system.
type shared struct {
	// name is the file system's, volume that of the volume in the pod.
	name, volume string
	readOnly     bool
	// claim says that it is a claim's, which other pods may have mounted, too.
	claim bool
}

// share makes a volume that is mounted in virtiofsd's container only.
func (p *podVolumes) share(volume *v1.Volume) {
	s := shared{name: volume.Name}
	var source corev1.VolumeSource
	switch {
	case claims.Storage(volume):
		of := claims.Of(volume).PersistentVolumeClaimVolumeSource
		source.PersistentVolumeClaim, s.readOnly, s.claim = &of, of.ReadOnly, true
	case filesystems.Configuration(volume):
		source, s.readOnly = configurationSource(volume), true
	default:
		return
	}
	s.volume = p.add(volume.Name, source)
	p.shared = append(p.shared, s)
}

// deviceShared returns which claim that the guest is to have as a file system is a device, or "" if none is.
func deviceShared(view View) string {
	for i := range view.VMI.Spec.Volumes {
		volume := &view.VMI.Spec.Volumes[i]
		of := view.Claims[claims.Name(volume)]
		if filesystems.Of(&view.VMI.Spec, volume.Name) != nil && of != nil && isBlock(of) {
			return fmt.Sprintf("filesystem %q: PersistentVolumeClaim %s has volumeMode Block, a device without a "+
				"file system; use a claim of mode Filesystem, or a disk", volume.Name, of.Name)
		}
	}
	return ""
}

// virtiofsdContainers returns the containers in which virtiofsd serves what the guest shares, one each, so that a guest
// that takes over a virtiofsd has no more than what that serves. They are init containers that go on beside the
// launcher: there before it, and no reason for the pod to live on after it.
func virtiofsdContainers(all []shared, debug bool, compute *corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, s := range all {
		args := virtiofsdArgs(s)
		if debug {
			args = append(args, "--log-level=debug")
		}
		out = append(out, corev1.Container{
			Name:            filesystems.Container(s.name),
			Image:           compute.Image,
			ImagePullPolicy: compute.ImagePullPolicy,
			Command:         []string{virtiofsd},
			Args:            args,
			RestartPolicy:   new(corev1.ContainerRestartPolicyAlways),
			Resources:       virtiofsdResources(&compute.Resources),
			VolumeMounts: []corev1.VolumeMount{
				{Name: names.VolumeFilesystems, MountPath: names.FilesystemsDir + "/" + s.name, SubPath: s.name},
				{Name: s.volume, MountPath: names.SharedDir, ReadOnly: s.readOnly},
			},
			SecurityContext:          compute.SecurityContext.DeepCopy(),
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		})
	}
	return out
}

// virtiofsdArgs returns arguments with which virtiofsd runs without any privilege. All files belong to its user, 107,
// whom the guest sees as root; so do files that the guest's other users make, since an unprivileged virtiofsd can be
// nobody else. A guest that moves takes its open files along by their paths; a file that is missing on the other node
// fails in the guest, not the migration.
func virtiofsdArgs(s shared) []string {
	args := []string{
		"--socket-path=" + filesystems.Socket(s.name),
		"--shared-dir=" + names.SharedDir,
		"--sandbox=none",
		"--cache=auto",
		"--translate-uid=map:0:107:1",
		"--translate-uid=squash-guest:1:107:4294967294",
		"--translate-gid=map:0:107:1",
		"--translate-gid=squash-guest:1:107:4294967294",
		"--migration-mode=find-paths",
		"--migration-on-error=guest-error",
	}
	if s.readOnly {
		args = append(args, "--readonly")
	}
	if s.claim { // the same file system on both nodes
		args = append(args, "--migration-verify-handles")
	}
	return args
}

// virtiofsdResources returns its requests: little. Where the launcher has limits, virtiofsd has them too, for a quota
// or the QoS class Guaranteed.
func virtiofsdResources(compute *corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
	}}
	limit := func(name corev1.ResourceName, most string) {
		if _, limited := compute.Limits[name]; limited {
			if out.Limits == nil {
				out.Limits = corev1.ResourceList{}
			}
			out.Limits[name] = resource.MustParse(most)
		}
	}
	if guaranteed(compute) {
		limit(corev1.ResourceCPU, "100m")
		limit(corev1.ResourceMemory, "80M")
		out.Requests = out.Limits.DeepCopy()
		return out
	}
	limit(corev1.ResourceCPU, "1")
	limit(corev1.ResourceMemory, "80M")
	return out
}

// guaranteed reports a container that makes its pod Guaranteed.
func guaranteed(r *corev1.ResourceRequirements) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, requested := r.Requests[name]
		limit, limited := r.Limits[name]
		if !limited || requested && request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}
