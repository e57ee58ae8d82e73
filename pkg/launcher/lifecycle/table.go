package lifecycle

import "fmt"

// table has what follows on an event in a state. What it does not name is said in the package comment.
var table = map[State]map[Event]State{
	None: {
		Start: Starting, Expect: Incoming, DomainFound: Active, Shutdown: ShutOff,
	},
	Starting: {
		// Found by a new connection, the domain is there whatever becomes of the call that makes it.
		FinishStart: Active, FailStart: None, DomainFound: Active, Shutdown: ShutOff,
	},
	Incoming: {
		// It runs without having been received when libvirt starts it: with post-copy.
		DomainPaused: Received, DomainRunning: Active, Shutdown: ShutOff,
	},
	Received: {
		Release: Released, DomainRunning: Active, Shutdown: ShutOff,
		DomainShutOff: NeverRan, DomainCrashed: NeverRan, DomainDestroyed: NeverRan, DomainMigrated: NeverRan,
	},
	NeverRan: {
		// The end comes a second time, when the source has had the time to hear of it.
		DomainShutOff: ShutOff, DomainCrashed: Crashed, DomainDestroyed: Destroyed, DomainMigrated: MigratedAway,
		Shutdown: ShutOff,
	},
	Released: {
		TakeOver: TakenOver, DomainRunning: Active, Shutdown: ShutOff,
		DomainShutOff: ShutOff, DomainCrashed: Crashed, DomainDestroyed: Destroyed, DomainMigrated: MigratedAway,
	},
	TakenOver: {
		// Shutdown does not end it here, as it may run: it is shut down like any other.
		DomainPaused: Active, DomainRunning: Active, DomainStopping: Active,
		DomainShutOff: ShutOff, DomainCrashed: Crashed, DomainDestroyed: Destroyed, DomainMigrated: MigratedAway,
	},
	Active: {
		// A new connection may have found it before it was known whether libvirt has made it.
		Start: Active, FinishStart: Active, FailStart: Active,
		Migrate:       Migrating,
		DomainShutOff: ShutOff, DomainCrashed: Crashed, DomainDestroyed: Destroyed, DomainMigrated: MigratedAway,
	},
	Migrating: {
		StartHandoff:  HandingOver,
		FailMigration: Active, FailPostCopy: PostCopyFailed, CompleteMigration: MigratedAway,
	},
	HandingOver: {
		// Only what is known of the target ends it: memory is on both sides.
		FinishHandoff: HandedOver, TakeBack: Migrating,
	},
	HandedOver: {
		CompleteMigration: MigratedAway,
	},
	PostCopyFailed: {
		// The plug is pulled, but not for its user.
		DomainShutOff: Crashed, DomainCrashed: Crashed, DomainDestroyed: Crashed, DomainMigrated: MigratedAway,
	},
}

// IllegalError is an action that a state does not allow.
type IllegalError struct {
	State State
	Event Event
}

func (e *IllegalError) Error() string {
	return fmt.Sprintf("illegal transition: %s in state %s", e.Event, e.State)
}

// Next returns the state that follows on an event. The error is an *IllegalError, and the state then the same.
func Next(s State, e Event) (State, error) {
	if s.Final() {
		return s, nil
	}
	if next, ok := table[s][e]; ok {
		return next, nil
	}
	if e.Observation() {
		return s, nil
	}
	return s, &IllegalError{State: s, Event: e}
}

// Machine is a guest's state. The zero value is a launcher that has no guest yet. It is not safe for concurrent use.
type Machine struct {
	now State
	// last is now, or when that is final the state before.
	last    State
	illegal int
}

// Apply takes an event and returns the states before and after it. An illegal one changes nothing but Illegal.
func (m *Machine) Apply(e Event) (from, to State, err error) {
	from = m.now
	if m.now, err = Next(from, e); err != nil {
		m.illegal++
	}
	if !m.now.Final() {
		m.last = m.now
	}
	return from, m.now, err
}

// Now returns the state.
func (m *Machine) Now() State { return m.now }

// Last returns the state, or the one before the guest's end.
func (m *Machine) Last() State { return m.last }

// Illegal returns how many events were illegal.
func (m *Machine) Illegal() int { return m.illegal }

// MayHaveRun reports whether the guest may have run here, also before its end.
func (m *Machine) MayHaveRun() bool { return m.last.MayHaveRun() }

// NeverRan reports whether the guest has ended, and has not run here.
func (m *Machine) NeverRan() bool { return m.now == NeverRan || m.now.Final() && !m.MayHaveRun() }
