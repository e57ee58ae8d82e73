package lifecycle

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Verb is one of the requests, by its name on the command line.
type Verb string

// The verbs. Start, Stop, Restart, Migrate and MigrateCancel are asked of a VirtualMachine; Pause, Unpause, Reset and
// SoftReboot of its instance, also when the VirtualMachine was named; EvacuateCancel and Delete of what was named.
const (
	Start          Verb = "start"
	Stop           Verb = "stop"
	Restart        Verb = "restart"
	Pause          Verb = "pause"
	Unpause        Verb = "unpause"
	Reset          Verb = "reset"
	SoftReboot     Verb = "soft-reboot"
	Migrate        Verb = "migrate"
	MigrateCancel  Verb = "migrate-cancel"
	EvacuateCancel Verb = "evacuate-cancel"
	Delete         Verb = "delete"
	// Rename is no request, but many: package rename does it. The journal has it.
	Rename Verb = "rename"
	// Restore and RestoreKeep are restores of snapshots over a machine; the second keeps what it replaces, so that it
	// can be taken back. Package snapshot does them, the journal has them.
	Restore     Verb = "restore"
	RestoreKeep Verb = "restore-keep"
	// These change a machine otherwise. The journal has them, so that an undo does not pass them over.
	Set          Verb = "set"
	Edit         Verb = "edit"
	AddVolume    Verb = "addvolume"
	RemoveVolume Verb = "removevolume"
)

// OnInstance reports a verb that is asked of the instance even when its VirtualMachine is named.
func (v Verb) OnInstance() bool {
	switch v {
	case Pause, Unpause, Reset, SoftReboot:
		return true
	}
	return false
}

// TakesInstance reports a verb for which an instance may be named.
func (v Verb) TakesInstance() bool {
	return v.OnInstance() || v == EvacuateCancel || v == Delete
}

// Disrupts reports a verb by which a guest loses what it has not written to its disks, or more.
func (v Verb) Disrupts() bool {
	switch v {
	case Stop, Restart, Reset, SoftReboot, Delete:
		return true
	}
	return false
}

// subresource returns the verb's name in the API.
func (v Verb) subresource() string {
	switch v {
	case SoftReboot:
		return "softreboot"
	case EvacuateCancel:
		return "evacuate/cancel"
	}
	return string(v)
}

// Target is the machine that a verb acts on.
type Target struct {
	Namespace, Name string
	// Instance is whether the VirtualMachineInstance was named, or found, rather than the VirtualMachine.
	Instance bool
	// UID is of the object that is meant, so that another is spared that has its name by now; empty for any.
	UID types.UID
	// InstanceUID is of the machine's instance that is meant; empty for any, and for none.
	InstanceUID types.UID
	// Migration is the UID of the migration that MigrateCancel means, so that it spares one that has begun since; empty
	// for whichever is under way.
	Migration types.UID
	// WithDisks has Migrate do what Options.WithDisks says, of this machine alone.
	WithDisks bool
}

// kind returns VM or VMI.
func (t Target) kind() string {
	if t.Instance {
		return "VMI"
	}
	return "VM"
}

// String returns how messages name the target: VM NAMESPACE/NAME.
func (t Target) String() string { return t.kind() + " " + t.Namespace + "/" + t.Name }

// asked returns the target of a verb's request: the instance, where the verb is one of instances.
func (t Target) asked(verb Verb) Target {
	t.Instance = t.Instance || verb.OnInstance()
	return t
}

// Done returns what the user reads once a verb was accepted; the words are those of KubeVirt's virtctl, and of kubectl
// for Delete, since scripts read them.
func Done(verb Verb, t Target) string {
	asked := t.asked(verb)
	switch verb {
	case EvacuateCancel:
		return asked.String() + " was canceled evacuation"
	case Delete:
		kind := v1.VirtualMachineGroupVersionKind
		if t.Instance {
			kind = v1.VirtualMachineInstanceGroupVersionKind
		}
		return strings.ToLower(kind.Kind) + "." + kind.Group + ` "` + t.Name + `" deleted`
	}
	return asked.kind() + " " + t.Name + " was scheduled to " + string(verb)
}

// Guest is a machine's guest as it is once a verb was waited for.
type Guest struct {
	// Node is where it is, empty where it is nowhere or that is not known.
	Node string
	// Paused says that it stands still, Fresh that it was to be so before its first instruction.
	Paused, Fresh bool
	// Again says that it migrates anew, after a migration that was cancelled.
	Again bool
}

// Reached returns what is true once a verb was waited for, in a sentence. "" says nothing: what Done says of Delete is
// true by then.
func Reached(verb Verb, t Target, guest Guest) string {
	name := t.asked(verb).kind() + " " + t.Name
	on, does := "", " runs"
	if guest.Node != "" {
		on = " on " + guest.Node
	}
	if guest.Paused {
		does = " is paused"
	}
	switch verb {
	case Start, Restart:
		if guest.Fresh {
			does = " is paused before its first instruction"
		}
		return name + does + on
	case Unpause:
		return name + " runs" + on
	case Stop:
		return name + " is stopped"
	case Pause:
		return name + " is paused" + on
	case Migrate:
		return name + " has moved and" + does + on
	case MigrateCancel:
		switch {
		case guest.Node == "":
			return name + " does not migrate any more"
		case guest.Again:
			return name + " has stayed" + on + ", and migrates again"
		}
		return name + " does not migrate any more, and stays" + on
	}
	return ""
}

// Options of a request; each verb uses those that it has.
type Options struct {
	// DryRun has the server check the request and do nothing.
	DryRun bool
	// GracePeriodSeconds is how long the guest may take to shut down instead of what its spec says; nil leaves
	// that, 0 cuts the power. For Start, Stop, Restart and Delete of an instance.
	GracePeriodSeconds *int64
	// Paused has Start leave the guest stopped before its first instruction.
	Paused bool
	// NodeSelector restricts, for this Migrate alone, the nodes that the spec allows.
	NodeSelector map[string]string
	// WithDisks has this Migrate copy the disks to new claims that the target cannot use as they are.
	WithDisks bool
}

func (o Options) dryRun() []string {
	if o.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// body returns the body of a verb's request.
func (o Options) body(verb Verb) any {
	switch verb {
	case Start:
		return &v1.StartOptions{Paused: o.Paused, DryRun: o.dryRun()}
	case Stop:
		return &v1.StopOptions{GracePeriod: o.GracePeriodSeconds, DryRun: o.dryRun()}
	case Restart:
		return &v1.RestartOptions{GracePeriodSeconds: o.GracePeriodSeconds, DryRun: o.dryRun()}
	case Unpause:
		return &v1.UnpauseOptions{DryRun: o.dryRun()}
	case Migrate:
		return &v1.MigrateOptions{DryRun: o.dryRun(), AddedNodeSelector: o.NodeSelector}
	case EvacuateCancel:
		return &v1.EvacuateCancelOptions{DryRun: o.dryRun()}
	}
	return &v1.PauseOptions{DryRun: o.dryRun()} // what there is to say is the same for the others
}
