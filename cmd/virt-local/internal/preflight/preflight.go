// Package preflight finds out, before anything is changed, whether a machine can run virt-local.
package preflight

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cgroup"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/node"
)

// Machine has the facts that preflight reads; tests replace it.
type Machine struct {
	// LookPath finds a program.
	LookPath func(name string) (string, error)
	// Exists reports whether a file is there.
	Exists func(path string) bool
	// Filesystems are those that the kernel knows now.
	Filesystems func() ([]string, error)
	// LoadModule loads a kernel module.
	LoadModule func(name string) error
	Cgroups    func() ([]cgroup.Hierarchy, error)
}

// This returns the machine we run on.
func This() Machine {
	return Machine{
		LookPath:    lookPath,
		Exists:      func(path string) bool { _, err := os.Stat(path); return err == nil },
		Filesystems: filesystems,
		LoadModule:  func(name string) error { return exec.Command("modprobe", name).Run() },
		Cgroups:     cgroup.Hierarchies,
	}
}

// lookPath also looks where a user's PATH may not lead.
func lookPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func filesystems() ([]string, error) {
	f, err := os.Open("/proc/filesystems")
	if err != nil {
		return nil, fmt.Errorf("list file systems: %w", err)
	}
	defer f.Close()
	var names []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if fields := strings.Fields(sc.Text()); len(fields) > 0 {
			names = append(names, fields[len(fields)-1])
		}
	}
	return names, nil
}

// programs that nodes run, and the Debian package of each.
var programs = []struct{ name, pkg string }{
	{"runc", "runc"},
	{"nft", "nftables"},      // kube-proxy
	{"iptables", "iptables"}, // CNI portmap
	{"mount", "mount"},       // kubelet
	{"umount", "mount"},
	{"losetup", "mount"},      // kubelet, block volumes
	{"nsenter", "util-linux"}, // virt-local-no-dad
}

// cniPlugins that nodes use.
var cniPlugins = []string{"ptp", "host-local", "portmap", "loopback"}

// Check returns the tools found, or an error that lists all that is missing and the command that installs it.
func Check(m Machine) (node.Tools, error) {
	var tools node.Tools
	var problems, packages []string
	missing := func(what, pkg string) {
		problems = append(problems, what)
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	for _, p := range programs {
		path, err := m.LookPath(p.name)
		if err != nil {
			missing("the program "+p.name, p.pkg)
		}
		if p.name == "runc" {
			tools.Runc = path
		}
	}
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if !slices.ContainsFunc(cniPlugins, func(plugin string) bool { return !m.Exists(filepath.Join(dir, plugin)) }) {
			tools.CNI = dir
			break
		}
	}
	if tools.CNI == "" {
		missing("the CNI plugins "+strings.Join(cniPlugins, ", "), "containernetworking-plugins")
	}
	var errs []error
	if len(problems) > 0 {
		errs = append(errs, fmt.Errorf("this machine lacks %s; install with\n\n  sudo apt-get install -y %s",
			strings.Join(problems, ", "), strings.Join(packages, " ")))
	}
	return tools, errors.Join(append(errs, kernel(m), cgroups(m))...)
}

// loopControl is there where the kernel has loop devices.
const loopControl = "/dev/loop-control"

// storagePrograms are those that the CSI driver runs.
var storagePrograms = []struct{ name, pkg string }{
	{"mkfs.xfs", "xfsprogs"},
	{"xfs_growfs", "xfsprogs"},
	{"mkfs.ext4", "e2fsprogs"},
	{"resize2fs", "e2fsprogs"},
	{"e2fsck", "e2fsprogs"},
	{"debugfs", "e2fsprogs"},
}

// CheckStorage returns an error that lists what the CSI driver lacks and the command that installs it.
func CheckStorage(m Machine) error {
	var problems, packages []string
	for _, p := range storagePrograms {
		if _, err := m.LookPath(p.name); err != nil {
			problems = append(problems, p.name)
			if !slices.Contains(packages, p.pkg) {
				packages = append(packages, p.pkg)
			}
		}
	}
	var errs []error
	if len(problems) > 0 {
		errs = append(errs, fmt.Errorf("this machine lacks %s, which volumes need; install with\n\n  sudo apt-get "+
			"install -y %s\n\nor do without sizes, snapshots and clones, by --storage hostpath",
			strings.Join(problems, ", "), strings.Join(packages, " ")))
	}
	known, err := m.Filesystems()
	if err != nil {
		return err
	}
	if !slices.Contains(known, "xfs") && m.LoadModule("xfs") != nil {
		errs = append(errs, errors.New("the kernel has no XFS (modprobe xfs), which volumes need: use --storage "+
			"hostpath, which has neither sizes nor snapshots nor clones"))
	}
	if !m.Exists(loopControl) && m.LoadModule("loop") != nil {
		errs = append(errs, errors.New("the kernel has no loop devices (modprobe loop), which volumes need: use "+
			"--storage hostpath, which has them for claims of mode Filesystem only"))
	}
	return errors.Join(errs...)
}

func kernel(m Machine) error {
	known, err := m.Filesystems()
	if err != nil {
		return err
	}
	if !slices.Contains(known, "overlay") {
		if err := m.LoadModule("overlay"); err != nil {
			return errors.New("the kernel has no overlayfs, which container images need (modprobe overlay)")
		}
	}
	return nil
}

func cgroups(m Machine) error {
	hs, err := m.Cgroups()
	if err != nil {
		return err
	}
	if cgroup.Mode(hs) == "v2" {
		return nil
	}
	for _, need := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids"} {
		if !slices.ContainsFunc(hs, func(h cgroup.Hierarchy) bool { return slices.Contains(h.Controllers, need) }) {
			return fmt.Errorf("the cgroup controller %s is not mounted: boot with cgroup version 2 "+
				"(systemd.unified_cgroup_hierarchy=1)", need)
		}
	}
	return nil
}
