package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// kernelTunables are the settings that a kubelet changes on its machine, with the values that it wants.
// They belong to the whole machine, where a panic on every kernel oops is not welcome: the node sees
// files with these values instead.
var kernelTunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mountAll turns the copy of the machine's mounts that a new mount namespace begins with into a node's:
//
//	/proc    of the node's processes
//	/run     new: sockets, locks and states of the node alone, empty at each start, as after a boot
//	/tmp     new
//	/var     nodes/<node>/var: what must survive a restart of the node
//	<state>  as outside, wherever that was hidden by the above
//
// Everything else is the machine's. All of it is shared again within the node, for volumes with mount
// propagation.
func mountAll(n instance.Node) error {
	// A handle that still leads to the state directory once /var is covered.
	state, err := unix.Open(n.StateDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", n.StateDir, err)
	}
	defer unix.Close(state)
	if err := os.MkdirAll(n.Dir("var"), 0o755); err != nil {
		return fmt.Errorf("make the node's /var: %w", err)
	}
	mounts := []struct {
		source, target, fstype string
		flags                  uintptr
		data                   string
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{n.Dir("var"), "/var", "", unix.MS_BIND, ""},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	}
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := layOutVar(); err != nil {
		return err
	}
	if err := os.MkdirAll(n.StateDir, 0o700); err != nil {
		return fmt.Errorf("make %s in the node: %w", n.StateDir, err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", state), n.StateDir, "", unix.MS_BIND|unix.MS_REC, ""); err !=
		nil {
		return fmt.Errorf("mount %s in the node: %w", n.StateDir, err)
	}
	if err := coverTunables(); err != nil {
		return err
	}
	if err := ownMachineID(n); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

// layOutVar makes what programs expect in a /var.
func layOutVar() error {
	for _, dir := range []string{
		"/var/lib/kubelet/volume-plugins", "/var/lib/containerd", "/var/log/pods",
		"/var/log/containers", "/var/cache", "/run/lock",
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("lay out /var: %w", err)
		}
	}
	if err := os.MkdirAll("/var/tmp", 0o777); err != nil {
		return fmt.Errorf("lay out /var: %w", err)
	}
	if err := os.Chmod("/var/tmp", 0o1777|os.ModeSticky); err != nil {
		return fmt.Errorf("lay out /var: %w", err)
	}
	for link, target := range map[string]string{"/var/run": "/run", "/var/lock": "/run/lock"} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("lay out /var: %w", err)
		}
	}
	return nil
}

func coverTunables() error {
	for name, value := range kernelTunables {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			continue
		}
		source := filepath.Join("/run/virt-local/sys", name)
		if err := instance.WriteFile(source, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", target, err)
		}
	}
	return nil
}

// ownMachineID gives the node a machine ID of its own, made from its name.
func ownMachineID(n instance.Node) error {
	if _, err := os.Stat("/etc/machine-id"); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	const source = "/run/virt-local/machine-id"
	if err := instance.WriteFile(source, []byte(machineID(n)+"\n"), 0o444); err != nil {
		return err
	}
	if err := unix.Mount(source, "/etc/machine-id", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover /etc/machine-id: %w", err)
	}
	return nil
}
