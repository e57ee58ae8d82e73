package vmicontroller

import (
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

func TestCIDs(t *testing.T) {
	vmi := func(uid types.UID, cid uint32) v1.VirtualMachineInstance {
		out := v1.VirtualMachineInstance{}
		out.UID = uid
		if cid != 0 {
			out.Status.VSOCKCID = &cid
		}
		return out
	}
	var c cids
	all := []v1.VirtualMachineInstance{vmi("a", 0), vmi("b", 0), vmi("old", 4)}
	if got := c.of("a", all, 0); got != 3 {
		t.Errorf("a has %d", got)
	}
	if got := c.of("b", all, 0); got != 5 { // 3 is given, 4 in a status
		t.Errorf("b has %d", got)
	}
	if got := c.of("a", all, 77); got != 3 {
		t.Errorf("a has %d the second time", got)
	}
	all[0] = vmi("a", 3)
	if got := c.of("c", append(all, vmi("c", 0)), 0); got != 6 || len(c.given) != 2 {
		t.Errorf("c has %d, given %v", got, c.given)
	}
	// b was deleted before it had a pod: another may have its CID.
	if got := c.of("d", []v1.VirtualMachineInstance{vmi("a", 3), vmi("d", 0)}, 1); got != 4 || len(c.given) != 1 {
		t.Errorf("d has %d, given %v", got, c.given)
	}
	if got := c.of("e", []v1.VirtualMachineInstance{vmi("e", 0), vmi("f", math.MaxUint32-1)}, manyCIDs-1); got != 3 {
		t.Errorf("after the last comes %d", got)
	}
}

func TestCIDInStatus(t *testing.T) {
	vmi := parseVMI(t, `spec: {domain: {devices: {autoattachVSOCK: true}}}`)
	vmi.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
	pod := Pod(vmi, baseFacts())
	pod.UID, pod.Spec.NodeName = "p", "node1"
	view := View{VMI: vmi, CID: 9, Now: now, Created: map[types.UID]string{"p": purposeLauncher}}
	view.Pods = append(view.Pods, pod)
	if got := Next(view).Status.VSOCKCID; got == nil || *got != 9 {
		t.Errorf("CID %v", got)
	}
	view.CID = 0
	if got := Next(view).Status.VSOCKCID; got != nil {
		t.Errorf("a guest without vsock has CID %d", *got)
	}
}
