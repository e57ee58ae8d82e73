package ovf

import (
	"cmp"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// cards are the network cards that others have, by their models here. A guest that has another one finds an E1000,
// for which every system has a driver.
var cards = map[string]string{"pcnet": "PCNet32"}

const otherCard, defaultModel = "E1000", "virtio"

// interfaces adds the network cards, and the networks that they are in.
func (d *description) interfaces(e *envelope) {
	nics, networks := macaddress.Interfaces(d.spec)
	named := map[string]bool{}
	for i := range nics {
		nic := &nics[i]
		if nic.State == v1.InterfaceStateAbsent {
			continue
		}
		name, description := NetworkPod, "The network of pods"
		if n := networks[nic.Name]; n != nil && n.Multus != nil {
			name, description = n.Multus.NetworkName, "A NetworkAttachmentDefinition"
		}
		if !named[name] {
			named[name] = true
			e.Networks.Networks = append(e.Networks.Networks, network{Name: name, Description: description})
		}
		model := cmp.Or(nic.Model, defaultModel)
		d.add(item{
			Address:             macaddress.Normal(cmp.Or(nic.MacAddress, d.macs[nic.Name])),
			AutomaticAllocation: "true", Connection: name, Description: "Network Adapter", ElementName: nic.Name,
			SubType: cmp.Or(cards[model], otherCard), Type: typeNIC, Model: &vendor{Text: model},
		})
	}
}

// firmware says what VMware's words for it are; a BIOS is what others have by themselves.
func (d *description) firmware(e *envelope) {
	value, secure := "bios", false
	if f := d.spec.Domain.Firmware; f != nil && f.Bootloader != nil && f.Bootloader.EFI != nil {
		value = "efi"
		secure = f.Bootloader.EFI.SecureBoot == nil || *f.Bootloader.EFI.SecureBoot
	}
	configs := &e.System.Hardware.Configs
	*configs = append(*configs, vmwareConfig{Key: "firmware", Value: value})
	if secure {
		*configs = append(*configs, vmwareConfig{Key: "bootOptions.efiSecureBootEnabled", Value: "true"})
	}
}

// MACs returns the addresses that are recorded in the annotation of a VM, whose namespace is not known any more.
func MACs(vm *v1.VirtualMachine) map[string]string {
	record, err := macaddress.Decode(vm.Annotations[macaddress.Annotation])
	if err != nil || !strings.HasSuffix(record.VM, "/"+vm.Name) {
		return nil
	}
	return record.Interfaces
}

// AnnotationOS is KubeVirt's annotation of a VM's template, also by its common preferences: the guest's system.
const AnnotationOS = "vm.kubevirt.io/os"

// systems are the guests' systems by the beginnings of what the annotation says: CIM_OperatingSystem's number, and
// VMware's name. The first that fits counts.
var systems = []struct {
	begins string
	id     int
	vmware string
}{
	{"windows11", 1, "windows11_64Guest"},
	{"windows10", 1, "windows9_64Guest"},
	{"windows2k22", 1, "windows2019srvNext_64Guest"},
	{"windows2k19", 1, "windows2019srv_64Guest"},
	{"windows2k16", 1, "windows9Server64Guest"},
	{"windows", 1, "windows9_64Guest"},
	{"debian", 96, "debian10_64Guest"},
	{"ubuntu", 94, "ubuntu64Guest"},
	{"centos", 107, "centos7_64Guest"},
	{"rhel", 80, "rhel7_64Guest"},
	{"sles", 85, "sles12_64Guest"},
	{"opensuse", 83, "opensuse64Guest"},
	{"fedora", 101, "fedora64Guest"},
	{"linux", 101, "otherLinux64Guest"},
}

// osOf returns the guest's system, as far as it is known.
func osOf(vm *v1.VirtualMachine) operatingSystem {
	out := operatingSystem{ID: 1, VMware: "otherGuest64", Info: "The guest's system", Description: "Other"}
	is := cmp.Or(vm.Spec.Template.ObjectMeta.Annotations[AnnotationOS], vm.Annotations[AnnotationOS])
	if is == "" {
		return out
	}
	out.Description = is
	is = strings.NewReplacer(".", "", "-", "", "_", "").Replace(strings.ToLower(is))
	for _, of := range systems {
		if strings.HasPrefix(is, of.begins) {
			out.ID, out.VMware = of.id, of.vmware
			return out
		}
	}
	return out
}
