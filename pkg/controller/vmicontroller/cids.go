package vmicontroller

import (
	"context"
	"fmt"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

// firstCID is the least vsock CID that a guest can have: 0 to 2 are the hypervisor, the loop and the host, and the last
// number means any.
const (
	firstCID = 3
	manyCIDs = math.MaxUint32 - firstCID
)

// cids gives guests vsock CIDs, each its own in the whole cluster: a guest keeps its CID when it moves. The zero value
// is ready.
type cids struct {
	mu sync.Mutex
	// given holds the CIDs that may not be in the VMIs' status yet, by UID.
	given map[types.UID]uint32
}

// of returns the CID for a VMI, the same until it is in its status. all are the existing VMIs; from is the first CID to
// try.
func (c *cids) of(vmi types.UID, all []v1.VirtualMachineInstance, from uint32) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken, there := map[uint32]bool{}, map[types.UID]bool{vmi: true}
	for i := range all {
		there[all[i].UID] = true
		if cid := all[i].Status.VSOCKCID; cid != nil {
			taken[*cid] = true
			delete(c.given, all[i].UID)
		}
	}
	for uid, cid := range c.given {
		if !there[uid] {
			delete(c.given, uid)
			continue
		}
		taken[cid] = true
	}
	if cid, ok := c.given[vmi]; ok {
		return cid
	}
	cid := firstCID + from%manyCIDs
	for taken[cid] {
		cid = firstCID + (cid-firstCID+1)%manyCIDs
	}
	if c.given == nil {
		c.given = map[types.UID]uint32{}
	}
	c.given[vmi] = cid
	return cid
}

// lookAtCID finds a CID for a VMI that is to have one and has none yet.
func (r *Reconciler) lookAtCID(ctx context.Context, view *View) error {
	vmi := view.VMI
	if !passthrough.VSOCK(&vmi.Spec) || vmi.Status.VSOCKCID != nil || Scheduled(vmi) || vmi.DeletionTimestamp != nil {
		return nil
	}
	var all v1.VirtualMachineInstanceList
	if err := r.Client.List(ctx, &all); err != nil {
		return fmt.Errorf("list VMIs: %w", err)
	}
	view.CID = r.cids.of(vmi.UID, all.Items, r.Random(manyCIDs))
	return nil
}
