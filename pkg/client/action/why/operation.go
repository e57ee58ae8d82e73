package why

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// LayerSnapshot is a snapshot, restore or clone of a VM.
const LayerSnapshot Layer = "snapshot"

// OperationFacts are everything an explanation of a snapshot, restore or clone rests on. One of the three is set.
type OperationFacts struct {
	Namespace, Name string
	Snapshot        *snapshotv1beta1.VirtualMachineSnapshot
	// Content is the snapshot's, nil where there is none.
	Content *snapshotv1beta1.VirtualMachineSnapshotContent
	Restore *snapshotv1beta1.VirtualMachineRestore
	Clone   *clonev1beta1.VirtualMachineClone
	// Running says that the restore's target has a guest, NoTarget that there is no such VM, and NoSource that what a
	// snapshot is of, a restore is from or a clone is made from is not there.
	Running, NoTarget, NoSource bool
	// Unreadable are resources that the user may not read.
	Unreadable []string
}

// ExplainOperation reports what a snapshot, restore or clone waits for, or why it failed.
func ExplainOperation(f OperationFacts) *Report {
	e := &explanation{Facts: Facts{Namespace: f.Namespace, Name: f.Name, Unreadable: f.Unreadable}}
	var state State
	var summary string
	switch {
	case f.Snapshot != nil:
		state, summary = e.snapshot(f)
	case f.Restore != nil:
		state, summary = e.restore(f)
	default:
		state, summary = e.clone(f)
	}
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind},
		Metadata: Metadata{Namespace: f.Namespace, Name: f.Name},
		Verdict:  state, Summary: summary, Chain: e.chain, Causes: e.causes, Unreadable: f.Unreadable,
	}
	if r.Causes == nil {
		r.Causes = []Cause{}
	}
	return r
}

// operation adds the object itself, and its cause unless it is done.
func (e *explanation) operation(object string, state State, stage, waits string, fixes ...string) {
	e.chain = append(e.chain, Link{Layer: LayerSnapshot, Object: object, State: state, Message: stage})
	switch state {
	case Broken:
		e.add(rankRefused, LayerSnapshot, object, Broken, "Failed", "it failed: "+stage, fixes...)
	case Waiting:
		e.add(rankProgress, LayerSnapshot, object, Waiting, "InProgress", waits, fixes...)
	}
}

func (e *explanation) snapshot(f OperationFacts) (State, string) {
	s, object := f.Snapshot, "snapshot/"+f.Name
	stage := snapshot.Stage(s)
	machine := "virtctl why " + s.Spec.Source.Name + e.flag()
	controller := "kubectl -n kubevirt logs deployment/virt-controller"
	state, summary := Waiting, "the snapshot is being taken: "+stage
	switch _, err := snapshot.Taken(s); {
	case err != nil:
		state, summary = Broken, err.Error()
	case vmsnapshots.Ready(s):
		state, summary = OK, "nothing blocks it: the snapshot can be restored"
	}
	fixes := []string{"virtctl snapshot show " + f.Name + e.flag(), machine, controller}
	if never := vmsnapshots.MemoryNever(stage); never && state == Waiting {
		state, summary = Broken, "the snapshot goes no further: "+stage
		e.chain = append(e.chain, Link{Layer: LayerSnapshot, Object: object, State: state, Message: stage})
		e.add(rankRefused, LayerSnapshot, object, Broken, "NoMemory", "it goes no further: "+stage,
			e.withoutMemory(s)...)
	} else {
		if never {
			fixes = e.withoutMemory(s)
		}
		e.operation(object, state, stage, "it is not taken yet: "+stage, fixes...)
	}
	of := Link{Layer: LayerVM, Object: "vm/" + s.Spec.Source.Name, State: OK, Message: "the VM that it is of"}
	if f.NoSource {
		of.gone(vmsnapshots.Ready(s))
	}
	e.chain = append(e.chain, of)
	if f.Content == nil || f.Content.Status == nil {
		return state, summary
	}
	for _, v := range f.Content.Status.VolumeSnapshotStatus {
		volume := "volumesnapshot/" + v.VolumeSnapshotName
		switch {
		case v.Error != nil && v.Error.Message != nil:
			e.chain = append(e.chain,
				Link{Layer: LayerVolumes, Object: volume, State: Broken, Message: *v.Error.Message})
			e.add(rankVolume, LayerVolumes, volume, Broken, "VolumeSnapshotError",
				"the storage cannot snapshot a volume: "+*v.Error.Message, "kubectl describe "+volume+e.flag())
			if state == Waiting {
				state = Broken
			}
		case v.ReadyToUse != nil && *v.ReadyToUse:
			e.chain = append(e.chain, Link{Layer: LayerVolumes, Object: volume, State: OK, Message: "ready"})
		default:
			e.chain = append(e.chain,
				Link{Layer: LayerVolumes, Object: volume, State: Waiting, Message: "not ready yet"})
		}
	}
	return state, summary
}

