// Package lifecycle is the state machine of a launcher's guest: where the guest is, who decides about it, and what may
// follow. It is a table and nothing else: package launcher applies events and acts on the transitions.
//
//	None ──Start──► Starting ──FinishStart──► Active ◄────FailMigration─────┐
//	  │                                         ▲ └──────────Migrate────────┤
//	Expect                                      │                           ▼
//	  ▼                                         │   ┌──FailPostCopy──── Migrating ◄──┐
//	Incoming ──DomainRunning (post-copy)──►─────┤   ▼                       │         │
//	  │                                         │ PostCopyFailed       StartHandoff TakeBack
//	DomainPaused                    DomainRunning                           ▼         │
//	  ▼                                         │                      HandingOver ───┘
//	Received ──Release──► Released ──TakeOver──► TakenOver                  │
//	  │                                                               FinishHandoff
//	the domain ends                                                         ▼
//	  ▼                                                                HandedOver ──CompleteMigration──► MigratedAway
//	NeverRan
//
// Nearly every state can end in ShutOff, Crashed or Destroyed. The path from Incoming to Active is the target's half of
// a migration, the one from Migrating to MigratedAway the source's. They meet in the handoff (package launcher): of
// HandingOver and TakenOver, at most TakenOver lets its QEMU run.
//
// An active guest runs, is paused or is shutting down: libvirt says which, and GuestState.lifecycle reports it.
//
// Observations report what others do: libvirt's reports, the source's answer, the request to shut down. They are never
// illegal; one that the table does not name changes nothing. Actions are the launcher's own. One that the table does
// not name is illegal: a mistake in the launcher, which changes nothing. A guest that has ended stays so, whatever
// comes.
package lifecycle

import (
	"fmt"
	"slices"
)

// State says where the guest is.
type State int

const (
	// None: no domain yet, and none is being made.
	None State = iota
	// Starting: libvirt is making the domain.
	Starting
	// Incoming: the launcher waits for the guest of another one.
	Incoming
	// Received: the guest is here, complete, and stopped. Its source may still let it go on there.
	Received
	// NeverRan: a received guest ended before it was started. Its source is notified.
	NeverRan
	// Released: the source has let the guest go, and it was not started here yet.
	Released
	// TakenOver: the guest is being started here, and may have run.
	TakenOver
	// Active: the domain is here, and no migration is under way.
	Active
	// Migrating: libvirt copies the guest to another launcher.
	Migrating
	// HandingOver: QEMU is stopped here, complete, and the target may start the guest.
	HandingOver
	// HandedOver: the target runs the guest, and QEMU has been killed here.
	HandedOver
	// PostCopyFailed: a migration failed after the guest had left by post-copy. It cannot go on on either side.
	PostCopyFailed
	// ShutOff: the guest powered itself off, or was asked to before it had started.
	ShutOff
	// Crashed: QEMU died, the guest panicked, or libvirt lost it.
	Crashed
	// Destroyed: the guest was powered off by force.
	Destroyed
	// MigratedAway: the guest runs on in another launcher.
	MigratedAway
)

// States are all states.
var States = []State{
	None, Starting, Incoming, Received, NeverRan, Released, TakenOver, Active, Migrating, HandingOver, HandedOver,
	PostCopyFailed, ShutOff, Crashed, Destroyed, MigratedAway,
}

var stateNames = map[State]string{
	None: "none", Starting: "starting", Incoming: "incoming", Received: "received", NeverRan: "neverRan",
	Released: "released", TakenOver: "takenOver", Active: "active", Migrating: "migrating", HandingOver: "handingOver",
	HandedOver: "handedOver", PostCopyFailed: "postCopyFailed", ShutOff: "shutOff", Crashed: "crashed",
	Destroyed: "destroyed", MigratedAway: "migratedAway",
}

// String returns the state's name in logs.
func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	return fmt.Sprintf("state(%d)", int(s))
}

func (s State) in(states ...State) bool { return slices.Contains(states, s) }

// Final reports whether the guest is gone from here.
func (s State) Final() bool { return s.in(ShutOff, Crashed, Destroyed, MigratedAway) }

// HasGuest reports whether the guest is here and is this launcher's: it can be looked at and steered.
func (s State) HasGuest() bool { return s == Active || s.Leaving() || s == PostCopyFailed }

// HasDomain reports whether libvirt has a domain, be it one that may run only once its source permits it.
func (s State) HasDomain() bool { return s.HasGuest() || s.in(Received, Released, TakenOver) }

// Target reports whether the guest comes by a migration and is not yet active.
func (s State) Target() bool { return s.in(Incoming, Received, NeverRan, Released, TakenOver) }

// Leaving reports whether a migration to another launcher is under way.
func (s State) Leaving() bool { return s.in(Migrating, HandingOver, HandedOver) }

// MayHaveRun reports whether the guest may have run here, and may have written to its disks.
func (s State) MayHaveRun() bool { return s == TakenOver || s.HasGuest() }

// HoldsEnd reports whether the end of the domain is kept back until it is known what it means.
func (s State) HoldsEnd() bool { return s.in(Starting, NeverRan) || s.Leaving() }
