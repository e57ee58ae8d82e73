//go:build e2e

package e2e

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// seen is what machine a guest sees: the tiny guest's /usr/bin/info.
type seen struct {
	CPUs     int
	Topology struct{ Sockets, Cores, Threads int }
	TPM, RNG bool
	Serial   string
	Disks    []struct {
		Name, Serial, Address       string
		Queues, LogicalBlock, Bytes int
		ReadOnly                    bool
	}
	Interfaces []struct {
		Name, MAC, Address    string
		Queues, ACPIIndex, Up int
	}
	PCI  []string
	DHCP []struct{ TFTP, Bootfile, NTP, Option240 string }
}

func (g *guest) sees(t *testing.T) seen {
	t.Helper()
	var out seen
	if text := g.in(t, "info"); json.Unmarshal([]byte(text), &out) != nil {
		t.Fatalf("info says %s", text)
	}
	return out
}

// virtioDisk is a disk of an empty volume.
func emptyDisk(vm *v1.VirtualMachine, d v1.Disk) {
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, d)
	spec.Volumes = append(spec.Volumes, v1.Volume{
		Name:         d.Name,
		VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("8Mi")}},
	})
}

// acpiTable is a table of ACPI: a header of 36 bytes, and what is in it.
func acpiTable(signature, text string) []byte {
	table := make([]byte, 36, 36+len(text))
	copy(table, signature)
	binary.LittleEndian.PutUint32(table[4:], uint32(36+len(text)))
	table[8] = 1
	copy(table[10:], "VIRTKTVIRTKIT  ")
	table = append(table, text...)
	sum := byte(0)
	for _, b := range table {
		sum += b
	}
	table[9] = -sum
	return table
}

const nicMAC = "02:00:00:77:00:01"

// withHardware gives a VM one of each device, and a config drive.
func withHardware(vm *v1.VirtualMachine) {
	spec := &vm.Spec.Template.Spec
	spec.Domain.Memory.Guest = ptr(resource.MustParse("192Mi"))
	spec.Domain.CPU = withProcessor(&v1.CPU{Sockets: 1, Cores: 2, Threads: 1})
	spec.Domain.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}
	spec.Domain.IOThreadsPolicy = ptr(v1.IOThreadsPolicyAuto)
	spec.Domain.Firmware = &v1.Firmware{Serial: "machine-7"}
	virtio := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}
	devices := &spec.Domain.Devices
	devices.Disks[0].Serial, devices.Disks[0].Tag = "ROOT-1", "system"
	emptyDisk(vm, v1.Disk{
		Name: "own", DiskDevice: virtio, Serial: "OWN-1", DedicatedIOThread: ptr(true),
		BlockSize: &v1.BlockSize{MatchVolume: &v1.FeatureState{}},
	})
	emptyDisk(vm, v1.Disk{
		Name:       "placed",
		DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio, PciAddress: "0000:06:00.0"}},
		Serial:     "PLACED-1",
	})
	emptyDisk(vm, v1.Disk{
		Name: "slow", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}, Serial: "SLOW-1",
		Tag: "slow",
	})
	devices.Disks = append(devices.Disks, v1.Disk{Name: "drive", DiskDevice: virtio})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: "drive", VolumeSource: v1.VolumeSource{
		CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "#cloud-config\nuser: root\npassword: tiny\n"},
	}})
	devices.BlockMultiQueue, devices.NetworkInterfaceMultiQueue = ptr(true), ptr(true)
	nic := &devices.Interfaces[0]
	nic.MacAddress, nic.Tag, nic.ACPIIndex = nicMAC, "front", 7
	nic.DHCPOptions = &v1.DHCPOptions{
		BootFileName: "pxe.0", TFTPServerName: "tftp.example", NTPServers: []string{"192.0.2.1", "192.0.2.2"},
		PrivateOptions: []v1.DHCPPrivateOptions{{Option: 240, Value: "site"}},
	}
	spec.Domain.Firmware.ACPI = &v1.ACPI{SlicNameRef: "licence", MsdmNameRef: "licence"}
	spec.Volumes = append(spec.Volumes, v1.Volume{
		Name: "licence", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "licence"}},
	})
	devices.Rng, devices.TPM = &v1.Rng{}, &v1.TPMDevice{}
	devices.Sound = &v1.SoundDevice{Name: "card"}
	devices.ClientPassthrough = &v1.ClientPassthroughDevices{}
	devices.Inputs = []v1.Input{{Name: "pen", Type: v1.InputTypeTablet, Bus: v1.InputBusVirtio}}
	devices.PanicDevices = []v1.PanicDevice{{Model: ptr(v1.Pvpanic)}}
	withWatchdog(vm)
}

