package domain

import (
	"slices"
	"strconv"

	v1 "kubevirt.io/api/core/v1"
	"libvirt.org/go/libvirtxml"

	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/pci"
	"github.com/virtkit/virtkit/pkg/vm/peripherals"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/vhostmd"
)

const (
	// sparePorts are the PCIe slots kept free for disks and NICs added while the guest runs.
	sparePorts = 4
	// agentChannel is the virtio-serial port that qemu-guest-agent opens.
	agentChannel = "org.qemu.guest_agent.0"
)

// addPeripherals adds everything but disks, NICs and controllers.
func addPeripherals(out *libvirtxml.DomainDeviceList, domain *v1.DomainSpec, facts Facts) error {
	spec := &domain.Devices
	if peripherals.SerialConsole(spec) {
		serial(out, facts, peripherals.SerialLog(spec))
	}
	out.Channels = append(out.Channels, libvirtxml.DomainChannel{
		Source: unixSocket(facts.AgentSocket),
		Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: agentChannel}},
	})
	if spec.DownwardMetrics != nil {
		out.Channels = append(out.Channels, libvirtxml.DomainChannel{
			Source: unixSocket(facts.MetricsPort),
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: vhostmd.Port}},
		})
	}
	graphics(out, spec, facts)
	inputs(out, spec)
	out.MemBalloon = balloon(domain, facts.Balloon)
	sound(out, spec.Sound)
	if spec.ClientPassthrough != nil {
		for _, socket := range facts.USBSockets {
			out.RedirDevs = append(out.RedirDevs, libvirtxml.DomainRedirDev{Bus: "usb", Source: unixSocket(socket)})
		}
	}
	if spec.Rng != nil {
		out.RNGs = append(out.RNGs, libvirtxml.DomainRNG{
			Model:   v1.VirtIO,
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		})
	}
	if w := spec.Watchdog; w != nil {
		if w.I6300ESB == nil {
			return field("spec.domain.devices.watchdog", "only i6300esb exists on x86")
		}
		action := string(w.I6300ESB.Action)
		if action == "" {
			action = string(v1.WatchdogActionReset)
		}
		out.Watchdogs = append(out.Watchdogs, libvirtxml.DomainWatchdog{
			Model: "i6300esb", Action: action,
			Alias: &libvirtxml.DomainAlias{Name: "ua-" + w.Name},
		})
	}
	if peripherals.TPM(spec) {
		t := spec.TPM
		emulator := &libvirtxml.DomainTPMBackendEmulator{Version: "2.0"}
		if enabled(t.Persistent, false) {
			emulator.PersistentState = "yes" // else libvirt removes it before the launcher has its last copy
		}
		out.TPMs = append(out.TPMs,
			libvirtxml.DomainTPM{Model: "tpm-crb", Backend: &libvirtxml.DomainTPMBackend{Emulator: emulator}})
	}
	for _, p := range spec.PanicDevices {
		model := v1.Pvpanic
		if p.Model != nil {
			model = *p.Model
		}
		out.Panics = append(out.Panics, libvirtxml.DomainPanic{Model: string(model)})
	}
	return nil
}

// reportsFreePages reports whether the guest gives the node memory back that it does not use. One that is on huge pages
// or has CPUs of its own is not to be disturbed by it, and the memory of one with devices of the node, or that is
// encrypted, is locked.
func reportsFreePages(domain *v1.DomainSpec) bool {
	huge := sizing.PageSize(domain) != 0
	locked := len(domain.Devices.GPUs) > 0 || len(domain.Devices.HostDevices) > 0 || passthrough.SEV(domain)
	return !huge && !locked && !sizing.Dedicated(domain)
}

// balloon returns the memory balloon, or says that there is none.
func balloon(domain *v1.DomainSpec, b Balloon) *libvirtxml.DomainMemBalloon {
	if !enabled(domain.Devices.AutoattachMemBalloon, true) {
		return &libvirtxml.DomainMemBalloon{Model: "none"}
	}
	out := &libvirtxml.DomainMemBalloon{
		Model:             modernModel,
		FreePageReporting: onOff(!b.KeepFreePages && reportsFreePages(domain)),
	}
	if b.Period > 0 {
		out.Stats = &libvirtxml.DomainMemBalloonStats{Period: b.Period}
	}
	return out
}

