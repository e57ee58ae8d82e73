package foreign

import (
	"archive/tar"
	"io"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
)

// incusVMText is the index of a backup of a VM.
const incusVMText = `name: web
backend: dir
pool: default
snapshots: [before]
optimized: false
type: virtual-machine
config:
  instance:
    architecture: x86_64
    expanded_config:
      cloud-init.user-data: "#cloud-config"
      limits.cpu: "3"
      limits.memory: 2GiB
      security.secureboot: "false"
      volatile.eth0.hwaddr: 00:16:3e:01:02:03
      volatile.uuid: 6f0ac28e-3f3c-4b52-a3a2-1a2b3c4d5e6f
    expanded_devices:
      eth0: {name: eth0, network: incusbr0, type: nic}
      gpu: {type: gpu}
      more: {pool: default, source: data, type: disk}
      root: {path: /, pool: default, size: 10GiB, type: disk}
`

// A backup of Incus becomes a VM with its disk; the links among the VM's own files are passed over.
func TestIncus(t *testing.T) {
	link := member{tar.Header{Typeflag: tar.TypeSymlink, Name: "backup/virtual-machine/qemu.nvram", Linkname: "x"}, nil}
	f, err := opened(t, pack(t, file("backup/index.yaml", incusVMText), link,
		file("backup/virtual-machine.img", raw())))
	if err != nil {
		t.Fatal(err)
	}
	made, err := f.Make(Wish{Wish: backup.Wish{KeepIdentity: true}})
	if err != nil {
		t.Fatal(err)
	}
	domain := made.VM.Spec.Template.Spec.Domain
	if made.VM.Name != "web" || domain.CPU.Sockets != 3 || domain.Memory.Guest.Value() != 2<<30 ||
		domain.Firmware.UUID != "6f0ac28e-3f3c-4b52-a3a2-1a2b3c4d5e6f" || *domain.Firmware.Bootloader.EFI.SecureBoot ||
		domain.Devices.Interfaces[0].Model != "virtio" ||
		domain.Devices.Interfaces[0].MacAddress != "00:16:3e:01:02:03" ||
		len(domain.Devices.Disks) != 1 || domain.Devices.Disks[0].Disk.Bus != v1.DiskBusSCSI {
		t.Errorf("%+v", domain)
	}
	image := f.Payloads(made)[0].Image
	if got, err := io.ReadAll(io.NewSectionReader(image, 0, image.Size)); err != nil || string(got) != raw() {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	said := strings.Join(made.NotIncluded, "\n")
	for _, want := range []string{
		"cloud-init.user-data", "gpu (gpu)", "more, a disk of data", "snapshots (1)", "EFI variables",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}

// What cannot be imported says why.
func TestIncusRefused(t *testing.T) {
	change := func(old, new string) member {
		return file("backup/index.yaml", strings.Replace(incusVMText, old, new, 1))
	}
	disk, same := file("backup/virtual-machine.img", raw()), change("", "")
	hard := member{tar.Header{Typeflag: tar.TypeLink, Name: "backup/a"}, nil}
	for want, path := range map[string]string{
		`of type "container"`:     pack(t, change("virtual-machine", "container"), disk),
		"--optimized-storage":     pack(t, change("optimized: false", "optimized: true"), disk),
		`is of "aarch64"`:         pack(t, change("x86_64", "aarch64"), disk),
		"no config.instance":      pack(t, change("instance:", "other:"), disk),
		"no root disk":            pack(t, change("path: /,", ""), disk),
		"has no backup/virtual-":  pack(t, same),
		"it is no index":          pack(t, file("backup/index.yaml", "- a"), disk),
		"not a file, but a link":  pack(t, same, hard),
		"leads out of the archiv": pack(t, same, file("backup/../../a", "")),
	} {
		if _, err := opened(t, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// FuzzIncus reads what is called an index of a backup.
func FuzzIncus(f *testing.F) {
	f.Add([]byte(incusVMText))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := readIncus(text)
		if err != nil {
			return
		}
		for i := range m.Disks {
			if m.Disks[i].File != incusDisk {
				t.Errorf("disk %d is %q", i, m.Disks[i].File)
			}
		}
		if vm, _, err := m.VM(Wish{Wish: backup.Wish{KeepIdentity: true}}); err == nil {
			admitted(t, vm)
		}
	})
}