// withWatchdog gives the guest a watchdog that resets it.
func withWatchdog(vm *v1.VirtualMachine) {
	vm.Spec.Template.Spec.Domain.Devices.Watchdog = &v1.Watchdog{
		Name: "dog", WatchdogDevice: v1.WatchdogDevice{I6300ESB: &v1.I6300ESBWatchdog{Action: v1.WatchdogActionReset}},
	}
}

// PCI devices, as vendor:model.
const (
	pciSound    = "8086:293e" // ich9
	pciWatchdog = "8086:25ab" // i6300esb
	pciUSB      = "1b36:000d" // qemu-xhci
	pciPanic    = "1b36:0011" // pvpanic
	pciBalloon  = "1af4:1045"
)

// hungry starts the watchdog and never feeds it, in two stages of a second each. The guest's kernel has no driver for
// it.
const hungry = `for d in /sys/bus/pci/devices/*; do [ "$(cat $d/device)" = 0x25ab ] && break; done
echo 1 >$d/enable
base=$(awk 'NR == 1 { print $1 }' $d/resource)
for timer in 0 4; do
	devmem $((base + 12)) 16 0x80; devmem $((base + 12)) 16 0x86; devmem $((base + timer)) 32 1000
done
printf '\002' | dd of=$d/config bs=1 seek=104 conv=notrunc 2>/dev/null`

// A guest has the devices that its VM lists, as the VM says, also once it has moved; and they work.
func TestHardware(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	licence := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "licence"}, Data: map[string][]byte{
		"slic.bin": acpiTable("SLIC", "a licence"), "msdm.bin": acpiTable("MSDM", "a key"),
	}}
	if _, err := c.Kube.CoreV1().Secrets(ns).Create(t.Context(), licence, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g := c.create(t, newVM(ns, "hardware", v1.RunStrategyAlways, withHardware))
	g.waitLogin(t)
	check := func(t *testing.T, got seen) {
		t.Helper()
		if got.CPUs != 2 || got.Topology.Sockets != 1 || got.Topology.Cores != 2 || got.Topology.Threads != 1 {
			t.Errorf("%d CPUs, %+v", got.CPUs, got.Topology)
		}
		if !got.TPM || !got.RNG || got.Serial != "machine-7" {
			t.Errorf("TPM %v, rng %v, serial %q", got.TPM, got.RNG, got.Serial)
		}
		g.hasProcessor(t)
		for _, id := range []string{pciSound, pciWatchdog, pciUSB, pciPanic, pciBalloon} {
			if !slices.Contains(got.PCI, id) {
				t.Errorf("no PCI device %s among %v", id, got.PCI)
			}
		}
		disks := map[string]int{}
		for i, d := range got.Disks {
			disks[d.Serial] = i
		}
		for _, serial := range []string{"ROOT-1", "OWN-1", "PLACED-1", "SLOW-1"} {
			if _, ok := disks[serial]; !ok {
				t.Fatalf("no disk %s among %+v", serial, got.Disks)
			}
		}
		if d := got.Disks[disks["OWN-1"]]; d.Queues != 2 || d.LogicalBlock != 4096 {
			t.Errorf("disk %+v, want 2 queues and blocks of 4096 bytes", d)
		}
		if d := got.Disks[disks["PLACED-1"]]; d.Address != "0000:06:00.0" {
			t.Errorf("disk %+v is not where it should be", d)
		}
		if len(got.Interfaces) != 1 || got.Interfaces[0].MAC != nicMAC || got.Interfaces[0].Queues != 2 ||
			got.Interfaces[0].ACPIIndex != 7 {
			t.Errorf("interfaces %+v", got.Interfaces)
		}
		if len(got.DHCP) != 1 || got.DHCP[0].TFTP != "tftp.example" || got.DHCP[0].Bootfile != "pxe.0" ||
			got.DHCP[0].NTP != "192.0.2.1 192.0.2.2" ||
			got.DHCP[0].Option240 != hex.EncodeToString([]byte("site")) {
			t.Errorf("DHCP said %+v", got.DHCP)
		}
		for table, want := range map[string]string{"SLIC": "a licence", "MSDM": "a key"} {
			if text := g.in(t, "tail", "-c", strconv.Itoa(len(want)),
				"/sys/firmware/acpi/tables/"+table); text != want {
				t.Errorf("ACPI table %s ends with %q", table, text)
			}
		}
		var drive struct {
			Devices []struct {
				Type, Bus, Address, MAC, Serial string
				Tags                            []string
			}
		}
		text := g.in(t, "sh",
			"-c", "mount -o ro $(findfs LABEL=config-2) /mnt; cat /mnt/openstack/latest/meta_data.json; umount /mnt")
		if err := json.Unmarshal([]byte(text), &drive); err != nil || len(drive.Devices) != 3 {
			t.Fatalf("%v in %s", err, text)
		}
		for _, d := range drive.Devices {
			switch d.Tags[0] {
			case "front":
				if d.MAC != nicMAC || d.Address != got.Interfaces[0].Address {
					t.Errorf("tag %+v of interface %+v", d, got.Interfaces[0])
				}
			case "system":
				if root := got.Disks[disks["ROOT-1"]]; d.Serial != "ROOT-1" || d.Address != root.Address {
					t.Errorf("tag %+v of disk %+v", d, root)
				}
			case "slow":
				if d.Serial != "SLOW-1" || d.Bus != "scsi" {
					t.Errorf("tag %+v", d)
				}
			default:
				t.Errorf("tag %+v", d)
			}
		}
	}
	check(t, g.sees(t))
	if got := g.vmi(t).Status.Interfaces; len(got) != 1 || got[0].QueueCount != 2 {
		t.Errorf("status.interfaces %+v", got)
	}
	g.redirectUSB(t)

	g.waitMigration(t, g.migrate(t, "hardware"), v1.MigrationSucceeded)
	check(t, g.sees(t))
}

