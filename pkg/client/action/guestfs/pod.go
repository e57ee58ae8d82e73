// Package guestfs runs programs of libguestfs at a claim: a pod with the claim is made with the user's own rights, the
// programs run in it over streams of the API server, and the pod is deleted. It refuses a claim that a guest uses.
//
// The pod ends by itself when nobody holds it any more: its first process reads the lease, a stream on which the client
// sends a line now and then, and ends when the stream does, or is silent for too long. Everything else in the pod runs
// by exec, and ends with that process.
package guestfs

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

const (
	// namePrefix begins the name of a claim's pod, as KubeVirt's. A claim has one at most.
	namePrefix = "libguestfs-tools-"
	// container is the pod's, as KubeVirt's.
	container = "libguestfs"
	// annotationSession tells the pods of two sessions apart whose UID is not known yet.
	annotationSession = "guestfs.virtkit.io/session"
	// maxName is the most that a pod's name may have, bytes.
	maxName = 253

	// Device and Directory are where the claim is in the pod, as KubeVirt has them; a disk in the directory is
	// disk.img.
	Device    = "/dev/vda"
	Directory = "/disk"

	appliance = "/usr/local/lib/guestfs/appliance"
	scratch   = "/tmp/guestfs"
	home      = "/home/guestfs"

	volumeClaim, volumeScratch, volumeHome = "volume", "libguestfs-tmp-dir", "guestfs"
	volumeTemporary, volumeVariable        = "tmp", "var-tmp"

	// lifetime is the longest that a session may take, seconds.
	lifetime = 24 * 60 * 60
	// grace is the pod's termination grace period, seconds: QEMU, which the tools run, writes what it has.
	grace = 30
	// groupDisk is the group that Linux distributions give block devices; Debian's and Red Hat's number of it.
	groupDisk = 6
)

// QEMU has the appliance's memory, 1.25 GiB unless a tool takes more, of which a session touches some 500 MiB; its own
// and the tools' come on top.
var resources = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("640Mi"),
	},
	Limits: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("3Gi"),
	},
}

// User is who the pod's processes run as. The zero User is the launcher's, whose the files of disks are.
type User struct {
	Root bool
	// UID, GID and FSGroup are nil for the default; GID also for the image's.
	UID, GID, FSGroup *int64
}

// Plan is what a pod is made from.
type Plan struct {
	Claim      *corev1.PersistentVolumeClaim
	Image      string
	PullPolicy corev1.PullPolicy
	KVM        bool
	User       User
	// VM, which may be nil, is a VM that says where the pod may run.
	VM *v1.VirtualMachine
}

// PodName returns the name of a claim's pod.
func PodName(claim string) string { return names.Shorten(namePrefix+claim, maxName) }

// lease is the program of the pod's first process: it reads the lease and then ends all others, with some seconds for
// QEMU to write what it has. The first line may take longer, since the client has to notice that the pod runs.
const lease = `end() {
	trap '' TERM
	kill -HUP -1
	kill -TERM -1
	for ((i = 0; i < 80; i++)); do
		kill -0 -1 || break
		sleep 0.25
	done
	exit 0
} 2>/dev/null
trap end TERM
patience=300
while IFS= read -r -t "$patience" _; do patience=` + leasePatience + `; done
end
`

// leasePatience is how long the lease may be silent, seconds.
const leasePatience = "90"

// Pod returns the pod of a plan. But for root it passes Pod Security `restricted`. It has no service account's token.
func Pod(p Plan) *corev1.Pod {
	environment := []corev1.EnvVar{
		{Name: "LIBGUESTFS_BACKEND", Value: "direct"},
		{Name: "LIBGUESTFS_PATH", Value: appliance},
		{Name: "LIBGUESTFS_TMPDIR", Value: scratch},
		{Name: "LIBGUESTFS_CACHEDIR", Value: scratch},
		{Name: "HOME", Value: home},
	}
	needs := *resources.DeepCopy()
	if p.KVM {
		needs.Limits[names.ResourceKVM] = resource.MustParse("1")
		needs.Requests[names.ResourceKVM] = resource.MustParse("1")
	} else {
		environment = append(environment, corev1.EnvVar{Name: "LIBGUESTFS_BACKEND_SETTINGS", Value: "force_tcg"})
	}
	c := corev1.Container{
		Name: container, Image: p.Image, ImagePullPolicy: p.PullPolicy,
		Command: []string{"/bin/bash", "-c", lease},
		Env:     environment, Resources: needs, Stdin: true, StdinOnce: true,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeTemporary, MountPath: "/tmp"},
			{Name: volumeVariable, MountPath: "/var/tmp"},
			{Name: volumeScratch, MountPath: scratch},
			{Name: volumeHome, MountPath: home},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			ReadOnlyRootFilesystem:   new(true),
		},
	}
	if Block(p.Claim) {
		c.VolumeDevices = []corev1.VolumeDevice{{Name: volumeClaim, DevicePath: Device}}
		c.WorkingDir = home
	} else {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeClaim, MountPath: Directory})
		c.WorkingDir = Directory
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: PodName(p.Claim.Name), Namespace: p.Claim.Namespace,
			Labels: map[string]string{names.LabelComponent: names.VirtGuestfs},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: p.Claim.Name, UID: p.Claim.UID,
			}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{c},
			Volumes: []corev1.Volume{
				{Name: volumeClaim, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Claim.Name},
				}},
				empty(volumeTemporary), empty(volumeVariable), empty(volumeScratch), empty(volumeHome),
			},
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         new(int64(lifetime)),
			TerminationGracePeriodSeconds: new(int64(grace)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext:               p.User.context(Block(p.Claim)),
		},
	}
	if p.VM != nil && p.VM.Spec.Template != nil {
		guest := &p.VM.Spec.Template.Spec
		pod.Spec.Tolerations, pod.Spec.Affinity = guest.Tolerations, guest.Affinity
		pod.Spec.NodeSelector = maps.Clone(guest.NodeSelector)
	}
	return pod
}

func empty(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// Block reports a claim that is a device rather than a file system.
func Block(claim *corev1.PersistentVolumeClaim) bool { return claims.IsBlock(claim.Spec.VolumeMode) }

// context returns the security context of a pod that runs as the user. Nothing but a group gives a process that is not
// root the device of a claim.
func (u User) context(block bool) *corev1.PodSecurityContext {
	out := &corev1.PodSecurityContext{
		RunAsNonRoot:        new(!u.Root),
		RunAsUser:           u.UID,
		RunAsGroup:          u.GID,
		FSGroup:             u.FSGroup,
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	id := int64(names.User)
	if u.Root {
		id = 0
	}
	if out.RunAsUser == nil {
		out.RunAsUser, out.RunAsGroup = new(id), new(id)
	}
	if out.FSGroup == nil {
		out.FSGroup = new(id)
	}
	if block && !u.Root {
		out.SupplementalGroups = []int64{groupDisk}
	}
	return out
}

// String says who a user is, for a message.
func (u User) String() string {
	switch {
	case u.Root:
		return "root"
	case u.UID != nil:
		return "user " + strconv.FormatInt(*u.UID, 10)
	}
	return "user " + strconv.Itoa(names.User)
}
