package foreign

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// proxmoxVM is a VM of Proxmox with most of what one has.
const proxmoxVM = `#a description%3A with more
acpi: 1
agent: 1
balloon: 512
bios: ovmf
boot: order=scsi1;ide2;net1
cores: 2
cpu: x86-64-v2-AES,flags=+aes
efidisk0: local-lvm:vm-100-disk-0,efitype=4m,pre-enrolled-keys=1,size=4M
hostpci0: 0000:01:00
ide2: local:iso/debian-12.iso,media=cdrom,size=631M
ide3: local-lvm:vm-100-cloudinit,media=cdrom
ciuser: me
memory: 2048
name: web.example.com
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,tag=10
net1: e1000=BC:24:11:00:00:02,bridge=vmbr1,queues=4
numa: 0
onboot: 1
protection: 0
ostype: l26
scsi0: local-lvm:vm-100-disk-1,discard=on,iothread=1,serial=abc,size=1M
scsi1: local:100/vm-100-disk-2.qcow2,size=1M
scsihw: virtio-scsi-single
smbios1: uuid=6f0ac28e-3f3c-4b52-a3a2-1a2b3c4d5e6f
sockets: 2
tags: a;b
tpmstate0: local-lvm:vm-100-disk-3,size=4M,version=v2.0
unused0: local-lvm:vm-100-disk-9
vmgenid: 0d1a1c9e-1111-2222-3333-444455556666
watchdog: model=i6300esb,action=reset

[before-upgrade]
memory: 512
scsi0: local-lvm:vm-100-disk-1,size=1M
`

