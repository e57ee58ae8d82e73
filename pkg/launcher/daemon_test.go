package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
