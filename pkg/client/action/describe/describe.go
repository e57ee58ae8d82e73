// Package describe puts together all there is to say about one virtual machine.
package describe

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/events"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/report/progress"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// Kind of a Report.
const Kind = "DescribeReport"

// Report is what `describe -o json` prints: the objects of one virtual machine and what they mean.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// VM is absent for an instance of its own, VMI while the VM does not run.
	VM  *v1.VirtualMachine         `json:"vm,omitempty"`
	VMI *v1.VirtualMachineInstance `json:"vmi,omitempty"`
	// Pods are the names of the instance's pods with their phase and node.
	Pods []Pod `json:"pods,omitempty"`
	// Migration is the one that is under way; absent without one.
	Migration *Migration `json:"migration,omitempty"`
	// Snapshots are the VM's, the oldest first.
	Snapshots []Snapshot `json:"snapshots,omitempty"`
	// Why is the explanation that `virtctl why` gives.
	Why *why.Report `json:"why"`
	// Events are about the VM, its instance and its pods, the oldest first.
	Events []corev1.Event `json:"events,omitempty"`
}

// ReportName returns the machine's name.
func (r *Report) ReportName() string { return r.Why.ReportName() }

// Objects returns the objects of the cluster that the report holds.
func (r *Report) Objects() []metav1.Object {
	var out []metav1.Object
	if r.VM != nil {
		out = append(out, r.VM)
	}
	if r.VMI != nil {
		out = append(out, r.VMI)
	}
	for i := range r.Events {
		out = append(out, &r.Events[i])
	}
	return out
}

// Snapshot is one of the VM's.
type Snapshot struct {
	// Name is the VirtualMachineSnapshot's, Phase its status.phase, Ready whether it can be restored, and Created when
	// it was asked for.
	Name    string      `json:"name"`
	Phase   string      `json:"phase"`
	Ready   bool        `json:"ready"`
	Created metav1.Time `json:"created"`
}

// snapshots returns the snapshots of a VM; none if the user may not read them, or the cluster does not have the kind.
func snapshots(ctx context.Context, c *client.Client, namespace, name string) ([]Snapshot, error) {
	list, err := snapshot.List(ctx, c, namespace, "", name)
	switch {
	case errors.Is(err, snapshot.ErrNoKinds), apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var out []Snapshot
	for i := range list.Items {
		s := &list.Items[i]
		out = append(out, Snapshot{s.Name, snapshot.Phase(s), vmsnapshots.Ready(s), s.CreationTimestamp})
	}
	return out, nil
}

// Pod is one of the instance's.
type Pod struct {
	// Name is the pod's, Phase its status.phase, and Node where it is, empty before it is scheduled.
	Name  string `json:"name"`
	Phase string `json:"phase"`
	Node  string `json:"node,omitempty"`
	// Ready is the pod's condition: Services send traffic only to a pod that is. NotReady says why it is not.
	Ready    bool   `json:"ready"`
	NotReady string `json:"notReady,omitempty"`
}

// Migration is a move of the guest to another node.
type Migration struct {
	// Name is the VirtualMachineInstanceMigration's, Phase its status.phase, and From and To the nodes, once known.
	Name  string                                  `json:"name"`
	Phase v1.VirtualMachineInstanceMigrationPhase `json:"phase"`
	From  string                                  `json:"from,omitempty"`
	To    string                                  `json:"to,omitempty"`
	// Progress is how far it is; absent before the guest moves. Stage says all of this in a line.
	Progress *progress.Progress `json:"progress,omitempty"`
	Stage    string             `json:"stage"`
}

func underWay(list []v1.VirtualMachineInstanceMigration) *Migration {
	m := migrate.UnderWay(list)
	if m == nil {
		return nil
	}
	out := &Migration{
		Name: m.Name, Phase: cmp.Or(m.Status.Phase, v1.MigrationPending), Progress: migrate.Progress(m),
		Stage: migrate.Stage(m),
	}
	if s := m.Status.MigrationState; s != nil {
		out.From, out.To = s.SourceNode, s.TargetNode
	}
	return out
}

// podOf returns what the report says of a pod.
func podOf(pod *corev1.Pod) Pod {
	out := Pod{Name: pod.Name, Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName}
	out.Ready, out.NotReady = why.PodReady(pod)
	return out
}

// DeepCopyObject copies the report.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.VM, out.VMI = r.VM.DeepCopy(), r.VMI.DeepCopy()
	out.Pods = append([]Pod(nil), r.Pods...)
	if r.Migration != nil {
		migration := *r.Migration
		if migration.Progress != nil {
			migration.Progress = new(*migration.Progress)
		}
		out.Migration = &migration
	}
	out.Snapshots = append([]Snapshot(nil), r.Snapshots...)
	out.Events = append([]corev1.Event(nil), r.Events...)
	return &out
}

// absentError is an action.ErrNotFound that says which machine may have been meant.
type absentError struct{ text string }

func (e *absentError) Error() string      { return e.text }
func (*absentError) Is(target error) bool { return target == action.ErrNotFound }

// Get reads and explains. A machine that does not exist is an action.ErrNotFound that says which may have been meant.
func Get(ctx context.Context, c *client.Client, namespace, name string, now time.Time) (*Report, error) {
	facts, err := gather.Facts(ctx, c, namespace, name, now)
	if err != nil {
		return nil, err
	}
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind},
		VM:       facts.VM, VMI: facts.VMI, Why: why.Explain(facts),
	}
	if facts.NotInstalled {
		return nil, action.ErrNotInstalled
	}
	if r.VM == nil && r.VMI == nil {
		return nil, &absentError{r.Why.Summary}
	}
	for i := range facts.Pods {
		r.Pods = append(r.Pods, podOf(&facts.Pods[i]))
	}
	r.Migration = underWay(facts.Migrations)
	if r.VM != nil {
		if r.Snapshots, err = snapshots(ctx, c, namespace, name); err != nil {
			return nil, err
		}
	}
	selection := events.Selection{Namespace: namespace, Names: []string{name}}
	for i := range facts.Events {
		if selection.Match(&facts.Events[i]) {
			r.Events = append(r.Events, facts.Events[i])
		}
	}
	return r, nil
}