// vsock returns the device by which the guest and its node have connections without a network; nil for none.
func vsock(vmi *v1.VirtualMachineInstance) (*libvirtxml.DomainVSock, error) {
	if !passthrough.VSOCK(&vmi.Spec) {
		return nil, nil
	}
	cid := vmi.Status.VSOCKCID
	if cid == nil {
		return nil, field("spec.domain.devices.autoattachVSOCK", "virt-controller has given the guest no CID")
	}
	return &libvirtxml.DomainVSock{
		Model: v1.VirtIO,
		CID:   &libvirtxml.DomainVSockCID{Auto: "no", Address: strconv.FormatUint(uint64(*cid), 10)},
	}, nil
}

// DefaultSound is the model of a sound card that names none.
const DefaultSound = "ich9"

// sound adds the sound card. What it plays goes nowhere: no protocol of ours carries it.
func sound(out *libvirtxml.DomainDeviceList, card *v1.SoundDevice) {
	if card == nil {
		return
	}
	model := card.Model
	if model == "" {
		model = DefaultSound
	}
	out.Sounds = append(out.Sounds,
		libvirtxml.DomainSound{Model: model, Alias: &libvirtxml.DomainAlias{Name: aliasPrefix + card.Name}})
}

// serial adds the first serial port: a socket that virt-handler connects consoles to, and, if it is logged, a log of
// all the guest wrote. The log is appended to, so that the launcher may cut it while QEMU writes.
func serial(out *libvirtxml.DomainDeviceList, facts Facts, logged bool) {
	port := uint(0)
	log := &libvirtxml.DomainChardevLog{File: facts.SerialLog, Append: "on"}
	if !logged {
		log = nil
	}
	out.Serials = append(out.Serials, libvirtxml.DomainSerial{
		Source: unixSocket(facts.SerialSocket),
		Target: &libvirtxml.DomainSerialTarget{Port: &port},
		Log:    log,
	})
	out.Consoles = append(out.Consoles, libvirtxml.DomainConsole{
		Source: unixSocket(facts.SerialSocket),
		Target: &libvirtxml.DomainConsoleTarget{Type: "serial", Port: &port},
		Log:    log,
	})
}

func unixSocket(path string) *libvirtxml.DomainChardevSource {
	return &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: path}}
}

// graphics adds the video card and the VNC server, or nothing.
func graphics(out *libvirtxml.DomainDeviceList, spec *v1.Devices, facts Facts) {
	if !peripherals.Graphics(spec) {
		out.Videos = append(out.Videos, libvirtxml.DomainVideo{Model: libvirtxml.DomainVideoModel{Type: "none"}})
		return
	}
	model := libvirtxml.DomainVideoModel{Type: "vga", VRam: 16384, Heads: 1}
	if spec.Video != nil && spec.Video.Type != "" {
		model = libvirtxml.DomainVideoModel{Type: spec.Video.Type, Heads: 1}
	}
	out.Videos = append(out.Videos, libvirtxml.DomainVideo{Model: model})
	out.Graphics = append(out.Graphics, libvirtxml.DomainGraphic{VNC: &libvirtxml.DomainGraphicVNC{
		// Who may use the screen is virt-handler's to decide; a client that asks for it alone must not end another's
		// session.
		SharePolicy: "ignore",
		Listeners: []libvirtxml.DomainGraphicListener{
			{Socket: &libvirtxml.DomainGraphicListenerSocket{Socket: facts.VNCSocket}},
		},
	}})
}

// inputs adds the VMI's input devices, and for autoattachInputDevice a tablet when it lists none.
func inputs(out *libvirtxml.DomainDeviceList, spec *v1.Devices) {
	list := spec.Inputs
	if len(list) == 0 && enabled(spec.AutoattachInputDevice, false) {
		list = []v1.Input{{Name: "default-0", Type: v1.InputTypeTablet, Bus: v1.InputBusUSB}}
	}
	for _, in := range list {
		x := libvirtxml.DomainInput{
			Type: string(in.Type), Bus: string(in.Bus),
			Alias: &libvirtxml.DomainAlias{Name: "ua-" + in.Name},
		}
		if x.Type == "" {
			x.Type = string(v1.InputTypeTablet)
		}
		if x.Bus == "" {
			x.Bus = string(v1.InputBusUSB)
		}
		if x.Bus == string(v1.InputBusVirtio) {
			x.Model = v1.VirtIO
		}
		out.Inputs = append(out.Inputs, x)
	}
}

