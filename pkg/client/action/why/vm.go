package why

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/runstrategy"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// vm looks at the VM: whether it is there, wants to run, and could be acted on.
func (e *explanation) vm() {
	if e.NotInstalled {
		return
	}
	vm := e.VM
	if vm == nil {
		if e.VMI == nil {
			e.absent()
		}
		return // an instance of its own
	}
	strategy, err := vm.RunStrategy()
	status := vm.Status.PrintableStatus
	state := OK
	message := fmt.Sprintf("run strategy %s, status %s", cmp.Or(strategy, "(none)"), cmp.Or(status, "not written yet"))
	switch {
	case vm.DeletionTimestamp != nil:
		e.terminating(vm)
		state = Waiting
	case err != nil:
		e.add(rankRefused, LayerVM, e.vmObject(), Broken, "InvalidRunStrategy",
			"spec.runStrategy and spec.running contradict each other: "+err.Error(),
			"set spec.runStrategy alone, to Always, RerunOnFailure, Manual, Once or Halted")
		state = Broken
	case e.renaming(vm):
		state = Broken
	default:
		if e.failure(vm) || e.backoff(vm) {
			state = Broken
		}
		e.underWay(vm)
		if !life.Alive(e.VMI) {
			if e.notWanted(vm, strategy) {
				state = Off
			}
		}
		e.restartRequired(vm)
	}
	e.link(LayerVM, e.vmObject(), state, message, time.Time{})
}

// renaming adds a rename that was interrupted: until it is finished nothing is done for the VM, whatever it is
// asked.
func (e *explanation) renaming(vm *v1.VirtualMachine) bool {
	from, err := identity.RenamingOf(vm)
	if err != nil || from == nil {
		return false // what no rename has written, the Failure condition reports
	}
	e.add(rankRefused, LayerVM, e.vmObject(), Broken, "Renaming",
		fmt.Sprintf("VM %s is being renamed to it, which is not finished; it does not start before", from.Name),
		"virtctl rename "+from.Name+" "+e.Name+e.flag())
	return true
}

func (e *explanation) absent() {
	message := action.NotFound(action.ResourceVMs, e.Namespace, e.Name).Error()
	fixes := []string{"virtctl list -A"}
	if len(e.Namesakes) > 0 {
		message += "; there is " + strings.Join(e.Namesakes, " and ")
		fixes = nil
		for _, object := range e.Namesakes {
			fixes = append(fixes, "virtctl why "+object+e.flag())
		}
	} else if near := nearest(e.Name, e.Others); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
		fixes = append([]string{"virtctl why " + near + e.flag()}, fixes...)
	}
	e.add(rankAbsent, LayerVM, e.vmObject(), Broken, "NotFound", message, fixes...)
}