// beside writes files to a directory and returns it.
func beside(t testing.TB, files map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// A text of Proxmox becomes a VM with its disks, whatever they are called beside it; what has no counterpart is said.
func TestProxmox(t *testing.T) {
	qcow2 := qcow2Of(1 << 20)
	directory := beside(t, map[string]string{
		"100.conf": proxmoxVM, "vm-100-disk-1.raw": raw(), "vm-100-disk-2.qcow2": qcow2,
	})
	f, err := opened(t, filepath.Join(directory, "100.conf"))
	if err != nil {
		t.Fatal(err)
	}
	made, err := f.Make(Wish{})
	if err != nil {
		t.Fatal(err)
	}
	guest := &made.VM.Spec.Template.Spec
	domain := guest.Domain
	if made.VM.Name != "web-example-com" || domain.CPU.Sockets != 2 || domain.CPU.Cores != 2 ||
		domain.CPU.Model != "" || domain.Memory.Guest.Value() != 2<<30 || domain.Devices.TPM == nil ||
		domain.Devices.Watchdog == nil || domain.Firmware.Bootloader.EFI == nil ||
		!*domain.Firmware.Bootloader.EFI.SecureBoot {
		t.Errorf("%+v", domain)
	}
	var disks []string
	for i := range domain.Devices.Disks {
		disk := &domain.Devices.Disks[i]
		text, boot := disk.Name, uint(0)
		if disk.Disk != nil {
			text += " " + string(disk.Disk.Bus)
		}
		if disk.BootOrder != nil {
			boot = *disk.BootOrder
		}
		disks = append(disks, text+strings.Repeat("!", int(boot))+disk.Serial)
	}
	if want := []string{"disk1 scsiabc", "disk2 scsi!", "cd1!!"}; !slices.Equal(disks, want) {
		t.Errorf("disks %q, want %q", disks, want)
	}
	if i := domain.Devices.Interfaces; len(i) != 1 || i[0].Model != "virtio" {
		t.Errorf("interfaces %+v", i)
	}
	payloads := f.Payloads(made)
	if len(payloads) != 2 || payloads[0].Image.Format != imageformat.Raw ||
		payloads[1].Image.Format != imageformat.QCOW2 {
		t.Errorf("%+v", payloads)
	}
	said := strings.Join(made.NotIncluded, "\n")
	for _, want := range []string{
		"cpu x86-64-v2-AES", "cpu flags +aes", "EFI variables", "hostpci0", "what is in ide2, local:iso/debian-12.iso",
		"ide3, the drive with cloud-init's data", "cloud-init setting ciuser", "firewall=1", "tag=10", "unused0",
		"balloon", "onboot", "tags", "queues=4", "snapshots and pending changes (1)", `interface 2 (network "vmbr1"`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	for _, silent := range []string{"scsihw", "ostype", "agent", "numa", "smbios", "acpi", "protection"} {
		if strings.Contains(said, silent) {
			t.Errorf("it says %s:\n%s", silent, said)
		}
	}
	kept, err := f.Make(Wish{Networks: map[string]string{"vmbr1": "lan"}})
	if err != nil || len(kept.VM.Spec.Template.Spec.Domain.Devices.Interfaces) != 2 {
		t.Errorf("with a network: %v", err)
	}

	// What `vma extract` has written is named by the directory.
	extracted := beside(t, map[string]string{
		"qemu-server.conf":    "name: box\nide0: local:100/vm-100-disk-0.raw,size=1M\n#qmdump#map:a\nbootdisk: ide0",
		"disk-drive-ide0.raw": raw(),
	})
	if f, err = opened(t, extracted); err != nil || f.images[0].file != "disk-drive-ide0.raw" ||
		f.Machine.Disks[0].Bus != v1.DiskBusSATA || f.Machine.Disks[0].Boot != 1 || f.Machine.Memory != 512<<20 {
		t.Errorf("%+v, %v", f.Machine, err)
	}
}

// What cannot be imported says why.
func TestProxmoxRefused(t *testing.T) {
	for text, want := range map[string]string{
		"hello\n":                                  "the file is neither",
		"[global]\nname: x\n":                      "the file is neither",
		"name: x\nwhat is this\n":                  "line 2 is not of the form",
		"name: x\nname: y\n":                       "line 2: name is there twice",
		"cores: 0\n":                               `cores: "0" is no number of CPUs`,
		"sockets: 99999999999\n":                   `sockets: "99999999999" is no number of CPUs`,
		"memory: much\n":                           `memory: "much" is no size in MiB`,
		"memory: 99999999999999\n":                 "are no size of a VM",
		"arch: aarch64\nname: x\n":                 "only x86_64 is imported",
		"scsi0: none\n":                            "scsi0: it names no volume",
		"scsi0: local-lvm:vm-1-disk-0,size=1M\n":   "disk scsi0 (local-lvm:vm-1-disk-0) is not there: copy it",
		"scsi0: local:..,size=1M\n":                "escapes",
		"cores: 4096\nsockets: 4096\nname: many\n": "are more than a VM has",
	} {
		directory := beside(t, map[string]string{"100.conf": text})
		if _, err := opened(t, filepath.Join(directory, "100.conf")); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	// No link leads out of the directory.
	outside := put(t, "secret.raw", raw())
	directory := beside(t, map[string]string{"1.conf": "scsi0: a:d\n"})
	if err := os.Symlink(outside, filepath.Join(directory, "d.raw")); err != nil {
		t.Fatal(err)
	}
	if _, err := opened(t, filepath.Join(directory, "1.conf")); err == nil {
		t.Error("a link leads out of the directory")
	}
}

// FuzzProxmox reads what is called a text of Proxmox.
func FuzzProxmox(f *testing.F) {
	f.Add([]byte(proxmoxVM))
	f.Add([]byte("boot: cdn\nbootdisk: sata0\nsata0: a:b\nnet1: model=virtio,macaddr=02:00:00:00:00:01\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, drives, err := readProxmox(text)
		if err != nil {
			return
		}
		if len(drives) != len(m.Disks) {
			t.Fatalf("%d drives of %d disks", len(drives), len(m.Disks))
		}
		for i := range drives {
			if drives[i].key != m.Disks[i].Label {
				t.Errorf("drive %s is of disk %s", drives[i].key, m.Disks[i].Label)
			}
			for _, name := range drives[i].candidates() {
				if strings.Contains(name, "/") {
					t.Errorf("%s is looked for at %q", drives[i].key, name)
				}
			}
		}
		if vm, _, err := m.VM(Wish{Wish: backup.Wish{KeepIdentity: true}}); err == nil {
			admitted(t, vm)
		}
	})
}

// qcow2Of is an empty qcow2 image of version 2, of a disk of some size.
func qcow2Of(size uint64) string {
	const cluster = 64 << 10
	image := make([]byte, 3*cluster)
	copy(image, "QFI\xfb")
	big := binary.BigEndian
	big.PutUint32(image[4:], 2)
	big.PutUint32(image[20:], 16)
	big.PutUint64(image[24:], size)
	big.PutUint32(image[36:], 1)
	big.PutUint64(image[40:], cluster)
	big.PutUint64(image[48:], 2*cluster)
	big.PutUint32(image[56:], 1)
	return string(image)
}