// TestWatchdog lets a watchdog that has moved with its guest reset it. The guest has one CPU: one with several may meet
// QEMU's race (raced) in each boot, and so here in the second.
func TestWatchdog(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	g := c.create(t, newVM(c.namespace(t, "restricted"), "watchdog", v1.RunStrategyAlways, withWatchdog))
	g.waitLogin(t)
	g.waitMigration(t, g.migrate(t, "watchdog"), v1.MigrationSucceeded)
	const bootID = "/proc/sys/kernel/random/boot_id"
	before := g.in(t, "cat", bootID)
	g.in(t, "sh", "-c", "(sleep 1; "+hungry+") >/dev/null 2>&1 &")
	eventually(t, bootTime, "the watchdog resets the guest", func() string {
		if g.in(t, "cat", bootID) == before {
			return "it has not"
		}
		return ""
	})
}

// redirectUSB connects as usbredirect does: each of the guest's ports greets its client with QEMU's hello, and when all
// are taken the next is told so.
func (g *guest) redirectUSB(t *testing.T) {
	t.Helper()
	kube := g.forwardClient(t)
	for n := range names.USBRedirections {
		conn, err := kube.USBRedir(t.Context(), g.ns, g.name)
		if err != nil {
			t.Fatalf("USB redirection %d: %v", n, err)
		}
		defer conn.Close()
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		// type, length and ID of 4 bytes each, then the version in 64: usbredir's first packet.
		hello := make([]byte, 12+64)
		if _, err := io.ReadFull(conn, hello); err != nil || !strings.Contains(string(hello[12:]), "qemu") {
			t.Fatalf("USB redirection %d: hello %q, %v", n, hello, err)
		}
	}
	if _, err := kube.USBRedir(t.Context(), g.ns, g.name); !apierrors.IsServiceUnavailable(err) ||
		!strings.Contains(err.Error(), strconv.Itoa(names.USBRedirections)) {
		t.Errorf("one more USB redirection: %v", err)
	}
}
