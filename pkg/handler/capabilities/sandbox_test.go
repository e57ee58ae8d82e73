package capabilities

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

// This program is also what a sandbox runs: its inner side, and then, copied into an image, the launcher. What the
// latter does is in the image's etc/mode.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		goleak.VerifyTestMain(m)
		return
	}
	var err error
	switch os.Args[1] {
	case "probe-capabilities":
		cmd := NewCommand()
		cmd.SetArgs(os.Args[2:])
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err = cmd.Execute()
	case "capabilities":
		err = launcher()
	case "virt-handler":
		_, err = sandbox(os.Args[2]).Probe(context.Background(), Variant{})
	default:
		goleak.VerifyTestMain(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func sandbox(root string) Sandbox {
	return Sandbox{Self: []string{"/proc/self/exe", "probe-capabilities"}, Root: root, Dev: "/dev"}
}

// launcher is what runs in the sandbox.
func launcher() error {
	mode, err := os.ReadFile("/etc/mode")
	if err != nil {
		return err
	}
	switch string(mode) {
	case "hang":
		if os.Getpid() == 1 {
			if err := exec.Command("/usr/bin/virt-launcher", "capabilities").Start(); err != nil {
				return err
			}
		}
		return unix.Pause()
	case "flood":
		for {
			if _, err := os.Stdout.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	case "fail":
		return fmt.Errorf("no emulator, %s", strings.Repeat("and no end of it ", maxComplaint))
	case "nonsense":
		fmt.Println("hello")
		return nil
	}
	report, err := json.Marshal(look())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string][]byte{"report": report})
}

// view is what a process in the sandbox sees and may do.
type view struct {
	PID       int
	UID       []int
	Groups    []int
	Status    map[string]string
	Env       []string
	Dev, Top  []string
	Files     []string // that are open
	Processes []string
	Links     []string
	Writable  []string
	Mounts    []string
	OOM       string
	Session   bool
}

func look() view {
	v := view{PID: os.Getpid(), Env: os.Environ(), Status: map[string]string{}}
	v.UID = []int{os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid()}
	v.Groups, _ = os.Getgroups()
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":\t"); ok {
			v.Status[name] = value
		}
	}
	list := func(dir string) (out []string) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	v.Dev, v.Top = list("/dev"), list("/")
	v.Processes = slices.DeleteFunc(list("/proc"), func(name string) bool { return name[0] < '0' || name[0] > '9' })
	for _, fd := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
		if to, err := os.Readlink("/proc/self/fd/" + fd); err == nil && strings.HasPrefix(to, "/") {
			v.Files = append(v.Files, fd+to)
		}
	}
	links, _ := net.Interfaces()
	for _, l := range links {
		v.Links = append(v.Links, l.Name)
	}
	for _, dir := range []string{"/", "/etc", "/usr/bin", "/dev", "/sys", "/proc/sys/kernel", "/tmp", names.RunDir} {
		if os.WriteFile(dir+"/written", nil, 0o600) == nil {
			v.Writable = append(v.Writable, dir)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		v.Mounts = append(v.Mounts, strings.Fields(line)[4])
	}
	oom, _ := os.ReadFile("/proc/self/oom_score_adj")
	v.OOM = strings.TrimSpace(string(oom))
	sid, _ := unix.Getsid(0)
	v.Session = sid == os.Getpid()
	return v
}

