package store

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "kubevirt.io/api/core/v1"
)

// Machines joins VirtualMachines and instances into machines.
type Machines struct {
	vms, vmis *Table[part]

	reading sync.Mutex // one joins at a time
	joined  []*Machine // in the order of Compare

	mu      sync.Mutex
	pending map[Key]bool
	all     bool // everything is to be joined anew
}

// NewMachines makes an empty table; changed, which must not block, is called after each change.
func NewMachines(changed func()) *Machines {
	m := &Machines{pending: map[Key]bool{}}
	m.vms, m.vmis = NewTable[part](changed), NewTable[part](changed)
	m.vms.touched, m.vmis.touched = m.touch, m.touch
	return m
}

// Feed keeps the machines current until ctx ends.
func (m *Machines) Feed(ctx context.Context, vms, vmis Source) {
	var feeds sync.WaitGroup
	feeds.Go(func() { Feed(ctx, m.vms, "virtualmachines", vms, ofVM) })
	feeds.Go(func() { Feed(ctx, m.vmis, "virtualmachineinstances", vmis, ofVMI) })
	feeds.Wait()
}

// State returns the worse of the two feeds'.
func (m *Machines) State() State { return Worst(m.vms.State(), m.vmis.State()) }

// Worst returns the state of rows that are made of several tables.
func Worst(states ...State) State {
	out := states[0]
	for _, s := range states[1:] {
		out.Synced = out.Synced && s.Synced
		if s.Stale() && (!out.Stale() || s.Since.Before(out.Since)) {
			out.Since, out.Err = s.Since, s.Err
		}
	}
	return out
}

// touch remembers what is to be joined anew.
func (m *Machines) touch(keys []Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if keys == nil {
		m.all = true
	}
	for _, key := range keys {
		m.pending[key] = true
	}
}

// Rows returns all machines, in the order of Compare. The slice is the caller's; the machines are not to be changed.
func (m *Machines) Rows() []*Machine {
	m.reading.Lock()
	defer m.reading.Unlock()
	// The tables call touch with their lock held, so theirs is never asked for with m.mu held.
	m.mu.Lock()
	all, pending := m.all, m.pending
	m.all, m.pending = false, map[Key]bool{}
	m.mu.Unlock()

	if all {
		for _, p := range m.vms.Rows() {
			pending[p.Key()] = true
		}
		for _, p := range m.vmis.Rows() {
			pending[p.Key()] = true
		}
		m.joined = make([]*Machine, 0, len(pending))
		for key := range pending {
			if row := join(m.vms.Get(key), m.vmis.Get(key)); row != nil {
				m.joined = append(m.joined, row)
			}
		}
		slices.SortFunc(m.joined, Compare)
		return slices.Clone(m.joined)
	}
	for key := range pending {
		row := join(m.vms.Get(key), m.vmis.Get(key))
		at, found := slices.BinarySearchFunc(m.joined, key, compareKey)
		switch {
		case found && row == nil:
			m.joined = slices.Delete(m.joined, at, at+1)
		case found:
			m.joined[at] = row
		case row != nil:
			m.joined = slices.Insert(m.joined, at, row)
		}
	}
	return slices.Clone(m.joined)
}

// Get returns one machine, or nil.
func (m *Machines) Get(key Key) *Machine { return join(m.vms.Get(key), m.vmis.Get(key)) }

// Load takes objects at hand for all there are, as a feed's first list does.
func (m *Machines) Load(vms []v1.VirtualMachine, vmis []v1.VirtualMachineInstance) {
	parts := make(map[Key]*part, len(vms))
	for i := range vms {
		p := ofVM(&vms[i])
		parts[p.Key()] = p
	}
	m.vms.replace(parts)
	parts = make(map[Key]*part, len(vmis))
	for i := range vmis {
		p := ofVMI(&vmis[i])
		parts[p.Key()] = p
	}
	m.vmis.replace(parts)
}

// Lost records that there is no connection since now, and why, as the feeds do.
func (m *Machines) Lost(now time.Time, err error) {
	m.vms.Lost(now, err)
	m.vmis.Lost(now, err)
}
