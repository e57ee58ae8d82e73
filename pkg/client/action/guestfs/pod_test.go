package guestfs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// claimOf is a claim of namespace ns.
func claimOf(name string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "claim-uid"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeMode: &mode},
	}
}

// The pod passes Pod Security restricted, whatever the claim and the user but root, has no token, and ends some day.
func TestPodIsRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	files, device := claimOf("disk", corev1.PersistentVolumeFilesystem), claimOf("disk", corev1.PersistentVolumeBlock)
	for name, tc := range map[string]struct {
		plan Plan
		want bool
	}{
		"files":    {Plan{Claim: files}, true},
		"a device": {Plan{Claim: device}, true},
		"with KVM": {Plan{Claim: files, KVM: true}, true},
		"some user": {
			Plan{Claim: files, User: User{UID: new(int64(1000)), GID: new(int64(1)), FSGroup: new(int64(2))}}, true,
		},
		"as root":    {Plan{Claim: files, User: User{Root: true}}, false},
		"VM's rules": {Plan{Claim: files, VM: machine("web", v1.RunStrategyHalted)}, true},
	} {
		pod := Pod(tc.plan)
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
		if result.Allowed != tc.want {
			t.Errorf("%s: restricted %t: %s", name, result.Allowed, result.ForbiddenDetail())
		}
		c := pod.Spec.Containers[0]
		if *pod.Spec.AutomountServiceAccountToken || *pod.Spec.ActiveDeadlineSeconds != 86400 ||
			!c.StdinOnce || c.TTY || !*c.SecurityContext.ReadOnlyRootFilesystem ||
			pod.OwnerReferences[0].UID != "claim-uid" || pod.Labels[names.LabelComponent] != names.VirtGuestfs {
			t.Errorf("%s: %+v", name, pod)
		}
	}
}

func TestPodUsers(t *testing.T) {
	one, two, three := int64(1), int64(2), int64(3)
	launcher, none := int64(names.User), int64(0)
	for name, tc := range map[string]struct {
		user             User
		uid, gid, groups *int64
	}{
		"the launcher's":             {User{}, &launcher, &launcher, &launcher},
		"root":                       {User{Root: true}, &none, &none, &none},
		"a user":                     {User{UID: &one}, &one, nil, &launcher},
		"all":                        {User{UID: &one, GID: &two, FSGroup: &three}, &one, &two, &three},
		"a group of the files alone": {User{FSGroup: &three}, &launcher, &launcher, &three},
	} {
		got := tc.user.context(false)
		if !cmp.Equal(got.RunAsUser, tc.uid) || !cmp.Equal(got.RunAsGroup, tc.gid) ||
			!cmp.Equal(got.FSGroup, tc.groups) || *got.RunAsNonRoot == tc.user.Root || got.SupplementalGroups != nil {
			t.Errorf("%s: %+v", name, got)
		}
		device := tc.user.context(true)
		if (len(device.SupplementalGroups) == 1) == tc.user.Root {
			t.Errorf("%s, a device: %+v", name, device)
		}
	}
}

// A device and a file system are where KubeVirt has them, and TCG is for where there is no KVM.
func TestPodPlaces(t *testing.T) {
	device := Pod(Plan{Claim: claimOf("disk", corev1.PersistentVolumeBlock)}).Spec.Containers[0]
	devices := []corev1.VolumeDevice{{Name: volumeClaim, DevicePath: "/dev/vda"}}
	if diff := cmp.Diff(devices, device.VolumeDevices); diff != "" {
		t.Error(diff)
	}
	files := Pod(Plan{Claim: claimOf("disk", corev1.PersistentVolumeFilesystem), KVM: true}).Spec.Containers[0]
	mounts := map[string]bool{}
	for _, m := range files.VolumeMounts {
		mounts[m.MountPath] = true
	}
	if !mounts["/disk"] || files.WorkingDir != "/disk" || len(files.VolumeDevices) > 0 {
		t.Errorf("%+v", files)
	}
	settings := func(c *corev1.Container) string {
		for _, e := range c.Env {
			if e.Name == "LIBGUESTFS_BACKEND_SETTINGS" {
				return e.Value
			}
		}
		return ""
	}
	kvm := files.Resources.Limits[names.ResourceKVM]
	if settings(&device) != "force_tcg" || settings(&files) != "" || kvm.Value() != 1 {
		t.Errorf("%q, %q, KVM %s", settings(&device), settings(&files), kvm.String())
	}
	if _, shared := resources.Limits[names.ResourceKVM]; shared {
		t.Error("the KVM of one pod is in all")
	}
}

// A VM says where the pod runs. Its labels stay its own: its Services are not to lead to the pod.
func TestPodRunsWhereItsVMMay(t *testing.T) {
	vm := machine("web", v1.RunStrategyHalted)
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web"}
	vm.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
	vm.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated"}}
	vm.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	pod := Pod(Plan{Claim: claimOf("disk", corev1.PersistentVolumeFilesystem), VM: vm})
	if !cmp.Equal(pod.Spec.NodeSelector, vm.Spec.Template.Spec.NodeSelector) ||
		!cmp.Equal(pod.Spec.Tolerations, vm.Spec.Template.Spec.Tolerations) || pod.Spec.Affinity == nil ||
		pod.Labels["app"] != "" {
		t.Errorf("%+v", pod)
	}
}

func TestPodName(t *testing.T) {
	if got := PodName("disk"); got != "libguestfs-tools-disk" {
		t.Error(got)
	}
	long := strings.Repeat("a", 253)
	if got := PodName(long); len(got) > 253 || got == PodName(long[:252]) {
		t.Errorf("%s", got)
	}
}
