//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	containerregistry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/tests/instance"
)

// toolsImage is virt-launcher's image with bash: it has qemu-img, and the image of libguestfs takes minutes to make.
const toolsImage = "ghcr.io/virtkit/virt-launcher:e2e-guestfs"

// TestGuestfs runs programs at a claim in a restricted namespace: they have virtctl's streams and exit code, a guest's
// claim is refused, and the pod is gone after each session, also when virtctl was killed.
func TestGuestfs(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	loadTools(t)
	c.virtctl(t, nil, "-n", ns, "image-upload", "pvc", "disk", "--size=512Mi", "--image-path="+tinyDisk,
		"--wait-secs=120")
	at := []string{"-n", ns, "guestfs", "disk", "--image", toolsImage, "--pull-policy=Never", "--kvm=false"}
	run := func(stdin string, args ...string) (string, string, int) {
		t.Helper()
		words := append(at[:len(at):len(at)], args...)
		stdout, stderr, err := c.Virtctl(t.Context(), strings.NewReader(stdin), words...)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if exit != nil {
			return stdout, stderr, exit.ExitCode()
		}
		return stdout, stderr, 0
	}
	if out, stderr, code := run("", "--", "qemu-img", "info", "disk.img"); code != 0 ||
		!strings.Contains(out, "virtual size") {
		t.Errorf("qemu-img: %d\n%s%s", code, out, stderr)
	}
	if out, stderr, code := run("", "--", "bash", "-c", "id -u; id -u >&2; exit 7"); code != 7 || out != "107\n" ||
		!strings.HasSuffix(stderr, "\n107\n") {
		t.Errorf("a program that fails: %d, %q, %q", code, out, stderr)
	}
	if out, stderr, code := run("typed", "-i", "--", "cat"); code != 0 || out != "typed" {
		t.Errorf("input: %d, %q, %q", code, out, stderr)
	}
	if out, stderr, code := run("cd /; echo $OLDPWD\nexit 3\n"); code != 3 || out != "/disk\n" {
		t.Errorf("a script for the shell: %d, %q, %q", code, out, stderr)
	}
	gone := func(what string) {
		t.Helper()
		eventually(t, 3*time.Minute, "the pod is gone after "+what, func() string {
			_, err := c.Kube.CoreV1().Pods(ns).Get(t.Context(), "libguestfs-tools-disk", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return ""
			}
			return "it is there"
		})
	}
	if _, err := c.Kube.CoreV1().Pods(ns).Get(t.Context(), "libguestfs-tools-disk",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("virtctl has ended, and its pod: %v", err)
	}

	// A client that is killed cannot delete anything: the pod ends, and virt-controller deletes it.
	cmd := exec.CommandContext(t.Context(), c.Bin("virtctl"), append(append([]string{
		"--kubeconfig", c.Kubeconfig, "--context", c.Name,
	}, at...), "--", "bash", "-c", "echo begun; sleep 4321")...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Errorf("the program does not begin: %v", err)
	}
	if _, stderr, code := run("", "--", "true"); code != 1 || !strings.Contains(stderr, "is used by another session") {
		t.Errorf("a second session: %d, %s", code, stderr)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	gone("virtctl was killed")

	g := c.create(t, newVM(ns, "user", v1.RunStrategyAlways, fromClaim("disk")))
	g.waitPhase(t, bootTime, v1.Running)
	if _, stderr, code := run("", "--", "true"); code != 1 ||
		!strings.Contains(stderr, "is used by VM user, which runs or is about to; stop it with `virtctl stop user") {
		t.Errorf("a claim that a guest has: %d, %s", code, stderr)
	}
}

// fromClaim makes a VM's container disk a claim.
func fromClaim(claim string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		volumes := vm.Spec.Template.Spec.Volumes
		for i := range volumes {
			if volumes[i].ContainerDisk != nil {
				source := &v1.PersistentVolumeClaimVolumeSource{}
				source.ClaimName = claim
				volumes[i].VolumeSource = v1.VolumeSource{PersistentVolumeClaim: source}
			}
		}
	}
}

// TestGuestfsImage opens a disk with the image of `make image-guestfs`, where that was made: libguestfs' appliance
// boots in a pod that is restricted, by emulation.
func TestGuestfsImage(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	archive := c.Bin("images/libguestfs-tools.tar")
	if _, err := os.Stat(archive); err != nil {
		t.Skip("`make image-guestfs` makes the image, which takes minutes")
	}
	loadImage(t, archive)
	ns := c.namespace(t, "restricted")
	c.virtctl(t, nil, "-n", ns, "image-upload", "pvc", "disk", "--size=512Mi", "--image-path="+tinyDisk,
		"--wait-secs=120")
	out := c.virtctl(t, nil, "-n", ns, "guestfs", "disk", "--kvm=false", "--",
		"guestfish", "--ro", "--format=raw", "-a", "disk.img", "run", ":", "list-filesystems")
	if !strings.Contains(out, "/dev/sda1: vfat") {
		t.Errorf("the disk has\n%s", out)
	}
}

func loadImage(t *testing.T, archive string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), theCluster.Bin("virt-local"), "load-image", "--name",
		theCluster.Name, archive).CombinedOutput(); err != nil {
		t.Fatalf("load %s: %v\n%s", archive, err, out)
	}
}

// loadTools makes toolsImage of virt-launcher's image and this machine's bash, and loads it into the nodes.
func loadTools(t *testing.T) {
	t.Helper()
	from, err := name.NewTag(instance.Launcher())
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(theCluster.Bin("images/virt-launcher.tar"), &from)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"usr/bin/bash": "/bin/bash"}
	linked, err := exec.CommandContext(t.Context(), "ldd", "/bin/bash").Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	if found := regexp.MustCompile(`=> (\S*/libtinfo\S*)`).FindSubmatch(linked); found != nil {
		library := string(found[1])
		files["usr/lib/x86_64-linux-gnu/"+filepath.Base(library)] = library
	}
	layer, err := layerOf(t, files)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		t.Fatal(err)
	}
	to, err := name.NewTag(toolsImage)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "tools.tar")
	if err := tarball.WriteToFile(archive, to, image); err != nil {
		t.Fatal(err)
	}
	loadImage(t, archive)
}

// layerOf makes a layer of programs and libraries of this machine.
func layerOf(t *testing.T, files map[string]string) (containerregistry.Layer, error) {
	t.Helper()
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for to, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: to, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	})
}
