//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A VM of Proxmox, of its text with a disk beside it, and one of a backup of Incus become VMs that boot.
func TestImportProxmoxAndIncus(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	directory := t.TempDir()
	disk, err := os.ReadFile(tinyDisk)
	if err != nil {
		t.Fatal(err)
	}
	const text = "boot: order=virtio0\ncores: 1\nmemory: 128\nname: tiny.proxmox\n" +
		"net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1\nscsihw: virtio-scsi-single\n" +
		"virtio0: local:100/vm-100-disk-0.qcow2,size=1G\n"
	config := filepath.Join(directory, "100.conf")
	for name, body := range map[string][]byte{"100.conf": []byte(text), "vm-100-disk-0.qcow2": disk} {
		if err := os.WriteFile(filepath.Join(directory, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw := filepath.Join(directory, "tiny.raw")
	if out, err := exec.Command("qemu-img", "convert", "-O", "raw", tinyDisk, raw).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	image, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	const index = `{"name": "tiny-incus", "type": "virtual-machine", "config": {"instance": {"architecture": "x86_64",
"expanded_config": {"limits.cpu": "1", "limits.memory": "128MiB", "security.csm": "true"}, "expanded_devices": {
"root": {"type": "disk", "path": "/", "pool": "default"}, "eth0": {"type": "nic", "network": "incusbr0"}}}}}`
	backup := filepath.Join(directory, "tiny.tar")
	packOVA(t, backup, "backup/index.yaml", []byte(index), "backup/virtual-machine.img", image)

	c.virtctl(t, nil, "-n", ns, "import", config, "--start")
	c.virtctl(t, nil, "-n", ns, "import", backup, "--disk-bus=virtio", "--start")
	for _, name := range []string{"tiny-proxmox", "tiny-incus"} {
		(&guest{cluster: c, ns: ns, name: name}).waitLogin(t)
	}
}
