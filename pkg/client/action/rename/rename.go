// Package rename gives a stopped VirtualMachine another name. Kubernetes cannot rename an object: the VM is made anew
// under the new name, what belongs to it passes over, and the old object goes.
//
// Look reads, Next is pure and says the next step, and Run carries steps out until there is none. A run that is killed
// is taken up by the next one, since all that is known is in the cluster:
//
//	old VM                      new VM          Next     who can start
//	there                       none            Mark     the old one
//	there, marked               none            Create   the old one
//	there, marked, changed      waits for it    Discard  the old one
//	there, marked               waits for it    Lend     the old one
//	there, marked, all is lent  waits for it    Remove   the old one
//	going                       waits for it    Wait     nobody
//	gone                        waits for it    Adopt    nobody
//	gone                        has all         Finish   nobody
//	gone                        is done         Done     the new one
//
// What makes it safe: virt-controller does nothing for a VM that waits for its place, whatever its run strategy.
// The mark on the old VM is its heir's name, written against others who rename it at the same time. Its claims get
// the new VM as a second owner before it goes, and it goes as one whose dependents are orphaned, in the very
// version that was looked at: a start, or any other change, makes the removal fail, and it is looked at again.
//
//	rename.go     what is decided   successor.go   the new VM      refuse.go  why not
//	dependents.go owners and labels look.go        what is there   run.go     what is written
package rename

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/identity"
)

// Request says what to rename.
type Request struct {
	Namespace, Name string
	// To is the new name.
	To string
	// Hostname is the guest's from now on; empty keeps the one that it has.
	Hostname string
}

// View is all that is looked at.
type View struct {
	Request Request
	// Old and New are the VMs of the two names, nil where there is none.
	Old, New *v1.VirtualMachine
	// OldRuns and NewRuns are the instances of the names, nil where there is none.
	OldRuns, NewRuns *v1.VirtualMachineInstance
	// Rivals are other VMs that wait for the place of Old.
	Rivals []string
	// Dependents are the objects that belong to one of the VMs.
	Dependents []Dependent
}

// Kind is a kind of step.
type Kind string

// The steps; Done is none.
const (
	Mark    Kind = "mark"
	Create  Kind = "create"
	Discard Kind = "discard"
	Lend    Kind = "lend"
	Remove  Kind = "remove"
	Wait    Kind = "wait"
	Adopt   Kind = "adopt"
	Finish  Kind = "finish"
	Done    Kind = "done"
)

// Step is what to do next.
type Step struct {
	Kind Kind
	// Refusal is why nothing can be done; there is no Kind then.
	Refusal error
	// VM is the one to be made.
	VM *v1.VirtualMachine
	// Changes are those of Lend and Adopt.
	Changes []Change
	// RunStrategy is the one that Finish sets, empty to leave it.
	RunStrategy v1.VirtualMachineRunStrategy
}

// Next decides.
func Next(v View) Step {
	renaming, err := v.renaming()
	if err != nil {
		return Step{Refusal: err}
	}
	old := v.original(renaming)
	switch {
	case v.New == nil && old == nil:
		return Step{Refusal: action.NotFound(action.ResourceVMs, v.Request.Namespace, v.Request.Name)}
	case v.New != nil && v.New.DeletionTimestamp != nil:
		return v.deleted(old)
	case v.New != nil && renaming == nil:
		return v.taken(old)
	case renaming != nil && renaming.Name != v.Request.Name:
		return refuse("VM %s/%s takes the place of VM %s; `virtctl rename %s %s -n %s` finishes that",
			v.Request.Namespace, v.Request.To, renaming.Name, renaming.Name, v.Request.To, v.Request.Namespace)
	case v.NewRuns != nil:
		return refuse("VMI %s/%s exists; delete it, or choose another name", v.Request.Namespace, v.Request.To)
	case old == nil:
		return v.settle(renaming)
	case old.DeletionTimestamp != nil && v.New == nil:
		return refuse("VM %s/%s is being deleted", old.Namespace, old.Name)
	case old.DeletionTimestamp != nil:
		return Step{Kind: Wait}
	}
	if refusal := Refuse(old, v.OldRuns, v.Rivals); refusal != nil {
		return Step{Refusal: refusal}
	}
	return v.prepare(old, renaming)
}

