package lifecycle

import "fmt"

// Event takes a guest from one state to another.
type Event int

const (
	// Start: the launcher has libvirt make the domain.
	Start Event = iota
	// FinishStart: libvirt has made it.
	FinishStart
	// FailStart: libvirt has not made it.
	FailStart
	// Expect: the launcher is prepared for the guest of another one.
	Expect
	// TakeOver: the launcher is about to start a guest that it was given.
	TakeOver
	// Migrate: a migration to another launcher begins.
	Migrate
	// StartHandoff: the target has received the guest, and QEMU is stopped here.
	StartHandoff
	// FinishHandoff: the target says that it runs the guest.
	FinishHandoff
	// TakeBack: the target is known to have ended without having run the guest.
	TakeBack
	// FailMigration: the migration has failed, and the guest is here.
	FailMigration
	// FailPostCopy: the migration has failed, and the guest is on both sides.
	FailPostCopy
	// CompleteMigration: the guest is known to be at the target.
	CompleteMigration

	// DomainFound: the first look of a new connection finds a domain.
	DomainFound
	// DomainMigrating: the domain waits for the other side of a migration, or still needs it.
	DomainMigrating
	// DomainPaused, DomainRunning, DomainStopping: how a domain looks that does not.
	DomainPaused
	DomainRunning
	DomainStopping
	// DomainShutOff, DomainCrashed, DomainDestroyed, DomainMigrated: how a domain has ended.
	DomainShutOff
	DomainCrashed
	DomainDestroyed
	DomainMigrated
	// Release: the source, or virt-handler for it, says that it has let the guest go.
	Release
	// Shutdown: the guest is to shut down, and none is to be started any more.
	Shutdown
)

// Events are all events.
var Events = []Event{
	Start, FinishStart, FailStart, Expect, TakeOver, Migrate, StartHandoff, FinishHandoff, TakeBack, FailMigration,
	FailPostCopy, CompleteMigration, DomainFound, DomainMigrating, DomainPaused, DomainRunning, DomainStopping,
	DomainShutOff, DomainCrashed, DomainDestroyed, DomainMigrated, Release, Shutdown,
}

var eventNames = map[Event]string{
	Start: "start", FinishStart: "finishStart", FailStart: "failStart", Expect: "expect", Release: "release",
	TakeOver: "takeOver", Migrate: "migrate", StartHandoff: "startHandoff", FinishHandoff: "finishHandoff",
	TakeBack: "takeBack", FailMigration: "failMigration", FailPostCopy: "failPostCopy",
	CompleteMigration: "completeMigration", DomainFound: "domainFound", DomainMigrating: "domainMigrating",
	DomainPaused: "domainPaused", DomainRunning: "domainRunning", DomainStopping: "domainStopping",
	DomainShutOff: "domainShutOff", DomainCrashed: "domainCrashed", DomainDestroyed: "domainDestroyed",
	DomainMigrated: "domainMigrated", Shutdown: "shutdown",
}

// String returns the event's name in logs.
func (e Event) String() string {
	if name, ok := eventNames[e]; ok {
		return name
	}
	return fmt.Sprintf("event(%d)", int(e))
}

// Observation reports whether the event reports what others do, which is never illegal.
func (e Event) Observation() bool { return e >= DomainFound }