// withoutMemory takes the snapshot anew, of a VM whose memory cannot be in one.
func (e *explanation) withoutMemory(s *snapshotv1beta1.VirtualMachineSnapshot) []string {
	return []string{
		"virtctl snapshot delete " + e.Name + e.flag(),
		"virtctl snapshot create " + s.Spec.Source.Name + " " + e.Name + e.flag(),
	}
}

func (e *explanation) restore(f OperationFacts) (State, string) {
	r, object := f.Restore, "restore/"+f.Name
	stage, target := snapshot.RestoreStage(r), r.Spec.Target.Name
	state, summary := Waiting, "the restore is under way: "+stage
	waits := "it is not complete yet: " + stage
	source := "snapshot/" + r.Spec.VirtualMachineSnapshotName
	fixes := []string{"virtctl why " + source + e.flag()}
	if !f.NoTarget {
		fixes = append(fixes, "virtctl why "+target+e.flag())
	}
	giveUp := "kubectl delete vmrestore " + f.Name + e.flag()
	stuck := snapshot.Stuck(r)
	done, err := snapshot.Restored(r)
	switch {
	case err != nil:
		state, summary = Broken, err.Error()
	case done:
		state, summary = OK, "nothing blocks it: the restore is complete"
	case f.NoSource:
		state, summary = Broken, fmt.Sprintf("%s, which it restores, does not exist", source)
		fixes = []string{giveUp}
	case f.Running:
		summary = fmt.Sprintf("VM %s runs, and is restored only when it is stopped", target)
		waits, fixes = summary, append([]string{"virtctl stop " + target + e.flag(), giveUp}, fixes...)
	case stuck != "":
		state, summary = Broken, "the restore goes no further: "+stuck
		fixes = append([]string{giveUp}, fixes...)
	}
	if stuck != "" && state == Broken && err == nil {
		e.chain = append(e.chain, Link{Layer: LayerSnapshot, Object: object, State: state, Message: stage})
		e.add(rankRefused, LayerSnapshot, object, Broken, "Stuck", "it goes no further: "+stuck, fixes...)
	} else {
		e.operation(object, state, stage, waits, fixes...)
	}
	vm := Link{Layer: LayerVM, Object: "vm/" + target, State: OK, Message: "the VM that is restored"}
	switch {
	case f.Running:
		vm.Message += "; it runs"
	case f.NoTarget && !done:
		vm.State, vm.Message = Waiting, "it does not exist yet; the restore makes it"
	case f.NoTarget:
		vm.State, vm.Message = Broken, "it does not exist any more"
	}
	from := Link{Layer: LayerSnapshot, Object: source, State: OK, Message: "the snapshot that is restored"}
	if f.NoSource {
		from.gone(done)
	}
	e.chain = append(e.chain, vm, from)
	return state, summary
}

