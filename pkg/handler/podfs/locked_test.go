package podfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

// TestAllowLocked has two processes in a cgroup, of which the launcher is one.
func TestAllowLocked(t *testing.T) {
	low := unix.Rlimit{Cur: 1 << 16, Max: 1 << 20}
	start := func() int {
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_MEMLOCK, &low, nil); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	launcher, other := start(), start()
	proc := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("launcher/cgroup", "0::/kubepods/pod1/c\n")
	// 999999999 is of a process that has ended meanwhile.
	write("1/root/sys/fs/cgroup/kubepods/pod1/c/cgroup.procs",
		strconv.Itoa(launcher)+"\n"+strconv.Itoa(other)+"\n999999999\n")
	dir, err := os.Open(filepath.Join(proc, "launcher"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{PID: launcher, Pod: "1", proc: dir}
	defer p.Close()

	const bytes = 1 << 19 // anybody may have this much of their own hard limit
	for range 2 {         // it may be done again
		if err := p.AllowLocked(proc, bytes); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []int{launcher, other} {
		var got unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &got); err != nil || got.Cur != bytes ||
			got.Max != low.Max {
			t.Errorf("process %d: %+v, %v", pid, got, err)
		}
	}
}

func TestGiveDevices(t *testing.T) {
	p, root := fakeProcess(t)
	granted := Devices{Char(unix.Mkdev(1, 3)): everyAccess, Block(unix.Mkdev(7, 250)): everyAccess}
	check(t, p.GiveDevices("/dev/vfio", granted)) // a pod without
	check(t, os.MkdirAll(filepath.Join(root, "dev/vfio/deep"), 0o755))
	for _, name := range []string{"vfio", "12", "deep/1"} {
		check(t, unix.Mknod(filepath.Join(root, "dev/vfio", name), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	}
	check(t, unix.Mknod(filepath.Join(root, "dev/vfio/block"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))))
	check(t, unix.Mknod(filepath.Join(root, "dev/vfio/stolen"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1))))
	outside := filepath.Join(t.TempDir(), "outside")
	check(t, os.WriteFile(outside, nil, 0o600))
	check(t, os.Symlink(outside, filepath.Join(root, "dev/vfio/link")))
	for range 2 {
		check(t, p.GiveDevices("/dev/vfio", granted))
	}
	for name, given := range map[string]bool{
		"vfio":   true,
		"12":     true,
		"deep/1": true,
		"block":  false,
		"link":   false,
		"stolen": false,
	} {
		var stat unix.Stat_t
		check(t, unix.Lstat(filepath.Join(root, "dev/vfio", name), &stat))
		if (stat.Uid == names.User) != given {
			t.Errorf("%s is %d's", name, stat.Uid)
		}
	}
	var stat unix.Stat_t
	if check(t, unix.Stat(outside, &stat)); stat.Uid == names.User {
		t.Error("what a link leads to was handed over")
	}
}
