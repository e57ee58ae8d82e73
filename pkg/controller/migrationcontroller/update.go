package migrationcontroller

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
	"github.com/virtkit/virtkit/pkg/waits"
)

// The ends of the back-off after migrations that failed.
const (
	backoffFirst = 20 * time.Second
	backoffMost  = 5 * time.Minute
)

// Backoff returns how long a guest is left alone after so many migrations in a row that failed, at least one.
func Backoff(failures int) time.Duration { return waits.After(backoffFirst, backoffMost, failures) }

// IsUpdate reports a migration that CreateUpdate made, whichever reconciler wanted it.
func IsUpdate(m *v1.VirtualMachineInstanceMigration) bool { return migrations.IsUpdate(m) }

// UpdateName returns the name of a migration that CreateUpdate makes, KubeVirt's prefix in front. The same parts give
// the same name.
func UpdateName(parts ...string) string {
	return "kubevirt-workload-update-" + names.Hash(strings.Join(parts, "\n"), 10)
}

// Failures returns how many of the last migrations in a guest's list that counts accepts failed in a row, and when the
// last of them did. One that succeeded ends the row, and so does one that is not over.
func Failures(
	list []*v1.VirtualMachineInstanceMigration, counts func(*v1.VirtualMachineInstanceMigration) bool,
) (count int, last time.Time) {
	newestFirst := slices.SortedFunc(slices.Values(list),
		func(a, b *v1.VirtualMachineInstanceMigration) int { return migrations.ByAge(b, a) })
	for _, m := range newestFirst {
		if !counts(m) {
			continue
		}
		if m.Status.Phase != v1.MigrationFailed {
			break
		}
		if count++; count == 1 {
			last = Ended(m)
		}
	}
	return count, last
}

// UpdateWait returns how much longer a guest is left alone after so many updates in a row that failed, the last of them
// then. It is zero or less when it may move.
func UpdateWait(failures int, last, now time.Time) time.Duration {
	if failures == 0 {
		return 0
	}
	return Backoff(failures) - now.Sub(last)
}

// NextUpdate returns the name of the migration that CreateUpdate is to make of a guest with these migrations, for the
// cause that parts name. It is "" as long as one is not over, whose end is an event, and for left while the guest is
// left alone after updates that failed.
func NextUpdate(
	list []*v1.VirtualMachineInstanceMigration, now time.Time, parts ...string,
) (name string, left time.Duration) {
	made := 0
	for _, m := range list {
		if !m.IsFinal() {
			return "", 0
		}
		if IsUpdate(m) {
			made++
		}
	}
	failures, last := Failures(list, IsUpdate)
	if left = UpdateWait(failures, last, now); left > 0 {
		return "", left
	}
	return UpdateName(append(parts, strconv.Itoa(made))...), 0
}

// Ended returns when a migration that is over reached its last phase.
func Ended(m *v1.VirtualMachineInstanceMigration) time.Time {
	at := m.CreationTimestamp.Time
	for _, transition := range m.Status.PhaseTransitionTimestamps {
		if t := transition.PhaseTransitionTimestamp.Time; t.After(at) {
			at = t
		}
	}
	return at
}

// CreateUpdate makes the migration by which a guest gets what only another pod has: another launcher, another size or
// network, other claims. Its name depends on the migrations made before, so that a second one is not made where the
// cache has not seen the first.
func CreateUpdate(
	ctx context.Context, writes *frame.Writes, recorder record.EventRecorder, instance *v1.VirtualMachineInstance,
	name string,
) error {
	migration := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: instance.Namespace,
			Annotations: map[string]string{v1.WorkloadUpdateMigrationAnnotation: ""},
		},
		Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: instance.Name},
	}
	if volumemigration.Pending(instance) {
		metav1.SetMetaDataLabel(&migration.ObjectMeta, v1.VolumesUpdateMigration, names.LabelValue(instance.Name))
	}
	err := writes.Create(ctx, migration)
	switch {
	case err == nil:
		recorder.Eventf(instance, corev1.EventTypeNormal, ReasonSuccessfulCreate,
			"Created Migration %s for automated workload update", name)
		return nil
	case apierrors.IsAlreadyExists(err), frame.Ending(err):
		return nil // Not seen yet, or nothing to move any more.
	}
	recorder.Eventf(instance, corev1.EventTypeWarning, ReasonFailedCreate,
		"Error creating a Migration for automated workload update: %v", err)
	return fmt.Errorf("create a migration: %w", err)
}
