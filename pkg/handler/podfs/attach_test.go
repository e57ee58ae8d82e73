package podfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inOwnMounts runs a process with mounts of its own, after a script has made some.
func inOwnMounts(t *testing.T, script string) *Process {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh",
		"-ec", script+"\necho ready\nexec sleep 1000")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	check(t, err)
	if err := cmd.Start(); err != nil {
		t.Skipf("unshare: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Skipf("no mount namespaces here: %v", err)
	}
	p, err := openProcess("/proc", cmd.Process.Pid)
	check(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestAttachMount(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "dev/volumes/data")
	check(t, os.MkdirAll(source, 0o755))
	check(t, os.MkdirAll(filepath.Join(dir, "dev"), 0o755))
	from := inOwnMounts(t,
		"mount -t tmpfs none "+source+"; echo kept > "+source+"/disk.img; ln -s "+dir+" "+source+"/link")
	to := inOwnMounts(t, "mount -t tmpfs none "+filepath.Join(dir, "dev"))
	for range 2 {
		check(t, AttachMount(t.Context(), from, source, to, target, false))
	}
	inside := func(p *Process, name string) string {
		return fmt.Sprintf("/proc/%d/root%s", p.PID, name)
	}
	data, err := os.ReadFile(inside(to, target+"/disk.img"))
	if err != nil || string(data) != "kept\n" {
		t.Fatalf("the file is %q, %v", data, err)
	}
	check(t, os.WriteFile(inside(to, target+"/new"), nil, 0o600))
	check(t, os.Symlink("disk.img", inside(from, source+"/other.img")))
	if _, err := os.ReadFile(inside(to, target+"/other.img")); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link in what was mounted: %v", err)
	}
	if _, err := os.ReadFile(inside(from, source+"/other.img")); err != nil {
		t.Errorf("a link where it was mounted before: %v", err)
	}
	if _, err := os.Stat(inside(from, source+"/new")); err != nil {
		t.Errorf("it is another file system: %v", err)
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("the mount shows outside")
	}
	// Somebody uses it.
	held, err := os.Open(inside(to, target+"/disk.img"))
	check(t, err)
	if err := Prune(t.Context(), to, target); !errors.Is(err, unix.EBUSY) {
		t.Errorf("unmounted while in use: %v", err)
	}
	check(t, held.Close())
	for range 2 {
		check(t, Prune(t.Context(), to, target))
	}
	if mounted, err := to.Mounted(target); err != nil || mounted {
		t.Errorf("still mounted: %t, %v", mounted, err)
	}
	// Links lead nowhere.
	if err := AttachMount(t.Context(), from, source+"/link", to, target, false); !errors.Is(err, unix.ELOOP) {
		t.Errorf("link: %v", err)
	}
	// Read-only.
	check(t, AttachMount(t.Context(), from, source, to, target, true))
	if err := os.WriteFile(inside(to, target+"/other"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("written: %v", err)
	}
}

// Once links are refused, one that is put in an image's place leads nowhere, and nobody else minds.
func TestRefuseLinks(t *testing.T) {
	dir := t.TempDir()
	claim := filepath.Join(dir, "claim")
	check(t, os.MkdirAll(claim, 0o755))
	check(t, os.Mkdir(filepath.Join(dir, "plain"), 0o755))
	p := inOwnMounts(t,
		"mount -t tmpfs none "+claim+"; echo secret > "+claim+"/secret; ln -s secret "+claim+"/disk.img")
	image := fmt.Sprintf("/proc/%d/root%s/disk.img", p.PID, claim)
	if _, err := os.ReadFile(image); err != nil {
		t.Fatalf("before: %v", err)
	}
	check(t, os.Symlink(dir, filepath.Join(dir, "var-run"))) // as images have
	for range 2 {
		check(t,
			p.RefuseLinks(t.Context(),
				[]string{filepath.Join(dir, "var-run/claim"), filepath.Join(dir, "none"), filepath.Join(dir, "plain")}))
	}
	if text, err := os.ReadFile(image); !errors.Is(err, unix.ELOOP) {
		t.Errorf("read %q through a link, %v", text, err)
	}
	check(t, os.Symlink("claim", filepath.Join(dir, "outside")))
	if _, err := os.Stat(filepath.Join(dir, "outside")); err != nil {
		t.Errorf("outside of the claim: %v", err)
	}
}

// A file system that does not answer holds up nobody for longer than they want to wait.
func TestNamespaceThreadIsAbandoned(t *testing.T) {
	self, err := openProcess("/proc", os.Getpid())
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	hung, ended := make(chan struct{}), make(chan struct{})
	err = inNamespaces(ctx, []*Process{self}, func(func(int) error) error {
		defer close(ended)
		cancel()
		<-hung
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	self.Close()
	close(hung)
	<-ended
}

func TestMakeBlock(t *testing.T) {
	p, root := fakeProcess(t)
	const name = "/dev/virtkit-block/data"
	for range 2 {
		check(t, p.MakeBlock(name, Block(unix.Mkdev(7, 250))))
	}
	check(t, p.MakeBlock(name, Block(unix.Mkdev(7, 251))))
	var stat unix.Stat_t
	check(t, unix.Stat(filepath.Join(root, name), &stat))
	if stat.Rdev != unix.Mkdev(7, 251) || stat.Mode != unix.S_IFBLK|0o600 || stat.Uid != 107 {
		t.Errorf("%+v", stat)
	}
	for range 2 {
		check(t, p.RemoveBlock(name))
	}
	if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
		t.Error("it is there still")
	}
	// Nothing is made or removed where a link leads to.
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "data"), nil, 0o600))
	check(t, os.Remove(filepath.Join(root, "dev/virtkit-block")))
	check(t, os.Symlink(outside, filepath.Join(root, "dev/virtkit-block")))
	if err := p.MakeBlock(name, Block(unix.Mkdev(7, 250))); err == nil {
		t.Error("made through a link")
	}
	if err := p.RemoveBlock(name); err == nil {
		t.Error("removed through a link")
	}
	check(t, unix.Stat(filepath.Join(outside, "data"), &stat))
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Uid == 107 {
		t.Errorf("what a link leads to was changed: %+v", stat)
	}
}

