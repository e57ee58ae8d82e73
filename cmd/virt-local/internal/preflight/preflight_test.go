package preflight

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cgroup"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/node"
)

func complete() Machine {
	return Machine{
		LookPath:    func(name string) (string, error) { return "/usr/sbin/" + name, nil },
		Exists:      func(path string) bool { return filepath.Dir(path) == "/usr/lib/cni" },
		Filesystems: func() ([]string, error) { return []string{"ext4", "overlay"}, nil },
		LoadModule:  func(string) error { return errors.New("no module") },
		Cgroups: func() ([]cgroup.Hierarchy, error) {
			return []cgroup.Hierarchy{{Path: "/sys/fs/cgroup", Unified: true}}, nil
		},
	}
}

func TestCheck(t *testing.T) {
	if tools, err := Check(complete()); err != nil ||
		tools != (node.Tools{Runc: "/usr/sbin/runc", CNI: "/usr/lib/cni"}) {
		t.Errorf("got %+v, %v", tools, err)
	}
	tests := []struct {
		name   string
		change func(*Machine)
		want   []string
	}{
		{"nothing installed", func(m *Machine) {
			m.LookPath = func(string) (string, error) { return "", exec.ErrNotFound }
			m.Exists = func(string) bool { return false }
		}, []string{"apt-get install -y runc nftables iptables mount util-linux " +
			"containernetworking-plugins", "the program runc"}},
		{"an old set of CNI plugins", func(m *Machine) {
			exists := m.Exists
			m.Exists = func(path string) bool { return exists(path) && filepath.Base(path) != "ptp" }
		}, []string{"apt-get install -y containernetworking-plugins"}},
		{"no overlayfs", func(m *Machine) {
			m.Filesystems = func() ([]string, error) { return []string{"ext4"}, nil }
		}, []string{"modprobe overlay"}},
		{"no memory cgroup", func(m *Machine) {
			m.Cgroups = func() ([]cgroup.Hierarchy, error) {
				return []cgroup.Hierarchy{{Controllers: []string{"cpu", "cpuacct", "cpuset", "pids"}}}, nil
			}
		}, []string{"cgroup controller memory"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := complete()
			test.change(&m)
			_, err := Check(m)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestOverlayIsLoaded(t *testing.T) {
	m := complete()
	m.Filesystems = func() ([]string, error) { return nil, nil }
	m.LoadModule = func(name string) error {
		if name != "overlay" {
			t.Errorf("loads %s", name)
		}
		return nil
	}
	if _, err := Check(m); err != nil {
		t.Error(err)
	}
}

func TestStorage(t *testing.T) {
	able := func() Machine {
		m := complete()
		m.Filesystems = func() ([]string, error) { return []string{"xfs"}, nil }
		m.Exists = func(path string) bool { return path == loopControl }
		return m
	}
	if err := CheckStorage(able()); err != nil {
		t.Errorf("complete: %v", err)
	}
	for want, change := range map[string]func(*Machine){
		"modprobe xfs":  func(m *Machine) { m.Filesystems = func() ([]string, error) { return nil, nil } },
		"modprobe loop": func(m *Machine) { m.Exists = func(string) bool { return false } },
		"apt-get install -y xfsprogs\n": func(m *Machine) {
			m.LookPath = func(name string) (string, error) {
				if strings.Contains(name, "xfs") {
					return "", exec.ErrNotFound
				}
				return "/sbin/" + name, nil
			}
		},
	} {
		m := able()
		change(&m)
		err := CheckStorage(m)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--storage hostpath") {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}
