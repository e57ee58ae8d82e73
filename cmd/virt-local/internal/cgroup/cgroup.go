// Package cgroup makes and removes the cgroups that are the parents of a node's pods. It works on
// version 1, on version 2, and on both at once (hybrid: the kubelet then uses version 1 and version 2 has no
// controllers). The kubelet and runc make the groups below.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Hierarchy is a mounted cgroup hierarchy.
type Hierarchy struct {
	Path string
	// Unified is cgroup version 2.
	Unified bool
	// Controllers of a version 1 hierarchy, e.g. cpu, cpuacct.
	Controllers []string
}

// Hierarchies finds the mounted hierarchies.
func Hierarchies() ([]Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	defer f.Close()
	hs, err := parseMountinfo(f)
	if err == nil && len(hs) == 0 {
		err = errors.New("no cgroup file system is mounted")
	}
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	return hs, nil
}

// parseMountinfo reads proc_pid_mountinfo(5). A hierarchy mounted twice is listed once.
func parseMountinfo(r io.Reader) ([]Hierarchy, error) {
	var hs []Hierarchy
	seen := map[string]bool{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		left, right, ok := strings.Cut(sc.Text(), " - ")
		l, rf := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(rf) < 3 {
			continue
		}
		h := Hierarchy{Path: l[4], Unified: rf[0] == "cgroup2"}
		if rf[0] != "cgroup" && !h.Unified || seen[l[2]] {
			continue
		}
		seen[l[2]] = true
		if !h.Unified {
			for _, option := range strings.Split(rf[2], ",") {
				if option != "rw" && option != "ro" && option != "xattr" && option != "clone_children" {
					h.Controllers = append(h.Controllers, option)
				}
			}
		}
		hs = append(hs, h)
	}
	return hs, sc.Err()
}

// Mode names what the kubelet will use: "v1" or "v2".
func Mode(hs []Hierarchy) string {
	if len(hs) == 1 && hs[0].Unified {
		return "v2"
	}
	return "v1"
}

// wanted are the version 2 controllers that pods need.
var wanted = []string{"cpuset", "cpu", "io", "memory", "hugetlb", "pids"}

// Make makes the group in every hierarchy (its parents too), able to have pods below.
func Make(hs []Hierarchy, group string) error {
	for _, h := range hs {
		dir := h.Path
		for _, part := range strings.Split(strings.Trim(group, "/"), "/") {
			if h.Unified && Mode(hs) == "v2" {
				if err := delegate(dir); err != nil {
					return err
				}
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if slices.Contains(h.Controllers, "cpuset") {
				if err := copyCPUSet(parent, dir); err != nil {
					return err
				}
			}
		}
		if h.Unified && Mode(hs) == "v2" {
			if err := delegate(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyCPUSet fills a version 1 cpuset, which is born empty and would take no process.
func copyCPUSet(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(parent, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0)
		}
		if err != nil {
			return fmt.Errorf("fill cpuset %s: %w", dir, err)
		}
	}
	return nil
}

// delegate turns on, for the groups below dir, the controllers that pods need and dir has.
func delegate(dir string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("delegate cgroup controllers: %w", err)
	}
	on, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return fmt.Errorf("delegate cgroup controllers: %w", err)
	}
	var add []string
	for _, c := range strings.Fields(string(has)) {
		if slices.Contains(wanted, c) && !slices.Contains(strings.Fields(string(on)), c) {
			add = append(add, "+"+c)
		}
	}
	if len(add) == 0 {
		return nil
	}
	err = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(strings.Join(add, " ")), 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("delegate cgroup controllers: processes run in %s itself; in a container, move them to a "+
			"group of their own first: mkdir %s/init && for p in $(cat %s/cgroup.procs); do echo $p > "+
			"%s/init/cgroup.procs; done", dir, dir, dir, dir)
	}
	if err != nil {
		return fmt.Errorf("delegate cgroup controllers: %w", err)
	}
	return nil
}

// Remove removes the group and all below it, waiting up to timeout for processes that are just ending.
func Remove(hs []Hierarchy, group string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for _, h := range hs {
		for {
			err := removeTree(filepath.Join(h.Path, group))
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// removeTree removes a tree of cgroups; their files go with them.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// Processes returns the pids in the group and below, of all hierarchies.
func Processes(hs []Hierarchy, group string) ([]int, error) {
	var pids []int
	for _, h := range hs {
		err := filepath.WalkDir(filepath.Join(h.Path, group), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, field := range strings.Fields(string(b)) {
				var pid int
				if _, err := fmt.Sscan(field, &pid); err == nil && pid > 0 && !slices.Contains(pids, pid) {
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("list processes of cgroup %s: %w", group, err)
		}
	}
	return pids, nil
}