func TestKubeletDevice(t *testing.T) {
	dir := t.TempDir()
	proc, pods := filepath.Join(dir, "proc"), filepath.Join(dir, "pods")
	root := filepath.Join(dir, "root")
	maps := filepath.Join(pods, string(pod), "volumeDevices/kubernetes.io~local-volume")
	for _, d := range []string{filepath.Join(proc, "1"), filepath.Join(root, "dev"), maps} {
		check(t, os.MkdirAll(d, 0o755))
	}
	check(t, os.Symlink(root, filepath.Join(proc, "1/root")))
	if _, err := KubeletDevice(pods, proc, pod, "/dev/x"); err == nil {
		t.Error("a device where there is none")
	}
	check(t, unix.Mknod(filepath.Join(root, "dev/loop9"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 9))))
	check(t, os.Symlink("/dev/loop9", filepath.Join(root, "dev/link")))
	check(t, os.Symlink("/dev/link", filepath.Join(maps, "pv-1")))
	if got, err := KubeletDevice(pods, proc, pod, "/dev/x"); err != nil || got != unix.Mkdev(7, 9) {
		t.Errorf("%x, %v", got, err)
	}
	check(t, os.Remove(filepath.Join(maps, "pv-1")))
	check(t, os.Symlink("/dev/null", filepath.Join(maps, "pv-1")))
	if _, err := KubeletDevice(pods, proc, pod, "/dev/x"); err == nil {
		t.Error("a device that is none of the node's")
	}
}

func TestDeviceGroup(t *testing.T) {
	for text, want := range map[string]group{
		"5:devices:/kubepods/podX/c\n0::/\n":   {true, "/kubepods/podX/c"},
		"0::/kubepods.slice/cri-c.scope\n":     {false, "/kubepods.slice/cri-c.scope"},
		"0::/../../podX/c\n":                   {},
		"0::/\n":                               {},
		"3:cpu,devices:/node1/podX/c\n0::/x\n": {true, "/node1/podX/c"},
	} {
		got, err := deviceGroup(text)
		if got != want || (err == nil) != (want.path != "") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// The filter is tried in the kernel, on a control group of the test's own.
func TestDeviceFilter(t *testing.T) {
	mount := unified(t)
	dir, err := os.MkdirTemp(mount, "virtkit-test-") //nolint:usetesting // a control group
	if err != nil {
		t.Skipf("cannot make a control group: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	group, err := os.Open(dir)
	check(t, err)
	defer group.Close()
	check(t, replaceFilter(group, nil)) // none to replace: everything stays allowed
	if err := addFilter(group, nil); err != nil {
		t.Skipf("BPF is not to be had here: %v", err)
	}
	try := func(device string) error {
		script := fmt.Sprintf("echo $$ > %s/cgroup.procs; exec 3<%s", dir, device)
		out, err := exec.Command("sh", "-c", script).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := try("/dev/zero"); err == nil {
		t.Error("allowed by a program that allows nothing")
	}
	check(t, replaceFilter(group, defaultRules()))
	if err := try("/dev/zero"); err != nil {
		t.Errorf("zero: %v", err)
	}
	node := filepath.Join(t.TempDir(), "kmsg")
	check(t, unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 11))))
	if err := try(node); err == nil || !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("a device that is not listed: %v", err)
	}
	check(t, replaceFilter(group, append(defaultRules(), deviceRule{unix.BPF_DEVCG_DEV_CHAR, 1, 11, everyAccess})))
	if err := try(node); err != nil {
		t.Errorf("a device that was added: %v", err)
	}
	if old, err := attachedFilters(group); err != nil || len(old) != 1 {
		t.Errorf("attached: %v, %v", old, err)
	}
	runtime.KeepAlive(group)
}

// unified is where the unified hierarchy is mounted.
func unified(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			return dir
		}
	}
	t.Skip("no unified control groups here")
	return ""
}
