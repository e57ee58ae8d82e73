package handler

import (
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

// granted returns the devices that the kubelet has granted to a launcher.
func (n *Node) granted(process *podfs.Process) (podfs.Devices, error) {
	return podfs.Granted(n.ProcDir, n.PodsDir, n.Rights.Plugins, process.Pod)
}

// nodeDevices are the directories in which a pod has the devices of its node, if it has any.
var nodeDevices = []string{"/dev/vfio", "/dev/bus/usb"}

// readyForDevices gives the launcher of a guest with devices of its node those that the kubelet put into the pod as
// root's, and lets it lock as much memory as they can reach; of one whose memory is encrypted, all.
func (s *session) readyForDevices(vmi *v1.VirtualMachineInstance, process *podfs.Process) error {
	if !passthrough.Locks(&vmi.Spec) {
		return nil
	}
	for _, dir := range nodeDevices {
		if !passthrough.VFIO(&vmi.Spec) {
			break // the right to lock is all it needs
		}
		granted, err := s.node.granted(process)
		if err != nil {
			return err
		}
		if err := process.GiveDevices(dir, granted); err != nil {
			return fmt.Errorf("devices of the node: %w", err)
		}
	}
	if err := process.AllowLocked(s.node.ProcDir, passthrough.Locked(&vmi.Spec)); err != nil {
		return fmt.Errorf("memory that is locked: %w", err)
	}
	return nil
}
