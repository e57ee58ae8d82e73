package migrationcontroller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

func TestWait(t *testing.T) {
	migration := func(name string, age time.Duration, phase v1.VirtualMachineInstanceMigrationPhase,
	) *v1.VirtualMachineInstanceMigration {
		return &v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-age)),
			},
			Status: v1.VirtualMachineInstanceMigrationStatus{Phase: phase},
		}
	}
	mine := migration("m", 0, v1.MigrationPending)
	const same = "migration other of the same VirtualMachineInstance"
	for name, tc := range map[string]struct {
		other            *v1.VirtualMachineInstanceMigration
		running, waiting migrations.Number
		want             string
	}{
		"alone":              {},
		"an older one waits": {other: migration("other", time.Second, v1.MigrationPending), want: same},
		"a newer one waits":  {other: migration("other", -time.Second, v1.MigrationPending)},
		"a newer one runs":   {other: migration("other", -time.Second, v1.MigrationScheduling), want: same},
		"an older one ended": {other: migration("other", time.Second, v1.MigrationFailed)},
		"of the same second, a lesser name": {
			other: migration("l", 0, ""), want: "migration l of the same VirtualMachineInstance",
		},
		"of the same second, a greater name": {other: migration("n", 0, "")},
		"the cluster is full": {
			running: migrations.Number{Cluster: 5}, want: "5 other migrations in the cluster",
		},
		"the node is full": {
			running: migrations.Number{Cluster: 4, Away: 2}, want: "2 other migrations away from node node01",
		},
		"below both limits": {running: migrations.Number{Cluster: 4, Away: 1}},
		"only waiting ones": {waiting: migrations.Number{Cluster: 9, Away: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			counts := migrations.Counts{
				Own:     []*v1.VirtualMachineInstanceMigration{mine},
				Running: tc.running, Unfinished: tc.waiting,
			}
			if tc.other != nil {
				counts.Own = append(counts.Own, tc.other)
			}
			got := wait(mine, "node01", counts, v1.MigrationConfiguration{
				ParallelMigrationsPerCluster: new(uint32(5)), ParallelOutboundMigrationsPerNode: new(uint32(2)),
			})
			if got != tc.want {
				t.Errorf("got %q", got)
			}
		})
	}
}
