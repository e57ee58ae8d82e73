package capabilities

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

// probeArgs is the command that runs in the image; pkg/launcher implements it. It prints a JSON object of the cache's
// files.
var probeArgs = []string{"/usr/bin/virt-launcher", "capabilities"}

// probeEnv is the image's environment.
var probeEnv = []string{"PATH=/usr/sbin:/usr/bin", "LANG=C.UTF-8", "HOME=" + names.RunDir}

// NewCommand returns the command `virt-server handler probe-capabilities`, the inner side of a Sandbox.
func NewCommand() *cobra.Command {
	var root, dev string
	var v Variant
	cmd := &cobra.Command{
		Use:    "probe-capabilities",
		Short:  "Run virt-launcher's probe of QEMU from its image, in namespaces that were made for it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return Enter(root, dev, v) },
	}
	cmd.Flags().StringVar(&root, "root", "", "where the launcher's image is mounted")
	cmd.Flags().StringVar(&dev, "dev", "/dev", "where the node's devices are")
	cmd.Flags().BoolVar(&v.KVM, "kvm", false, "QEMU has /dev/kvm")
	cmd.Flags().BoolVar(&v.SEV, "sev", false, "QEMU has /dev/sev")
	return cmd
}

// Enter runs as the first process of its namespaces. It makes the image at root the only files there are, gives up all
// rights, and becomes the probe. The devices of the variant are as in the directory dev. Enter returns only when it
// fails.
func Enter(root, dev string, v Variant) error {
	if os.Getpid() != 1 {
		return errors.New("this is for virt-handler, which makes namespaces for it; nothing was changed")
	}
	runtime.LockOSThread() // the rights are the thread's, and what it executes inherits them
	if err := dieFirst(); err != nil {
		return err
	}
	devices, err := devices(dev, v)
	if err != nil {
		return err
	}
	if err := mountRoot(root, devices); err != nil {
		return err
	}
	if err := limit(); err != nil {
		return err
	}
	if err := giveUpRights(); err != nil {
		return err
	}
	// Whoever started virt-handler may have left files open.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close files: %w", err)
	}
	return fmt.Errorf("run %s: %w", probeArgs[0], unix.Exec(probeArgs[0], probeArgs, probeEnv))
}

// dieFirst makes the probe what the kernel kills first when memory is short, instead of virt-handler.
func dieFirst() error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return fmt.Errorf("let the kernel kill the probe first: %w", err)
	}
	return nil
}

// node is a device of the sandbox.
type node struct {
	name   string
	number uint64
	mode   uint32
	owner  int
}

// devices returns the device nodes of a sandbox: those that no program can do without, and the variant's.
func devices(dev string, v Variant) ([]node, error) {
	nodes := []node{
		{"null", unix.Mkdev(1, 3), 0o666, 0},
		{"zero", unix.Mkdev(1, 5), 0o666, 0},
		{"full", unix.Mkdev(1, 7), 0o666, 0},
		{"random", unix.Mkdev(1, 8), 0o666, 0},
		{"urandom", unix.Mkdev(1, 9), 0o666, 0},
	}
	for name, wanted := range map[string]bool{"kvm": v.KVM, names.DeviceSEV: v.SEV} {
		if !wanted {
			continue
		}
		var stat unix.Stat_t
		at := path.Join(dev, name)
		if err := unix.Lstat(at, &stat); err != nil {
			return nil, &os.PathError{Op: "look at", Path: at, Err: err}
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFCHR {
			return nil, fmt.Errorf("%s is not a character device", at)
		}
		nodes = append(nodes, node{name, stat.Rdev, 0o600, names.User})
	}
	return nodes, nil
}

// mountRoot makes the image this process's root, read-only, with what a program needs mounted on it.
func mountRoot(root string, devices []node) error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	own := fmt.Sprintf("uid=%d,gid=%d,mode=700", names.User, names.Group)
	for _, m := range []struct {
		source, on, kind string
		flags            uintptr
		data             string
	}{
		// What is mounted here stays here.
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		// The runtime may have mounted the image so that nothing can be executed.
		{root, root, "", unix.MS_BIND, ""},
		{"", root, "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"proc", path.Join(root, "proc"), "proc", quiet, ""},
		{"sysfs", path.Join(root, "sys"), "sysfs", quiet | unix.MS_RDONLY, ""},
		{"tmpfs", path.Join(root, "dev"), "tmpfs", unix.MS_NOSUID | unix.MS_NOEXEC, "size=64k,mode=755"},
		{"tmpfs", path.Join(root, "tmp"), "tmpfs", quiet, "size=4m," + own},
		{"tmpfs", path.Join(root, names.RunDir), "tmpfs", quiet, "size=32m," + own},
	} {
		if err := unix.Mount(m.source, m.on, m.kind, m.flags, m.data); err != nil {
			return &os.PathError{Op: "mount", Path: m.on, Err: err}
		}
	}
	for _, d := range devices {
		if err := d.make(path.Join(root, "dev")); err != nil {
			return err
		}
	}
	if err := unix.Chdir(root); err != nil {
		return &os.PathError{Op: "enter", Path: root, Err: err}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return &os.PathError{Op: "pivot to", Path: root, Err: err}
	}
	// The old root is now above the new one.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

func (n node) make(dir string) error {
	at := path.Join(dir, n.name)
	err := unix.Mknod(at, unix.S_IFCHR|n.mode, int(n.number))
	if err == nil {
		err = unix.Chmod(at, n.mode) // whatever the umask
	}
	if err == nil {
		err = unix.Lchown(at, n.owner, n.owner)
	}
	if err != nil {
		return &os.PathError{Op: "make device", Path: at, Err: err}
	}
	return nil
}

// limit bounds each process of the probe. How many there are cannot be: the launchers of the node are the same user.
func limit() error {
	for _, l := range []struct {
		resource int
		most     uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_CPU, 120}, // seconds
		{unix.RLIMIT_FSIZE, 16 << 20},
		{unix.RLIMIT_NOFILE, 1024},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return fmt.Errorf("limit resource %d: %w", l.resource, err)
		}
	}
	return nil
}

// giveUpRights makes this thread the launcher's user, without capabilities and without a way to any.
func giveUpRights() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > unix.CAP_CHOWN {
			break // the kernel knows no more
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Setgroups(nil); err != nil {
		return fmt.Errorf("leave all groups: %w", err)
	}
	if err := unix.Setresgid(names.Group, names.Group, names.Group); err != nil {
		return fmt.Errorf("become group %d: %w", names.Group, err)
	}
	if err := unix.Setresuid(names.User, names.User, names.User); err != nil {
		return fmt.Errorf("become user %d: %w", names.User, err)
	}
	// Becoming another user leaves the inheritable ones.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &new([2]unix.CapUserData)[0]); err != nil {
		return fmt.Errorf("give up all capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("do without new privileges: %w", err)
	}
	// Becoming another user has undone this.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with virt-handler: %w", err)
	}
	unix.Umask(0o077)
	return nil
}