// nearest returns the name that differs by the fewest letters, if by two at most or in a prefix.
func nearest(name string, all []string) string {
	best, least := "", 3
	for _, n := range all {
		d := distance(name, n)
		if strings.HasPrefix(n, name) || strings.HasPrefix(name, n) {
			d = min(d, 2)
		}
		if d < least {
			best, least = n, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (e *explanation) terminating(vm *v1.VirtualMachine) {
	message := fmt.Sprintf("the VM is being deleted for %s", age(e.Now, vm.DeletionTimestamp.Time))
	var foreign []string
	for _, f := range vm.Finalizers {
		if f != v1.VirtualMachineControllerFinalizer {
			foreign = append(foreign, f)
		}
	}
	switch {
	case e.VMI == nil && len(foreign) > 0:
		e.add(rankIntent, LayerVM, e.vmObject(), Broken, "FinalizerHeld",
			message+"; another program's finalizer holds it: "+strings.Join(foreign, ", "),
			"let that program finish, or remove its finalizer: kubectl edit vm "+e.Name+e.flag())
	case e.VMI != nil:
		e.add(rankProgress, LayerVM, e.vmObject(), Waiting, "Terminating", message+"; it waits for its guest to end",
			"virtctl stop "+e.Name+e.flag()+" --force --grace-period 0")
	default:
		e.add(rankProgress, LayerVM, e.vmObject(), Waiting, "Terminating", message)
	}
}

// failure explains the VM's Failure condition, where that is about the VM and not a copy of the instance's.
func (e *explanation) failure(vm *v1.VirtualMachine) bool {
	c := conditions.With(vm.Status.Conditions, v1.VirtualMachineFailure, corev1.ConditionTrue)
	if c == nil {
		return false
	}
	text := c.Message
	refuse := func(reason, message string, fixes ...string) bool {
		e.add(rankRefused, LayerVM, e.vmObject(), Broken, reason, message, fixes...).
			Evidence = "condition Failure: " + text
		return true
	}
	switch {
	case c.Reason == names.ReasonNotOwned:
		return refuse(c.Reason, "a VMI of this name exists that does not belong to the VM",
			"kubectl delete vmi "+e.Name+e.flag(), "give the VM another name")
	case strings.Contains(c.Reason, "Instancetype") || strings.Contains(c.Reason, "Preference") ||
		strings.Contains(strings.ToLower(text), "instancetype") || strings.Contains(text, "preference"):
		return refuse(reasonNotApplied, "the instancetype or preference cannot be applied: "+text,
			"kubectl get virtualmachineclusterinstancetypes,virtualmachineclusterpreferences; kubectl get "+
				"virtualmachineinstancetypes,virtualmachinepreferences"+e.flag(),
			"spec.instancetype and spec.preference of the VM")
	case c.Reason == names.ReasonMemoryMisfit:
		return refuse(c.Reason, text, savedmemory.Forget(e.Namespace, e.Name)+", and it boots from its disks")
	case strings.Contains(text, "denied the request"):
		return refuse("AdmissionDenied", "the instance is refused: "+after(text, "denied the request:"),
			"kubectl edit vm "+e.Name+e.flag()+", the field that the message names")
	case e.VMI == nil || c.Reason == names.ReasonFailedCreate && e.VMI.IsFinal():
		return refuse(cmp.Or(c.Reason, "Failure"), text, "kubectl describe vm "+e.Name+e.flag())
	}
	return false
}

func (e *explanation) backoff(vm *v1.VirtualMachine) bool {
	f := vm.Status.StartFailure
	if f == nil || f.RetryAfterTimestamp == nil || life.Alive(e.VMI) ||
		e.VMI != nil && !f.RetryAfterTimestamp.After(e.Now) {
		return false
	}
	again := "now"
	if rest := f.RetryAfterTimestamp.Sub(e.Now).Round(time.Second); rest > 0 {
		again = "in " + rest.String()
	}
	last := "see its last words"
	if e.VMI != nil {
		if c := conditions.Find(e.VMI.Status.Conditions, v1.VirtualMachineInstanceReady); c != nil && c.Message != "" {
			last = c.Message
		}
	}
	e.add(rankGuest, LayerVM, e.vmObject(), Broken, "CrashLoopBackOff",
		fmt.Sprintf("the guest failed %d times in a row and is tried again %s; the last time: %s",
			f.ConsecutiveFailCount, again, last),
		"virtctl logs "+e.Name+e.flag()+" --source launcher", "virtctl start "+e.Name+e.flag()+" (tries at once)")
	return true
}

// again returns how a failed guest is started once more; nothing where virt-controller does it.
func (e *explanation) again() []string {
	if e.VM == nil {
		return nil
	}
	switch strategy, err := e.VM.RunStrategy(); {
	case err != nil, strategy == v1.RunStrategyAlways, strategy == v1.RunStrategyRerunOnFailure:
		return nil
	case strategy == v1.RunStrategyOnce:
		return []string{runAgain}
	}
	return []string{"virtctl start " + e.Name + e.flag()}
}

// runAgain is the remedy for a VM that has run once.
const runAgain = "set spec.runStrategy to Manual or Always to run it again"

// notWanted reports whether a VM without a guest is meant to have none, and adds why.
func (e *explanation) notWanted(vm *v1.VirtualMachine, strategy v1.VirtualMachineRunStrategy) bool {
	off := func(reason, message string, fixes ...string) bool {
		e.add(rankIntent, LayerVM, e.vmObject(), Off, reason, message, fixes...)
		return true
	}
	start := "virtctl start " + e.Name + e.flag()
	if runstrategy.Requested(vm, v1.StartRequest) {
		e.add(rankProgress, LayerVM, e.vmObject(), Waiting, "StartRequested",
			"a start was asked for and has not been carried out yet")
		return false
	}
	if e.VMI != nil && e.VMI.Status.Phase == v1.Failed && strategy != v1.RunStrategyHalted {
		return false // that it failed says more
	}
	switch strategy {
	case v1.RunStrategyHalted:
		return off("Halted", "the VM is halted: its run strategy keeps it off", start)
	case v1.RunStrategyManual:
		return off("Manual", "the VM has run strategy Manual and was stopped, or never started", start)
	case v1.RunStrategyOnce:
		if e.VMI != nil || vm.Status.RunStrategy == v1.RunStrategyOnce {
			return off("OnceDone", "the VM has run strategy Once and has run", runAgain)
		}
	case v1.RunStrategyRerunOnFailure:
		over := e.VMI == nil && vm.Status.RunStrategy == strategy && vm.Status.StartFailure == nil
		if over || e.VMI != nil && e.VMI.Status.Phase == v1.Succeeded {
			return off("GuestShutDown",
				"the guest shut itself down or was stopped, which run strategy RerunOnFailure respects", start)
		}
	}
	return false
}

// reasonNotApplied is why a VM has no instance whose instance type or preference does not fit, or is not there.
const reasonNotApplied = "InstancetypeNotApplied"

func (e *explanation) restartRequired(vm *v1.VirtualMachine) {
	c := conditions.With(vm.Status.Conditions, v1.VirtualMachineRestartRequired, corev1.ConditionTrue)
	if c == nil {
		return
	}
	e.add(rankRemark, LayerVM, e.vmObject(), OK, "RestartRequired",
		"the spec was changed in a way that needs a restart: "+c.Message,
		"virtctl restart "+e.Name+e.flag(), "virtctl expand --vm "+e.Name+e.flag()+" (what the next start will use)")
}

// after returns what follows a marker, or the whole text.
func after(text, marker string) string {
	if _, rest, ok := strings.Cut(text, marker); ok {
		return strings.TrimSpace(rest)
	}
	return text
}

// age returns a time span in two units at most: 5s, 3m, 2h5m.
func age(now, then time.Time) string {
	d := max(0, now.Sub(then))
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return strings.TrimSuffix(strings.TrimSuffix(d.Round(time.Minute).String(), "0s"), "0m")
}