// controllers adds the controllers that libvirt would not choose as we want them: no USB where nothing is on it,
// virtio-scsi, also for disks that are plugged in later, and on PCIe machine types a root port for each device plus
// spare ones. plugged is the number of disks that the guest will get for certain once it runs.
func controllers(
	d *libvirtxml.DomainDeviceList, spec *v1.DomainSpec, tuning tuning, plugged int,
) []libvirtxml.DomainController {
	usb, scsi, express := len(d.RedirDevs) > 0, !spec.Devices.DisableHotplug, 0
	for _, x := range d.Disks {
		switch x.Target.Bus {
		case string(v1.DiskBusUSB):
			usb = true
		case string(v1.DiskBusSCSI):
			scsi = true
		case string(v1.DiskBusVirtio):
			express++
		}
	}
	for _, x := range d.Inputs {
		usb = usb || x.Bus == string(v1.InputBusUSB)
		if x.Bus == string(v1.InputBusVirtio) {
			express++
		}
	}
	for _, x := range d.Interfaces {
		if expressNIC(x.Model.Type) {
			express++
		}
	}
	if d.MemBalloon.Model == modernModel {
		express++
	}
	if d.VSock != nil {
		express++
	}
	for _, x := range d.Hostdevs {
		if x.SubsysUSB != nil {
			usb = true
		} else {
			express++
		}
	}
	express += len(d.RNGs) + len(d.Filesystems) + 1 // and virtio-serial

	index := uint(0)
	var out []libvirtxml.DomainController
	if usb {
		out = append(out, libvirtxml.DomainController{Type: "usb", Index: &index, Model: "qemu-xhci"})
		express++
	} else {
		out = append(out, libvirtxml.DomainController{Type: "usb", Index: &index, Model: "none"})
	}
	if scsi {
		out = append(out, *scsiController(tuning))
		express++
	}
	out = append(out, libvirtxml.DomainController{Type: "virtio-serial", Index: &index})
	if spec.Devices.DisableHotplug || !surface.IsQ35(machine(spec)) {
		return out
	}
	out = append(out, libvirtxml.DomainController{Type: "pci", Index: &index, Model: "pcie-root"})
	ports := express + plugged + sparePorts
	bridged := conventional(d, tuning.transitional)
	if bridged {
		ports++
	}
	for range ports {
		out = append(out, libvirtxml.DomainController{Type: "pci", Model: "pcie-root-port"})
	}
	if bridged {
		out = append(out, libvirtxml.DomainController{
			Type: "pci", Model: "pcie-to-pci-bridge",
			Address: address(pci.Address{Bus: lastFree(d, uint(ports))}),
		})
	}
	return out
}

// disableHole64 leaves no room for PCI devices above the guest's memory: 32-bit systems, such as Windows XP, fail on
// it. The room belongs to the root of the PCI bus.
func disableHole64(d *libvirtxml.DomainDeviceList, spec *v1.DomainSpec) {
	model := "pci-root"
	if surface.IsQ35(machine(spec)) {
		model = "pcie-root"
	}
	none := &libvirtxml.DomainControllerPCI{Hole64: &libvirtxml.DomainControllerPCIHole64{Unit: "KiB"}}
	for i := range d.Controllers {
		if d.Controllers[i].Model == model {
			d.Controllers[i].PCI = none
			return
		}
	}
	d.Controllers = append(d.Controllers, libvirtxml.DomainController{
		Type: "pci", Index: new(uint(0)), Model: model, PCI: none,
	})
}

// expressNIC reports the models that are PCIe devices.
func expressNIC(model string) bool { return model == v1.VirtIO || model == "e1000e" || model == "igb" }

// conventional reports devices that are PCI and not PCIe, and are on no bus of their chipset's.
func conventional(d *libvirtxml.DomainDeviceList, transitional bool) bool {
	ac97 := slices.ContainsFunc(d.Sounds, func(s libvirtxml.DomainSound) bool { return s.Model != DefaultSound })
	nics := slices.ContainsFunc(d.Interfaces,
		func(n libvirtxml.DomainInterface) bool { return !expressNIC(n.Model.Type) })
	panics := slices.ContainsFunc(d.Panics,
		func(p libvirtxml.DomainPanic) bool { return p.Model == string(v1.Pvpanic) })
	return transitional || ac97 || nics || panics || len(d.Watchdogs) > 0
}

// lastFree returns the last of the root ports that no device is given. A guest numbers its buses as it finds them, and
// finds another behind the bridge: from there on its numbers are not those of the ports.
func lastFree(d *libvirtxml.DomainDeviceList, ports uint) uint {
	taken := map[uint]bool{}
	take := func(a *libvirtxml.DomainAddress) {
		if a != nil && a.PCI != nil {
			taken[*a.PCI.Bus] = true
		}
	}
	for _, x := range d.Disks {
		take(x.Address)
	}
	for _, x := range d.Interfaces {
		take(x.Address)
	}
	for _, x := range d.Hostdevs {
		take(x.Address)
	}
	for ports > 1 && taken[ports] {
		ports--
	}
	return ports
}