// prepare leads up to the removal of the old VM.
func (v View) prepare(old *v1.VirtualMachine, renaming *identity.Renaming) Step {
	switch to, marked := old.Annotations[identity.RenamedTo]; {
	case marked && to != v.Request.To:
		return refuse("VM %s/%s is being renamed to %s; `virtctl rename %[2]s %[3]s -n %[1]s` finishes that, "+
			"`kubectl annotate vm %[2]s %[4]s- -n %[1]s` gives it up", old.Namespace, old.Name, to, identity.RenamedTo)
	case !marked:
		return Step{Kind: Mark}
	}
	successor, err := Successor(old, v.Request)
	if err != nil {
		return Step{Refusal: err}
	}
	if v.New == nil {
		return Step{Kind: Create, VM: successor}
	}
	wanted, err := identity.RenamingOf(successor)
	switch {
	case err != nil:
		return Step{Refusal: err}
	case renaming.Of != wanted.Of:
		return Step{Kind: Discard}
	}
	if changes := lend(v.Dependents, old, v.New); len(changes) > 0 {
		return Step{Kind: Lend, Changes: changes}
	}
	return Step{Kind: Remove}
}

// settle returns the next step for a new VM whose old one is gone.
func (v View) settle(renaming *identity.Renaming) Step {
	if changes := adopt(v.Dependents, v.Request.Name, renaming.UID, v.New, v.Old == nil); len(changes) > 0 {
		return Step{Kind: Adopt, Changes: changes}
	}
	step := Step{Kind: Finish}
	// Who has set another meanwhile wants that one.
	if strategy, err := v.New.RunStrategy(); err == nil && strategy == v1.RunStrategyHalted {
		step.RunStrategy = renaming.RunStrategy
	}
	return step
}

// taken returns the next step when the new name belongs to a VM that waits for nobody's place.
func (v View) taken(old *v1.VirtualMachine) Step {
	if old == nil && v.New.Annotations[identity.RenamedFrom] == v.Request.Name {
		return Step{Kind: Done}
	}
	if old == nil {
		return Step{Refusal: action.NotFound(action.ResourceVMs, v.Request.Namespace, v.Request.Name)}
	}
	return refuse("VM %s/%s exists already; choose another name", v.Request.Namespace, v.Request.To)
}

// deleted returns the next step when the new VM is being deleted: a discarded one makes room, any other holds the name.
func (v View) deleted(old *v1.VirtualMachine) Step {
	if old != nil && old.DeletionTimestamp == nil && old.Annotations[identity.RenamedTo] == v.Request.To {
		return Step{Kind: Wait}
	}
	return refuse("VM %s/%s is being deleted; wait until it is gone", v.Request.Namespace, v.Request.To)
}

func (v View) renaming() (*identity.Renaming, error) {
	if v.New == nil {
		return nil, nil
	}
	renaming, err := identity.RenamingOf(v.New)
	if err != nil {
		return nil, &RefusedError{err.Error() + "; delete that VM if nothing belongs to it"}
	}
	return renaming, nil
}

// original returns the VM to be renamed; nil for another VM of its name, made since it was deleted.
func (v View) original(renaming *identity.Renaming) *v1.VirtualMachine {
	if v.Old != nil && renaming != nil && renaming.Name == v.Old.Name && renaming.UID != v.Old.UID {
		return nil
	}
	return v.Old
}

// uids returns the UIDs of the old VM and of its successor, of which one may be known only by the other's annotation.
func (v View) uids() (old, successor types.UID) {
	if v.New != nil {
		successor = v.New.UID
	}
	// A mark that cannot be read is Next's to refuse.
	if renaming, err := v.renaming(); err == nil && renaming != nil {
		return renaming.UID, successor
	}
	if v.Old != nil {
		old = v.Old.UID
	}
	return old, successor
}

func refuse(format string, args ...any) Step {
	return Step{Refusal: &RefusedError{fmt.Sprintf(format, args...)}}
}
