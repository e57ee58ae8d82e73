package migrationcontroller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// wait returns what a migration that has not begun must wait for.
func (r *Reconciler) wait(
	ctx context.Context, migration *v1.VirtualMachineInstanceMigration, instance *v1.VirtualMachineInstance,
) (string, error) {
	var all v1.VirtualMachineInstanceMigrationList
	if err := r.Client.List(ctx, &all); err != nil {
		return "", fmt.Errorf("list migrations: %w", err)
	}
	for i := range all.Items {
		if other := &all.Items[i]; other.UID != migration.UID && !other.IsFinal() && r.writes.Stale(other) {
			return "the cache", nil
		}
	}
	counts, err := Count(ctx, r.Client, all.Items, instance)
	if err != nil {
		return "", err
	}
	return wait(migration, instance.Status.NodeName, counts, r.Config().Migrations), nil
}

// wait returns which other migration of the VMI comes first, or which limit is reached.
func wait(
	migration *v1.VirtualMachineInstanceMigration, node string, counts migrations.Counts,
	limits v1.MigrationConfiguration,
) string {
	for _, other := range counts.Own {
		if other.UID != migration.UID && !other.IsFinal() &&
			(other.IsRunning() || migrations.ByAge(other, migration) < 0) {
			return "migration " + other.Name + " of the same VirtualMachineInstance"
		}
	}
	switch running := counts.Running; {
	case running.Cluster >= int(*limits.ParallelMigrationsPerCluster):
		return fmt.Sprintf("%d other migrations in the cluster", running.Cluster)
	case running.Away >= int(*limits.ParallelOutboundMigrationsPerNode):
		return fmt.Sprintf("%d other migrations away from node %s", running.Away, node)
	}
	return ""
}

// Count counts migrations for a VMI; it gets the nodes of the VMIs that migrate from reader.
func Count(
	ctx context.Context, reader client.Reader, all []v1.VirtualMachineInstanceMigration,
	vmi *v1.VirtualMachineInstance,
) (migrations.Counts, error) {
	nodes := map[types.NamespacedName]string{}
	for i := range all {
		if all[i].IsFinal() {
			continue
		}
		key := migrations.Instance(&all[i])
		var moving v1.VirtualMachineInstance
		err := reader.Get(ctx, key, &moving)
		if client.IgnoreNotFound(err) != nil {
			return migrations.Counts{}, fmt.Errorf("get VirtualMachineInstance %s: %w", key.Name, err)
		}
		if err == nil {
			nodes[key] = moving.Status.NodeName
		}
	}
	return migrations.Count(all, vmi, nodes), nil
}
