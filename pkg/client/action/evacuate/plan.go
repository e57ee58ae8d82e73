// Package evacuate empties a node of its guests, as a drain of the node does: it evicts their pods, and what becomes of
// each guest its eviction strategy says. Gather reads the Facts, NewPlan says what would happen and is pure, Run does
// it and follows.
//
//	plan.go   who goes, stays or ends   place.go  where a pod could go
//	run.go    cordon, evict, follow     gather.go what is there
package evacuate

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/eviction"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Kind of a Report.
const Kind = "EvacuationReport"

// Outcome is what becomes of a guest.
type Outcome string

// The outcomes.
const (
	// Moves to another node without a stop.
	Moves Outcome = "moves"
	// Waits for room or another obstacle: it would move, and no node would take it now.
	Waits Outcome = "waits"
	// Restarts elsewhere: it is shut down, and its run strategy starts it again.
	Restarts Outcome = "restarts"
	// Ends: it is shut down, and nothing starts it again.
	Ends Outcome = "ends"
	// Stays, because it must not be shut down and cannot move: the node cannot be emptied.
	Stays Outcome = "stays"
	// Marked only, for somebody else to act on (strategy External).
	Marked Outcome = "marked"
)

// State is how far an evacuation is with a guest.
type State string

// The states; a plan has none.
const (
	Asked   State = "asked"   // its eviction was asked for
	Moving  State = "moving"  // a migration is under way
	Left    State = "left"    // it runs on another node
	Stopped State = "stopped" // it has ended, or is not back yet
	Refused State = "refused" // its eviction was refused for good
)

// Report is what `evacuate -o json` prints: each guest of the node, and what becomes of it.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Node is the one that is emptied.
	Node string `json:"node"`
	// Planned says that nothing was done.
	Planned bool `json:"planned"`
	// Cordoned says that the scheduler places nothing new on the node.
	Cordoned bool `json:"cordoned"`
	// Guests are those that were on the node, by namespace and name.
	Guests []Guest `json:"guests"`
}

// RowLists returns the key of the guests.
func (r *Report) RowLists() []string { return []string{"guests"} }

// Guest is one of the node's.
type Guest struct {
	// Namespace and Name are the VirtualMachineInstance's.
	Namespace string `json:"namespace"`
	// Name is the VM's, too.
	Name string `json:"name"`
	// Strategy is the eviction strategy that counts: its own, or the cluster's.
	Strategy string `json:"evictionStrategy"`
	// Outcome is what its eviction leads to: moves, waits, restarts, ends, stays or marked.
	Outcome Outcome `json:"outcome"`
	// Target is the node on which the plan puts it. The scheduler decides for itself when the time has come.
	Target string `json:"target,omitempty"`
	// Candidates are all nodes that would take it if it were the only one.
	Candidates []string `json:"candidates,omitempty"`
	// Refusals are the nodes that would not, each with the first reason.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Reason says why it stays, waits, or is not moved.
	Reason string `json:"reason,omitempty"`
	// State is how far it is: asked, moving, left, stopped or refused. A plan has none.
	State State `json:"state,omitempty"`
	// Now is the node on which it is now, when that is another.
	Now string `json:"now,omitempty"`
	// WithDisks says that disks on claims of one node only are copied to new claims when it moves.
	WithDisks bool `json:"withDisks,omitempty"`
	// Copied are the disks that were copied for it by --with-disks, once it has left.
	Copied []Copied `json:"copied,omitempty"`

	pod string
	vmi *v1.VirtualMachineInstance
	// bring says that a migration with disks is made for it, since an eviction would not make one; migration is its
	// name.
	bring     bool
	migration string
}

// Copied is a disk that was copied when its guest left.
type Copied struct {
	// Volume is the volume's name in the spec.
	Volume string `json:"volume"`
	// From is the claim that the guest had, which is kept unless an annotation says Delete.
	From string `json:"from"`
	// To is the claim that it has now.
	To string `json:"to"`
}

// Refusal is a node that would not take a guest.
type Refusal struct {
	// Node is the node's name.
	Node string `json:"node"`
	// Reason is the first thing that speaks against it.
	Reason string `json:"reason"`
}

// ReportName returns the node's name.
func (r *Report) ReportName() string { return r.Node }

// DeepCopyObject copies the report.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Guests = slices.Clone(r.Guests)
	for i := range out.Guests {
		g := &out.Guests[i]
		g.Candidates, g.Refusals = slices.Clone(g.Candidates), slices.Clone(g.Refusals)
		g.Copied = slices.Clone(g.Copied)
	}
	return &out
}

// Facts hold what a plan is made from.
type Facts struct {
	// Node is the one to be emptied.
	Node string
	// WithDisks has guests that cannot move without their disks, and are to move by their eviction strategy, move with
	// them.
	WithDisks bool
	// Strategy is the cluster's, empty for the default.
	Strategy v1.EvictionStrategy
	// VMIs are those on the node, VMs those of the cluster by namespace/name.
	VMIs []v1.VirtualMachineInstance
	VMs  map[string]*v1.VirtualMachine
	// Nodes and Pods are the cluster's; pods that are over may be left out.
	Nodes []corev1.Node
	Pods  []corev1.Pod
	// Volumes are the PersistentVolumes that not every node can use, by the namespace/name of their claims.
	// VolumesHidden says that the user may not list them.
	Volumes       map[string]*corev1.NodeSelector
	VolumesHidden bool
}

