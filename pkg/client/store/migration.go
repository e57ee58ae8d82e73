package store

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/progress"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Migration is one move of a guest between nodes.
type Migration struct {
	Namespace, Name string
	UID             types.UID
	// Machine is the instance that moves.
	Machine string
	Phase   v1.VirtualMachineInstanceMigrationPhase
	// From and To are nodes, empty until they are known.
	From, To string
	// Created, Started and Ended are zero until they are.
	Created, Started, Ended time.Time
	// Mode is how memory moves; Failure why it did not.
	Mode    string
	Failure string
	// Deleting is whether it is being cancelled.
	Deleting bool
	// WithDisks is whether it brings disks along, Update whether virt-controller made it by itself to give the guest
	// another pod.
	WithDisks, Update bool
	// Left are the claims that the guest has left behind, with commas between; they may have been deleted since.
	Left string
	// Progress is how far it is; nil where that is not known.
	Progress *progress.Progress
}

// Key returns the migration's namespace and name.
func (m *Migration) Key() Key { return Key{Namespace: m.Namespace, Name: m.Name} }

// Of returns the namespace and name of the machine that moves.
func (m *Migration) Of() Key { return Key{Namespace: m.Namespace, Name: m.Machine} }

// Active reports whether the migration has not ended.
func (m *Migration) Active() bool {
	return m.Phase != v1.MigrationSucceeded && m.Phase != v1.MigrationFailed
}

// OfMigration makes a migration's row.
func OfMigration(m *v1.VirtualMachineInstanceMigration) *Migration {
	row := &Migration{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Machine: m.Spec.VMIName,
		Phase:   cmp.Or(m.Status.Phase, v1.MigrationPending),
		Created: m.CreationTimestamp.Time, Deleting: m.DeletionTimestamp != nil,
		WithDisks: volumemigration.WithDisks(m), Update: migrations.IsUpdate(m),
	}
	if row.Phase == v1.MigrationSucceeded {
		var left []string
		for _, copied := range volumemigration.CopiedBy(m) {
			left = append(left, copied.From)
		}
		row.Left = strings.Join(left, ", ")
	}
	if p, err := progress.Parse(m.Annotations[names.AnnotationProgress]); err == nil { // nothing depends on it
		row.Progress = p
	}
	if s := m.Status.MigrationState; s != nil {
		row.From, row.To, row.Mode, row.Failure = s.SourceNode, s.TargetNode, string(s.Mode), s.FailureReason
		if s.StartTimestamp != nil {
			row.Started = s.StartTimestamp.Time
		}
		if s.EndTimestamp != nil {
			row.Ended = s.EndTimestamp.Time
		}
	}
	return row
}
