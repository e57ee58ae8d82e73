// Package peripherals answers which of the devices that a spec may leave unsaid a guest has: a screen, a serial
// console, a TPM. The domain is built by it, its pod sized, and virt-api says by it whether there is something to
// connect to. It is pure. vsock is in pkg/vm/passthrough; which state of a TPM is kept, in pkg/vm/vmstate.
package peripherals

import v1 "kubevirt.io/api/core/v1"

// Graphics reports whether a guest has a video card and a VNC server: unless the spec says no.
func Graphics(devices *v1.Devices) bool {
	return devices.AutoattachGraphicsDevice == nil || *devices.AutoattachGraphicsDevice
}

// SerialConsole reports whether a guest has a serial console: unless the spec says no.
func SerialConsole(devices *v1.Devices) bool {
	return devices.AutoattachSerialConsole == nil || *devices.AutoattachSerialConsole
}

// SerialLog reports whether what a guest writes to its serial console is kept: unless the spec says no.
func SerialLog(devices *v1.Devices) bool {
	return SerialConsole(devices) && (devices.LogSerialConsole == nil || *devices.LogSerialConsole)
}

// TPM reports whether a guest has a TPM, with or without state that is kept: if the spec names one that is not
// disabled.
func TPM(devices *v1.Devices) bool {
	return devices.TPM != nil && (devices.TPM.Enabled == nil || *devices.TPM.Enabled)
}
