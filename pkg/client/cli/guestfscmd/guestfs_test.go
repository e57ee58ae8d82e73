package guestfscmd

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/guestfs/guestfstest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// What cannot be meant is said before the cluster is asked.
func TestUsage(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                            "needs the name of a claim",
		"-- ls":                       "needs the name of a claim",
		"disk ls":                     "put -- before the command: guestfs disk -- ls",
		"disk --":                     "needs a command after --",
		"../disk":                     `"../disk" is not the name of a claim`,
		"disk -i":                     "-i is of a command",
		"disk --pull-policy Some":     `--pull-policy: "Some" is not one of Always, IfNotPresent, Never`,
		"disk --root --uid 1":         "--root is user and group 0",
		"disk --root --gid 1":         "--root is user and group 0",
		"disk --root --fsGroup 1":     "--root is user and group 0",
		"disk --gid 1":                "--gid needs the user",
		"disk --uid me":               `--uid: "me" is not a number`,
		"disk --uid 0":                "give --root instead",
		"disk --uid 1 --gid -1":       `--gid: "-1" is not a number`,
		"disk --fsGroup 99999999999":  `--fsGroup: "99999999999" is not a number`,
		"disk --timeout x":            "--timeout",
		"disk --kvm=perhaps -- virt-": "--kvm",
	} {
		_, _, err := clitest.Command{New: NewCmdGuestfs}.Run(t, strings.Fields(line)...)
		parsed := want != "--kvm" && want != "--timeout" // else it is the root command that makes a usage error of it
		if parsed && cli.ExitCode(err) != cli.ExitUsage || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("guestfs %s: %v; want %q", line, err, want)
		}
	}
}

// echo is a program that says what it is, and reads its input to the end where it has one.
func echo(code int) func(stream.Packets, []string, url.Values) int {
	return func(process stream.Packets, command []string, query url.Values) int {
		input := ""
		for buffer := make([]byte, stream.BufferSize); query.Get("stdin") == "true"; {
			n, err := process.Read(buffer)
			if err != nil || n > 0 && buffer[0] == 255 {
				break
			}
			input += string(buffer[1:n])
		}
		_, err := process.Write([]byte("\x01" + strings.Join(command, "|") + "<" + input))
		if err == nil {
			_, err = process.Write([]byte("\x02warned\n"))
		}
		if err != nil {
			return guestfstest.Cut
		}
		return code
	}
}

// What runs at the claim has virtctl's streams, and its exit code is virtctl's; the pod is gone afterwards.
func TestRun(t *testing.T) {
	t.Parallel()
	const used = "Use image: example.com/libguestfs-tools:v1\n"
	for name, tc := range map[string]struct {
		line, stdin, out, errOut string
		code                     int
	}{
		"a command": {
			"disk -- virt-cat -a disk.img /etc/fstab", "unread", "virt-cat|-a|disk.img|/etc/fstab<",
			used + "warned\n", 0,
		},
		"its exit code": {"pvc/disk -- false", "", "false<", used + "warned\n", 7},
		"its input":     {"disk -i -- guestfish", "run", "guestfish<run", used + "warned\n", 0},
		"a script for a shell": {
			"disk", "virt-df", "/bin/bash<virt-df", used + "The PVC has been mounted at /disk\nwarned\n", 0,
		},
		"another image":       {"disk --image mine:1 -- x", "", "x<", "Use image: mine:1\nwarned\n", 0},
		"a KVM that is given": {"disk --kvm -- x", "", "x<", used + "warned\n", 0},
		"a user that is given": {
			"disk --uid 5 --gid 6 --fsGroup 7 --pull-policy Always -- x", "", "x<", used + "warned\n", 0,
		},
		"a VM that says where":  {"disk --vm web -- x", "", "x<", used + "warned\n", 0},
		"root, which may do it": {"disk --root -- x", "", "x<", used + "warned\n", 0},
	} {
		s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
		s.Put("/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines/web", &v1.VirtualMachine{
			Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{
				Spec: v1.VirtualMachineInstanceSpec{NodeSelector: map[string]string{"zone": "a"}},
			}},
		})
		var made *corev1.Pod
		run := echo(tc.code)
		s.Run = func(process stream.Packets, command []string, query url.Values) int {
			made = s.Made()
			return run(process, command, query)
		}
		out, errOut, err := clitest.Command{
			New: NewCmdGuestfs, Kubeconfig: s.Kubeconfig(guestfstest.Namespace), Stdin: tc.stdin,
		}.Run(t, strings.Fields(tc.line)...)
		if out != tc.out || errOut != tc.errOut || cli.ExitCode(err) != tc.code || s.Made() != nil {
			t.Errorf("%s: %q, %q, %v, pod %v", name, out, errOut, err, s.Made())
		}
		if made == nil {
			t.Fatalf("%s: no pod", name)
		}
		spec, c := made.Spec, made.Spec.Containers[0]
		_, kvm := c.Resources.Limits["devices.kubevirt.io/kvm"]
		if kvm != strings.Contains(tc.line, "--kvm") ||
			(spec.NodeSelector["zone"] == "a") != strings.Contains(tc.line, "--vm") ||
			*spec.SecurityContext.RunAsNonRoot == strings.Contains(tc.line, "--root") ||
			(c.ImagePullPolicy == corev1.PullAlways) != strings.Contains(tc.line, "Always") ||
			(*spec.SecurityContext.RunAsUser == 5) != strings.Contains(tc.line, "--uid 5") {
			t.Errorf("%s: %+v", name, spec)
		}
	}
}

