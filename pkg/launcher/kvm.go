package launcher

import (
	"os"

	"golang.org/x/sys/unix"
)

// kvmGetAPIVersion is KVM_GET_API_VERSION of linux/kvm.h, and kvmAPIVersion what every KVM since
// 2007 answers.
const (
	kvmGetAPIVersion = 0xAE00
	kvmAPIVersion    = 12
)

// hardwareKVM reports whether the device is there and answers. The pod has it only where virt-handler's device plugin
// gave it, which it does for hardware virtualisation alone.
func hardwareKVM(device string) bool {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	version, err := unix.IoctlRetInt(int(f.Fd()), kvmGetAPIVersion)
	closed := f.Close()
	return err == nil && closed == nil && version == kvmAPIVersion
}
