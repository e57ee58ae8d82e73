package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/progress"
)

// tellEvery is how often the progress of a migration is written at most.
const tellEvery = 2 * time.Second

// doubtAfter is how many passes over a guest's memory that changes too fast it takes to say so.
const doubtAfter = 4

// told is what was told of the progress of a session's migration. One pass at a time uses it.
type told struct {
	uid    types.UID
	name   string // of the migration; empty when it was not found
	at     time.Time
	text   string
	warned bool
}

// tellProgress writes how far the migration away from here is, if there is news; nothing depends on that, so what goes
// wrong is only noted.
func (r *Reconciler) tellProgress(ctx context.Context, s *session) {
	account := s.observation().Guest.GetMigration()
	if account.GetProgress().GetDataTotal() == 0 || account.Phase == launcherpb.MigrationPhase_MIGRATION_PHASE_FAILED {
		return
	}
	now := r.Node.Now()
	t := &s.told
	if uid := types.UID(account.Uid); t.uid != uid {
		*t = told{uid: uid}
	}
	p := progressOf(account)
	if p.Iteration >= doubtAfter && !p.Converges() && !t.warned && !p.Done {
		t.warned = true
		r.Events.Event(s.latest(), corev1.EventTypeWarning, string(v1.Migrating), doubt(p))
	}
	p.Time = time.Time{}
	text := p.String()
	if text == t.text || now.Sub(t.at) < tellEvery && !p.Done {
		return
	}
	p.Time = now.UTC().Truncate(time.Millisecond)
	t.at = now
	if err := r.writeProgress(ctx, s, p.String()); err != nil {
		s.log.Info("the migration's progress is not told", "err", err)
		return
	}
	t.text = text
}

func doubt(p *progress.Progress) string {
	return fmt.Sprintf("The guest changes its memory faster (%d MiB/s) than it can be copied (%d MiB/s).", p.DirtyBytesPerSecond>>20, p.BandwidthBytesPerSecond>>20)
}

// writeProgress annotates the migration; one that is gone needs none.
func (r *Reconciler) writeProgress(ctx context.Context, s *session, text string) error {
	t := &s.told
	if t.name == "" {
		name, err := r.migrationName(ctx, s.target.VMI, t.uid)
		if name == "" || err != nil {
			return err
		}
		t.name = name
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": t.uid, "annotations": map[string]string{names.AnnotationProgress: text},
	}})
	if err != nil {
		return err
	}
	m := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: s.target.VMI.Namespace, Name: t.name}}
	err = r.Live.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// migrationName finds a VMI's migration by its UID; empty when it is gone.
func (r *Reconciler) migrationName(ctx context.Context, vmi types.NamespacedName, uid types.UID) (string, error) {
	options := []client.ListOption{client.InNamespace(vmi.Namespace)}
	if len(validation.IsValidLabelValue(vmi.Name)) == 0 {
		options = append(options, client.MatchingLabels{v1.MigrationSelectorLabel: vmi.Name})
	}
	var all v1.VirtualMachineInstanceMigrationList
	if err := r.Live.List(ctx, &all, options...); err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	for i := range all.Items {
		if all.Items[i].UID == uid {
			return all.Items[i].Name, nil
		}
	}
	return "", nil
}

// progressOf is a launcher's account in the words of the annotation, without the time.
func progressOf(account *launcherpb.Migration) *progress.Progress {
	a := account.Progress
	p := &progress.Progress{
		Mode:           string(modes[account.Mode]),
		ElapsedSeconds: a.Elapsed.AsDuration().Round(time.Millisecond).Seconds(),
		TotalBytes:     a.DataTotal, ProcessedBytes: a.DataProcessed, RemainingBytes: a.DataRemaining,
		MemoryRemainingBytes: a.MemoryRemaining, DiskRemainingBytes: a.DiskRemaining,
		BandwidthBytesPerSecond: a.Bandwidth, DirtyBytesPerSecond: a.DirtyRate,
		ThrottlePercent: a.Throttle, Iteration: a.Iteration,
		ExpectedDowntimeMilliseconds: a.ExpectedDowntime.AsDuration().Milliseconds(),
	}
	if account.Phase == launcherpb.MigrationPhase_MIGRATION_PHASE_COMPLETED {
		p.Done, p.RemainingBytes, p.MemoryRemainingBytes, p.DiskRemainingBytes = true, 0, 0, 0
		p.DowntimeMilliseconds = account.Downtime.AsDuration().Milliseconds()
		p.ElapsedSeconds = account.EndedAt.AsTime().Sub(account.StartedAt.AsTime()).Round(time.Millisecond).Seconds()
	}
	return p
}