// Who works at a claim that waits for an upload is told so.
func TestRemark(t *testing.T) {
	t.Parallel()
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name = guestfstest.Namespace, "disk"
	claim.Annotations = map[string]string{uploads.AnnotationMade: uploads.MadeFor}
	s.Put("/api/v1/namespaces/"+guestfstest.Namespace+"/persistentvolumeclaims/disk", claim)
	s.Run = echo(0)
	_, errOut, err := clitest.Command{New: NewCmdGuestfs, Kubeconfig: s.Kubeconfig(guestfstest.Namespace)}.Run(t,
		"disk", "--", "x")
	if err != nil || !strings.Contains(errOut, "note: PVC team-a/disk was made for an upload") {
		t.Errorf("%v, %q", err, errOut)
	}
}

// Where a node offers its KVM, the pod uses it, unless that is not wanted.
func TestKVM(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{"disk -- x": true, "disk --kvm=false -- x": false} {
		s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
		s.Put("/api/v1/nodes", map[string]any{"items": []any{
			map[string]any{"status": map[string]any{"allocatable": map[string]string{"devices.kubevirt.io/kvm": "1k"}}},
		}})
		got := !want
		s.Run = func(stream.Packets, []string, url.Values) int {
			_, got = s.Made().Spec.Containers[0].Resources.Limits["devices.kubevirt.io/kvm"]
			return 0
		}
		_, _, err := clitest.Command{New: NewCmdGuestfs, Kubeconfig: s.Kubeconfig(guestfstest.Namespace)}.Run(t,
			strings.Fields(line)...)
		if err != nil || got != want {
			t.Errorf("guestfs %s: KVM %t, %v", line, got, err)
		}
	}
}

// A device that only root may open is said before anything fails at it.
func TestDevice(t *testing.T) {
	t.Parallel()
	for want, code := range map[string]int{
		"": 0, "user 107 may not open the device of PVC disk": 1, "look at the device of PVC disk: exit code 137": 137,
	} {
		s := guestfstest.New(t, corev1.PersistentVolumeBlock)
		s.Run = func(process stream.Packets, command []string, query url.Values) int {
			if strings.Contains(strings.Join(command, " "), "/dev/vda") {
				return code
			}
			return 0
		}
		_, errOut, err := clitest.Command{New: NewCmdGuestfs, Kubeconfig: s.Kubeconfig(guestfstest.Namespace)}.Run(t,
			"disk")
		if s.Made() != nil || (code == 0) != (err == nil) {
			t.Errorf("code %d: %v, pod %v", code, err, s.Made())
		}
		if code == 0 && !strings.Contains(errOut, "mounted at /dev/vda\n") {
			t.Errorf("%q", errOut)
		}
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("code %d: %v", code, err)
		}
	}
}

// Why there is no session, and what mends that.
func TestRefused(t *testing.T) {
	t.Parallel()
	always := v1.RunStrategyAlways
	running := v1.VirtualMachineList{Items: []v1.VirtualMachine{{Spec: v1.VirtualMachineSpec{
		RunStrategy: &always, Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{
			Volumes: []v1.Volume{{Name: "x", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
				},
			}}},
		}},
	}}}}
	running.Items[0].Name = "web"
	for name, tc := range map[string]struct {
		line   string
		change func(*guestfstest.Server)
		want   string
		code   int
	}{
		"a VM runs": {
			"disk", func(s *guestfstest.Server) {
				s.Put("/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines", running)
			}, "PVC team-a/disk is used by VM web, which runs or is about to; stop it with `virtctl stop web`", 1,
		},
		"a pod has it": {
			"disk", func(s *guestfstest.Server) {
				pod := corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
				}}}}}
				pod.Name = "backup"
				s.Put("/api/v1/namespaces/team-a/pods", corev1.PodList{Items: []corev1.Pod{pod}})
			}, "is used by pod/backup; wait until that has ended, or end it", 1,
		},
		"there is no claim": {"other", func(*guestfstest.Server) {}, "not found", cli.ExitNotFound},
		"there is no VM":    {"disk --vm ghost", func(*guestfstest.Server) {}, "not found", cli.ExitNotFound},
		"there is no image": {
			"disk", func(s *guestfstest.Server) {
				s.Put("/apis/subresources.kubevirt.io/v1/guestfs", http.HandlerFunc(http.NotFound))
			}, "does not say which image has libguestfs; name one with --image", 1,
		},
		"the image is nowhere": {
			"disk", func(s *guestfstest.Server) {
				waiting := &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}
				s.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
					State: corev1.ContainerState{Waiting: waiting},
				}}}
			}, "ImagePullBackOff: not found; bring it to the nodes or to its registry, or name another with --image", 1,
		},
		"it does not run": {
			"disk --timeout 1s", func(s *guestfstest.Server) { s.Status = corev1.PodStatus{Phase: corev1.PodPending} },
			"pod team-a/libguestfs-tools-disk does not run", cli.ExitTimeout,
		},
		"the stream is cut": {
			"disk -- x", func(s *guestfstest.Server) {
				s.Run = func(stream.Packets, []string, url.Values) int { return guestfstest.Cut }
			}, "the connection was lost", cli.ExitLost,
		},
	} {
		s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
		tc.change(s)
		out, _, err := clitest.Command{New: NewCmdGuestfs, Kubeconfig: s.Kubeconfig(guestfstest.Namespace)}.Run(t,
			strings.Fields(tc.line)...)
		if cli.ExitCode(err) != tc.code || err == nil || !strings.Contains(err.Error(), tc.want) || out != "" ||
			s.Made() != nil {
			t.Errorf("%s: %q, %v (code %d), pod %v", name, out, err, cli.ExitCode(err), s.Made())
		}
	}
}
