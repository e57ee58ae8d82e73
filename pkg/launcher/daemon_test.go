package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Filters are written down only as the parser knows them, and make the output let through what they do.
func TestLibvirtLogConfiguration(t *testing.T) {
	for filters, want := range map[string]string{
		"":                        "log_outputs = \"3:stderr\"\n",
		"2:qemu.qemu_monitor 3:*": "log_outputs = \"1:stderr\"\nlog_filters = \"2:qemu.qemu_monitor 3:*\"\n",
		"1:*\"\nhost_uuid = \"x":  "",
	} {
		o := Options{RunDir: t.TempDir(), LogFilters: filters}
		err := newDaemon(o, newChildren()).configure()
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "--libvirt-log-filters: ") {
				t.Errorf("%q: %v", filters, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		conf, err := os.ReadFile(filepath.Join(o.RunDir, "config/libvirt/libvirtd.conf"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(conf), want) ||
			strings.Count(string(conf), "log_") != strings.Count(want, "log_") {
			t.Errorf("%q:\n%s", filters, conf)
		}
	}
}

// Only a guest without KVM may do without what libvirt learns of its CPU's model-specific registers.
func TestQEMUConfiguration(t *testing.T) {
	for name, kvm := range map[string]bool{"emulated": false, "KVM": true} {
		t.Run(name, func(t *testing.T) {
			o := Options{RunDir: t.TempDir(), KVMDevice: filepath.Join(t.TempDir(), "kvm")}
			if kvm {
				o.Hugepages = t.TempDir()
				// As the kubelet leaves it, before virt-handler hands it over.
				if err := os.WriteFile(o.KVMDevice, nil, 0o000); err != nil {
					t.Fatal(err)
				}
			}
			if err := newDaemon(o, newChildren()).configure(); err != nil {
				t.Fatal(err)
			}
			conf, err := os.ReadFile(filepath.Join(o.RunDir, "config/libvirt/qemu.conf"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(conf), qemuConf) {
				t.Errorf("qemu.conf lacks what every guest needs:\n%s", conf)
			}
			if huge := strings.Contains(string(conf), `hugetlbfs_mount = "`+o.Hugepages+`"`); huge != kvm {
				t.Errorf("huge pages: %v", huge)
			}
			if filtered := strings.Contains(string(conf), "capability_filters"); filtered == kvm {
				t.Errorf("capabilities filtered: %v", filtered)
			}
		})
	}
}
