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
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/progress"
)

// reportEvery is the least time between two writes of a migration's progress.
const reportEvery = 2 * time.Second

// doubtAfter is the number of passes over a guest's memory after which it is reported that the memory changes too fast.
const doubtAfter = 4

// reported holds what was reported of the progress of a session's migration. One pass at a time uses it.
type reported struct {
	uid    types.UID
	name   string // of the migration; empty when it was not found
	at     time.Time
	text   string
	warned bool
}

// report holds what to report on the progress of a migration.
type report struct {
	uid types.UID
	// doubt is a warning that the migration may not end; empty for none.
	doubt string
	// annotation is the progress, text the same without the time; both are empty when they need not be written.
	annotation, text string
	at               time.Time
}

// report returns what to report on the progress of the migration away from here; nil for nothing.
func (s *Following) report(now time.Time) *report {
	if s == nil {
		return nil
	}
	account := s.Seen.Guest.GetMigration()
	if account.GetProgress().GetDataTotal() == 0 || account.Phase == launcherpb.MigrationPhase_MIGRATION_PHASE_FAILED {
		return nil
	}
	was, next := s.Reported, &report{uid: types.UID(account.Uid), at: now}
	if was.uid != next.uid {
		was = reported{}
	}
	p := progressOf(account)
	if p.Iteration >= doubtAfter && !p.Converges() && !was.warned && !p.Done {
		next.doubt = doubt(p)
	}
	if text := p.String(); text != was.text && (now.Sub(was.at) >= reportEvery || p.Done) {
		p.Time = now.UTC().Truncate(time.Millisecond)
		next.annotation, next.text = p.String(), text
	}
	if next.doubt == "" && next.text == "" {
		return nil
	}
	return next
}

// report writes the progress of a session's migration; nothing depends on that, so what goes wrong is only noted.
func (r *Reconciler) report(ctx context.Context, s *session, next *report) {
	was := &s.reported
	if was.uid != next.uid {
		*was = reported{uid: next.uid}
	}
	if next.doubt != "" {
		was.warned = true
		r.Events.Event(s.latest(), corev1.EventTypeWarning, string(v1.Migrating), next.doubt)
	}
	if next.text == "" {
		return
	}
	was.at = next.at
	if err := r.writeProgress(ctx, s, next.annotation); err != nil {
		s.log.Info("the migration's progress was not written", "err", err)
		return
	}
	was.text = next.text
}

func doubt(p *progress.Progress) string {
	return fmt.Sprintf("The guest changes its memory faster (%s) than it can be copied (%s).",
		perSecond(p.DirtyBytesPerSecond), perSecond(p.BandwidthBytesPerSecond))
}

// perSecond returns a number of bytes a second, in MiB, or KiB where that would be none.
func perSecond(bytes uint64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%d KiB/s", bytes>>10)
	}
	return fmt.Sprintf("%d MiB/s", bytes>>20)
}

// writeProgress annotates the migration; one that is gone needs none.
func (r *Reconciler) writeProgress(ctx context.Context, s *session, text string) error {
	t := &s.reported
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
	meta := metav1.ObjectMeta{Namespace: s.target.VMI.Namespace, Name: t.name}
	m := &v1.VirtualMachineInstanceMigration{ObjectMeta: meta}
	// Not by frame.Writes: nobody here reads it back.
	err = r.Live.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// migrationName finds a VMI's migration by its UID; empty when it is gone.
func (r *Reconciler) migrationName(ctx context.Context, vmi types.NamespacedName, uid types.UID) (string, error) {
	var all v1.VirtualMachineInstanceMigrationList
	err := r.Live.List(ctx, &all, client.InNamespace(vmi.Namespace),
		client.MatchingLabels{v1.MigrationSelectorLabel: names.LabelValue(vmi.Name)})
	if err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	for i := range all.Items {
		if all.Items[i].UID == uid {
			return all.Items[i].Name, nil
		}
	}
	return "", nil
}

// progressOf returns a launcher's account in the words of the annotation, without the time.
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