// gone has the link say that its object does not exist, which is of no matter when it is not needed any more.
func (l *Link) gone(done bool) {
	l.State, l.Message = Broken, "it does not exist"
	if done {
		l.State, l.Message = OK, "it does not exist any more, and is not needed any more"
	}
}

func (e *explanation) clone(f OperationFacts) (State, string) {
	c := f.Clone
	stage := clone.Stage(c)
	state, summary := Waiting, "the clone is under way: "+stage
	done, err := clone.Done(c)
	switch {
	case err != nil:
		state, summary = Broken, err.Error()
	case done:
		state, summary = OK, "nothing blocks it: the clone is there"
	}
	fixes := e.partsOf(c)
	if err != nil {
		// It has taken its parts away.
		fixes = []string{"kubectl delete vmclone " + e.Name + e.flag()}
	}
	fixes = append(fixes, "kubectl -n kubevirt logs deployment/virt-controller")
	e.operation("clone/"+e.Name, state, stage, "it is not done yet: "+stage, fixes...)
	// A clone that has begun neither of its parts may have no source.
	if began := c.Status.SnapshotName != nil || c.Status.RestoreName != nil; c.Spec.Source != nil && (began || done) {
		from := Link{Layer: LayerVM, Object: "vm/" + c.Spec.Source.Name, State: OK, Message: "the source"}
		switch c.Spec.Source.Kind {
		case clones.KindSnapshot:
			from.Object = "snapshot/" + c.Spec.Source.Name
		case clones.KindClaim:
			from.Layer, from.Object = LayerVolumes, "pvc/"+c.Spec.Source.Name
		}
		if f.NoSource {
			from.gone(done)
		}
		e.chain = append(e.chain, from)
	}
	return state, summary
}

// partsOf asks why the restore and the snapshot of a clone do not go on.
func (e *explanation) partsOf(c *clonev1beta1.VirtualMachineClone) (out []string) {
	if name := c.Status.RestoreName; name != nil {
		out = append(out, "virtctl why restore/"+*name+e.flag())
	}
	if name := c.Status.SnapshotName; name != nil {
		where := e.flag()
		if clones.Crosses(c) {
			where = " -n " + clones.SourceNamespace(c)
		}
		ask := "virtctl why snapshot/"
		if clones.OfImage(c) {
			ask = "kubectl describe volumesnapshot/"
		}
		out = append(out, ask+*name+where)
	}
	return out
}

// underWay adds a snapshot or restore of the VM that is under way, and restores that wait for its end.
func (e *explanation) underWay(vm *v1.VirtualMachine) {
	restore, held := vmsnapshots.RestoreOf(vm)
	if held {
		e.add(rankIntent, LayerVM, e.vmObject(), Waiting, "RestoreInProgress",
			fmt.Sprintf("restore %s of it is in progress; it does not start before that is complete",
				cmp.Or(restore, "(unnamed)")),
			"virtctl why restore/"+restore+e.flag())
	}
	for i := range e.Restores {
		name := e.Restores[i].Name
		if held && restore == name {
			continue
		}
		fixes := []string{"virtctl why restore/" + name + e.flag(), "kubectl delete vmrestore " + name + e.flag()}
		if e.VMI == nil {
			// It does not wait for the VM, then.
			e.add(rankRemark, LayerVM, e.vmObject(), OK, "RestoreStuck",
				fmt.Sprintf("restore %s of it does not go on: %s", name, snapshot.RestoreStage(&e.Restores[i])),
				fixes...)
			continue
		}
		e.add(rankRemark, LayerVM, e.vmObject(), OK, "RestoreWaits",
			fmt.Sprintf("restore %s waits for it to be stopped, and then replaces it", name), fixes...)
	}
	if name, held := vmsnapshots.SnapshotOf(vm); held {
		e.add(rankRemark, LayerVM, e.vmObject(), OK, "SnapshotInProgress",
			fmt.Sprintf("snapshot %s of it is being taken", cmp.Or(name, "(unnamed)")),
			"virtctl why snapshot/"+name+e.flag())
	}
}