// image is a directory like the launcher's image, with this program in it.
func image(t *testing.T, mode string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("run as root: a sandbox needs namespaces")
	}
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "etc", "usr/bin", names.RunDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"usr/bin/virt-launcher": self, "etc/mode": []byte(mode)} {
		if err := os.WriteFile(filepath.Join(root, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The probe runs code of the installation's image only, but with all that QEMU and libvirtd are, right inside the one
// privileged container of the node.
func TestSandboxHasNoRights(t *testing.T) {
	t.Setenv("SECRET", "of virt-handler")
	root := image(t, "look")
	files, err := sandbox(root).Probe(t.Context(), Variant{})
	if err != nil {
		t.Fatal(err)
	}
	var got view
	if err := json.Unmarshal(files["report"], &got); err != nil {
		t.Fatal(err)
	}
	check := func(what string, got, want any) {
		t.Helper()
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Errorf("%s: %s, want %s", what, g, w)
		}
	}
	check("the process", got.PID, 1)
	check("user and group", got.UID, []int{names.User, names.User, names.Group, names.Group})
	check("other groups", got.Groups, []int{})
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		check(set, strings.Trim(got.Status[set], "0"), "")
	}
	check("NoNewPrivs", got.Status["NoNewPrivs"], 1)
	check("environment", got.Env, probeEnv)
	check("/dev", got.Dev, []string{"full", "null", "random", "urandom", "zero"})
	check("/", got.Top, []string{"dev", "etc", "proc", "run", "sys", "tmp", "usr"})
	check("processes", got.Processes, []string{"1"})
	check("open files", got.Files, []string{"0/dev/null"})
	check("interfaces", got.Links, []string{"lo"})
	check("can write to", got.Writable, []string{"/tmp", names.RunDir})
	check("mounts", got.Mounts, []string{"/", "/proc", "/sys", "/dev", "/tmp", names.RunDir})
	check("who the kernel kills first", got.OOM, 1000)
	check("a session of its own", got.Session, true)
	if left, err := filepath.Glob(filepath.Join(root, "*/written")); err != nil || len(left) > 0 {
		t.Errorf("the image has %v now, %v", left, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(root)) {
		t.Errorf("mounts are left, or not to be read: %v", err)
	}
}

func TestSandboxHasItsVariantsDevices(t *testing.T) {
	root, dev := image(t, "look"), t.TempDir()
	s := sandbox(root)
	s.Dev = dev
	if err := unix.Mknod(filepath.Join(dev, "kvm"), unix.S_IFCHR, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	files, err := s.Probe(t.Context(), Variant{KVM: true})
	if err != nil {
		t.Fatal(err)
	}
	var got view
	if err := json.Unmarshal(files["report"], &got); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got.Dev, "kvm") || slices.Contains(got.Dev, names.DeviceSEV) {
		t.Errorf("/dev has %v", got.Dev)
	}
	if _, err := s.Probe(t.Context(), Variant{KVM: true, SEV: true}); err == nil {
		t.Error("a device that the node has not is there")
	}
	if err := os.Remove(filepath.Join(dev, "kvm")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dev, "kvm")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Probe(t.Context(), Variant{KVM: true}); err == nil {
		t.Error("a link is taken for a device")
	}
}

func TestSandboxCommand(t *testing.T) {
	s := Sandbox{Self: []string{"/self", "handler", "probe-capabilities"}, Root: "/launcher", Dev: "/dev"}
	for want, v := range map[string]Variant{
		"/self handler probe-capabilities --root=/launcher --dev=/dev":             {},
		"/self handler probe-capabilities --root=/launcher --dev=/dev --kvm":       {KVM: true},
		"/self handler probe-capabilities --root=/launcher --dev=/dev --kvm --sev": {KVM: true, SEV: true},
	} {
		cmd := s.command(t.Context(), v)
		if got := strings.Join(cmd.Args, " "); got != want {
			t.Errorf("%+v: %s, want %s", v, got, want)
		}
		const all = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
			unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
		if cmd.SysProcAttr.Cloneflags != all {
			t.Errorf("namespaces %#x, want %#x", cmd.SysProcAttr.Cloneflags, all)
		}
		if cmd.Env == nil {
			t.Error("it has virt-handler's environment")
		}
	}
}

func TestProbeFails(t *testing.T) {
	for mode, want := range map[string]string{
		"fail": "no emulator", "flood": "too much", "nonsense": "read what it printed",
	} {
		t.Run(mode, func(t *testing.T) {
			_, err := sandbox(image(t, mode)).Probe(t.Context(), Variant{})
			if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 2*maxComplaint {
				t.Errorf("%.500v", err)
			}
		})
	}
	_, err := sandbox(t.TempDir()).Probe(t.Context(), Variant{})
	if err == nil || !strings.Contains(err.Error(), "mount") {
		t.Errorf("an empty image: %v", err)
	}
	if err := Enter("/", "/dev", Variant{}); err == nil {
		t.Error("it changes the namespaces of whoever calls it")
	}
}

// inside counts the processes whose root is a directory.
func inside(t *testing.T, root string) int {
	t.Helper()
	want, err := os.Stat(root)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := filepath.Glob("/proc/[0-9]*/root")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range roots {
		if got, err := os.Stat(r); err == nil && os.SameFile(got, want) {
			n++
		}
	}
	return n
}

func awaitInside(t *testing.T, root, what string, enough func(n int) bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !enough(inside(t, root)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s; there are %d processes", what, inside(t, root))
		}
	}
}

// A probe that hangs is ended with all that it has started, after its time and when virt-handler dies.
func TestSandboxEnds(t *testing.T) {
	t.Run("after its time", func(t *testing.T) {
		root := image(t, "hang")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := sandbox(root).Probe(ctx, Variant{})
			done <- err
		}()
		awaitInside(t, root, "processes run", func(n int) bool { return n == 2 })
		cancel()
		if err := <-done; err == nil {
			t.Error("no error")
		}
		awaitInside(t, root, "they end", func(n int) bool { return n == 0 })
	})
	t.Run("with virt-handler", func(t *testing.T) {
		root := image(t, "hang")
		handler := exec.Command("/proc/self/exe", "virt-handler", root)
		if err := handler.Start(); err != nil {
			t.Fatal(err)
		}
		awaitInside(t, root, "processes run", func(n int) bool { return n == 2 })
		if err := handler.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = handler.Wait() // killed
		awaitInside(t, root, "they end", func(n int) bool { return n == 0 })
	})
}