// NewPlan reports what the evacuation of the node would lead to.
func NewPlan(f Facts) *Report {
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind}, Node: f.Node, Planned: true,
		Guests: []Guest{},
	}
	for i := range f.Nodes {
		if f.Nodes[i].Name == f.Node {
			r.Cordoned = f.Nodes[i].Spec.Unschedulable
		}
	}
	capacities := newCapacities(f.Nodes, f.Pods)
	vmis := slices.Clone(f.VMIs)
	slices.SortFunc(vmis, func(a, b v1.VirtualMachineInstance) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range vmis {
		vmi := &vmis[i]
		if vmi.Status.NodeName != f.Node || !life.Staying(vmi) {
			continue
		}
		r.Guests = append(r.Guests, plan(f, vmi, capacities))
	}
	return r
}

// plan returns what becomes of one guest. It reserves the guest's resources on its new node.
func plan(f Facts, vmi *v1.VirtualMachineInstance, capacities []*capacity) Guest {
	strategy := eviction.Strategy(vmi, f.Strategy)
	g := Guest{Namespace: vmi.Namespace, Name: vmi.Name, Strategy: string(strategy), vmi: vmi}
	var pod *corev1.Pod
	for i := range f.Pods {
		if life.GuestIn(vmi, &f.Pods[i]) { // the guest is on f.Node
			pod = &f.Pods[i]
			g.pod = pod.Name
		}
	}
	verdict := eviction.Decide(vmi, eviction.Pod{UID: podUID(pod), Node: f.Node}, f.Strategy)
	switch {
	case pod == nil:
		g.Outcome, g.Reason = Stays, "its pod was not found"
		return g
	case strategy == v1.EvictionStrategyExternal && !verdict.Allow:
		g.Outcome, g.Reason = Marked,
			"its eviction strategy is External: somebody else is to act on status.evacuationNodeName"
		return g
	case f.WithDisks && moves(strategy) && life.Running(vmi) && !eviction.Movable(vmi) &&
		volumemigration.Bring(vmi).Helps():
		g.Outcome, g.WithDisks, g.bring = Moves, true, true
	case verdict.Allow:
		g.Outcome, g.Reason = end(f.VMs[vmi.Namespace+"/"+vmi.Name], vmi)
		if g.Reason == "" {
			g.Reason = unmoved(vmi, strategy)
		}
		if g.Outcome == Ends {
			return g
		}
	case strategy == v1.EvictionStrategyLiveMigrate && !eviction.Movable(vmi):
		g.Outcome, g.Reason = Stays, "it cannot move and must not be shut down: "+eviction.Obstacle(vmi)
		return g
	default:
		g.Outcome = Moves
		g.WithDisks = !migrations.Migratable(vmi)
	}
	bound := f.bound(&g, pod)
	place(&g, pod, f.Node, capacities, bound)
	switch {
	case g.Target == "":
		if g.Outcome == Moves {
			g.Outcome = Waits
		}
		g.because("no other node would take it now")
	case f.VolumesHidden && len(claimsOf(vmi, pod)) > 0 && !g.WithDisks:
		g.because("which nodes its volumes can be used on is not known, since you may not list persistentvolumes")
	}
	return g
}

// because adds a reason.
func (g *Guest) because(reason string) {
	if g.Reason != "" {
		g.Reason += "; "
	}
	g.Reason += reason
}

// Stranded reports whether a guest would be shut down and could not start anywhere else as things are.
func (g *Guest) Stranded() bool { return g.Outcome == Restarts && g.Target == "" }

// moves reports whether an eviction strategy moves a guest that can move.
func moves(strategy v1.EvictionStrategy) bool {
	return strategy == v1.EvictionStrategyLiveMigrate || strategy == v1.EvictionStrategyLiveMigrateIfPossible
}

// unmoved returns why a guest is shut down rather than moved; empty for one that does not run yet or is being stopped.
func unmoved(vmi *v1.VirtualMachineInstance, strategy v1.EvictionStrategy) string {
	switch {
	case !eviction.Alive(vmi):
		return ""
	case strategy == v1.EvictionStrategyLiveMigrateIfPossible:
		return "it cannot move: " + eviction.Obstacle(vmi)
	case vmi.Spec.EvictionStrategy == nil || *vmi.Spec.EvictionStrategy == "":
		return fmt.Sprintf("it is shut down, since it has no eviction strategy and the cluster's is %s", strategy)
	}
	return fmt.Sprintf("it is shut down, since its eviction strategy is %s", strategy)
}

func podUID(pod *corev1.Pod) types.UID {
	if pod != nil {
		return pod.UID
	}
	return ""
}

// end returns the outcome for a guest that is shut down with its pod, which counts as a failure, and the reason.
func end(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) (Outcome, string) {
	if vm == nil || !metav1.IsControlledBy(vmi, vm) {
		return Ends, "it is shut down, and no VirtualMachine starts it again"
	}
	strategy, err := vm.RunStrategy()
	switch {
	case err != nil:
		return Ends, fmt.Sprintf("it is shut down, and its run strategy cannot be read: %v", err)
	case strategy == v1.RunStrategyAlways, strategy == v1.RunStrategyRerunOnFailure:
		return Restarts, ""
	}
	return Ends, fmt.Sprintf("it is shut down, and with run strategy %s nothing starts it again", strategy)
}
