// Package domain turns a VirtualMachineInstance into the libvirt domain that runs it. It is pure:
// the input is the VMI as admitted and the Facts that the launcher knows about its pod (is there
// KVM, where are the disks, which taps exist); the output is libvirt's XML. It reads no file and
// asks nobody, so every supported field has a golden file in testdata.
//
//	VMI spec ──┐
//	disks ─────┼─► Build ─► *libvirtxml.Domain ─► hypervisor.Create
//	network ───┘
//
// pkg/vm/disk prepares the files that Facts.Disks names; pkg/launcher calls both.
package domain

import (
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Facts hold what a domain depends on besides its VMI.
type Facts struct {
	// KVM says that /dev/kvm is usable. Without it the domain type is qemu (TCG).
	KVM bool
	// Emulator is the path of the QEMU binary.
	Emulator string
	// Firmware are the UEFI images.
	Firmware Firmware
	// NVRAM is the path of this guest's UEFI variable store; libvirt makes it from the template.
	NVRAM string
	// SMBIOS is the cluster's configuration of SMBIOS; empty fields are KubeVirt's defaults.
	SMBIOS v1.SMBiosConfiguration
	// Ignition is the path of Ignition's configuration, which annotation kubevirt.io/ignitiondata holds.
	Ignition string
	// Kernel and Initrd are the paths of the files that firmware.kernelBoot names.
	Kernel, Initrd string
	// Disks are the prepared images by volume name.
	Disks map[string]Source
	// Network is the plan that virt-handler has applied.
	Network network.Plan
	// CPUs are the pod's, for a guest that has some of its own.
	CPUs []HostCPU
	// SerialSocket and SerialLog are the first serial port's socket and log, VNCSocket and
	// AgentSocket the unix sockets of the VNC server and the guest agent's channel.
	SerialSocket, SerialLog string
	VNCSocket               string
	AgentSocket             string
	// Secrets is the directory that has one for each volume of a Secret.
	Secrets string
	// USBSockets are the sockets to which USB devices of clients are redirected, one for each.
	USBSockets []string
	// MetricsPort is the socket of the port for devices.downwardMetrics.
	MetricsPort string
	// Balloon is the cluster's configuration of memory balloons.
	Balloon Balloon
	// PluginVariables are the environment variables in which device plugins write which devices the pod got
	// (passthrough.Environment).
	PluginVariables map[string]string
}

// Balloon is a guest's memory balloon as the cluster's configuration has it.
type Balloon struct {
	// Period is the interval at which the guest reports its memory statistics, seconds; 0 means never.
	Period uint
	// KeepFreePages says that the guest does not give back the pages that it does not use.
	KeepFreePages bool
}

// Blocks are block sizes in bytes. Discard is 0 where it is not known.
type Blocks struct {
	Logical, Physical, Discard uint
}

// Firmware are paths of UEFI images and their variable store templates, without and with Secure
// Boot (the latter with Microsoft's keys enrolled).
type Firmware struct {
	Code, Vars             string
	SecureCode, SecureVars string
}

// Source is one prepared disk image.
type Source struct {
	// Path is a file, or a device node when Block is set.
	Path  string
	Block bool
	// Format is raw or qcow2. It is always said and never probed, since the guest writes the image.
	Format string
	// Backing is the backing image of a qcow2 overlay.
	Backing *Source
	// ReadOnly says that the image cannot be written, whatever the VMI's disk says.
	ReadOnly bool
	// Checksum is a container disk's (disk.Checksum); zero for other images.
	Checksum uint32 `json:",omitempty"`
	// Blocks are the block sizes of the image's storage; nil where nobody asked.
	Blocks *Blocks `json:",omitempty"`
	// Live says that the image changes while the guest runs, by other hands: it is not to be cached for long.
	Live bool `json:",omitempty"`
	// DirectIO says that the image (and what backs it) opens with O_DIRECT.
	DirectIO bool
}
