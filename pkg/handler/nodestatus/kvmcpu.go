package nodestatus

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of linux/kvm.h.
const (
	kvmCreateVM           = 0xAE01
	kvmGetMSRIndexList    = 0xC004AE02
	kvmCheckExtension     = 0xAE03
	kvmGetMSRFeatureIndex = 0xC004AE0A
	kvmCreateVCPU         = 0xAE41
	kvmGetMSRs            = 0xC008AE88
	kvmGetTSC             = 0xAEA3
)

// capTSCControl is KVM_CAP_TSC_CONTROL.
const capTSCControl = 60

// maxMSRs bounds what is asked of KVM, which knows some two hundred.
const maxMSRs = 4096

// Hardware is KVM's description of a node.
type Hardware struct {
	CPU
	// Enlightenments are the Hyper-V enlightenments that KVM offers, in KubeVirt's words.
	Enlightenments []string
	// TSC is the frequency of a guest's time stamp counter, ticks a second, 0 where it is not known; TSCScalable says
	// that KVM can change it.
	TSC         int64
	TSCScalable bool
}

// CPU is a processor as guests see it.
type CPU struct {
	Leaves map[Leaf]Registers
	// MSRs are model-specific registers that report features.
	MSRs map[uint32]uint64
}

// enlightenments are known by an extension of KVM, or by a register of Hyper-V's that KVM has, one of which is 0.
var enlightenments = []struct {
	name           string
	extension, msr uint32
}{
	{"base", 44, 0},
	{"time", 96, 0},
	{"synic", 123, 0},
	{"synic2", 148, 0},
	{"vpindex", 149, 0},
	{"tlbflush", 155, 0},
	{"ipi", 161, 0},
	{"reset", 0, 0x40000003},
	{"runtime", 0, 0x40000010},
	{"frequencies", 0, 0x40000022},
	{"synictimer", 0, 0x400000B0},
	{"reenlightenment", 0, 0x40000106},
}

// ReadHardware asks KVM.
func ReadHardware(device string) (*Hardware, error) {
	leaves, err := supportedCPUID(device)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	hardware := &Hardware{CPU: CPU{Leaves: leaves}}
	if hardware.MSRs, err = featureMSRs(f); err != nil {
		return nil, fmt.Errorf("ask %s for model-specific registers: %w", device, err)
	}
	registers, err := indexList(f, kvmGetMSRIndexList)
	if err != nil {
		return nil, fmt.Errorf("ask %s for the registers that it has: %w", device, err)
	}
	for _, e := range enlightenments {
		has := slices.Contains(registers, e.msr)
		if e.extension != 0 {
			n, err := request(f, kvmCheckExtension, uintptr(e.extension))
			has = err == nil && n > 0
		}
		if has {
			hardware.Enlightenments = append(hardware.Enlightenments, e.name)
		}
	}
	if hardware.TSC, hardware.TSCScalable, err = tsc(f); err != nil {
		return nil, fmt.Errorf("ask %s for the time stamp counter: %w", device, err)
	}
	return hardware, nil
}

// request makes an ioctl whose argument is a number.
func request(f *os.File, number, argument uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), number, argument)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// exchange makes an ioctl that reads and writes a buffer.
func exchange(f *os.File, number uintptr, buffer []byte) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), number, uintptr(unsafe.Pointer(&buffer[0])))
	runtime.KeepAlive(buffer)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// indexList reads a struct kvm_msr_list: a count, and that many 32-bit numbers.
func indexList(f *os.File, number uintptr) ([]uint32, error) {
	buffer := make([]byte, 4+4*maxMSRs)
	binary.NativeEndian.PutUint32(buffer, maxMSRs)
	if _, err := exchange(f, number, buffer); err != nil {
		return nil, err
	}
	out := make([]uint32, min(binary.NativeEndian.Uint32(buffer), maxMSRs))
	for i := range out {
		out[i] = binary.NativeEndian.Uint32(buffer[4+4*i:])
	}
	return out, nil
}

// featureMSRs reads the registers that report features: those that KVM lists and can say the value of.
func featureMSRs(f *os.File) (map[uint32]uint64, error) {
	indices, err := indexList(f, kvmGetMSRFeatureIndex)
	if err != nil {
		return nil, err
	}
	out := map[uint32]uint64{}
	for _, index := range indices {
		// struct kvm_msrs of one: how many, a spare word; index, a spare word, 64 bits of value. One at a time, since
		// KVM ends with the first that it cannot read.
		buffer := make([]byte, 8+16)
		binary.NativeEndian.PutUint32(buffer, 1)
		binary.NativeEndian.PutUint32(buffer[8:], index)
		if n, err := exchange(f, kvmGetMSRs, buffer); err == nil && n == 1 {
			out[index] = binary.NativeEndian.Uint64(buffer[16:])
		}
	}
	return out, nil
}

// tsc makes a guest with one CPU to ask it how often its time stamp counter ticks a second, and whether that can be
// changed.
func tsc(f *os.File) (frequency int64, scalable bool, err error) {
	n, err := request(f, kvmCreateVM, 0)
	if err != nil {
		return 0, false, err
	}
	guest := os.NewFile(uintptr(n), "kvm-vm")
	defer guest.Close()
	control, err := request(guest, kvmCheckExtension, capTSCControl)
	if err != nil {
		return 0, false, err
	}
	if n, err = request(guest, kvmCreateVCPU, 0); err != nil {
		return 0, false, err
	}
	cpu := os.NewFile(uintptr(n), "kvm-vcpu")
	defer cpu.Close()
	khz, err := request(cpu, kvmGetTSC, 0)
	if err != nil {
		return 0, false, nil // the node's counter is not steady
	}
	return int64(khz) * 1000, control > 0, nil
}
