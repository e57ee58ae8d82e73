package nodestatus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kvmGetSupportedCPUID is KVM_GET_SUPPORTED_CPUID of linux/kvm.h: _IOWR(KVMIO, 0x05, struct kvm_cpuid2).
const kvmGetSupportedCPUID = 0xC008AE05

// maxLeaves bounds what is asked of KVM; the kernel has a bound of 256 itself.
const maxLeaves = 256

// leafSize is the size of struct kvm_cpuid_entry2, bytes: function, index, flags, eax, ebx, ecx, edx and three spare
// words.
const leafSize = 40

// Leaf is a CPUID function with its index.
type Leaf struct{ Function, Index uint32 }

// Registers are the answer of CPUID: EAX, EBX, ECX, EDX.
type Registers [4]uint32

// supportedCPUID returns the CPU that KVM can give to guests, but for its model-specific registers.
func supportedCPUID(device string) (map[Leaf]Registers, error) {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buffer := make([]byte, 8+maxLeaves*leafSize)
	binary.NativeEndian.PutUint32(buffer, maxLeaves)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), kvmGetSupportedCPUID, uintptr(unsafe.Pointer(&buffer[0])))
	runtime.KeepAlive(buffer)
	if errno != 0 {
		return nil, fmt.Errorf("ask %s which CPU it supports: %w", device, errno)
	}
	return leaves(buffer)
}

// leaves reads a struct kvm_cpuid2.
func leaves(buffer []byte) (map[Leaf]Registers, error) {
	n := int(binary.NativeEndian.Uint32(buffer))
	if n > (len(buffer)-8)/leafSize {
		return nil, errors.New("KVM reports more than was asked for")
	}
	out := map[Leaf]Registers{}
	for i := range n {
		word := func(k int) uint32 { return binary.NativeEndian.Uint32(buffer[8+i*leafSize+4*k:]) }
		out[Leaf{word(0), word(1)}] = Registers{word(3), word(4), word(5), word(6)}
	}
	return out, nil
}
