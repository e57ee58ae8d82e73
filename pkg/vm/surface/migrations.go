package surface

import (
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// Defaults of spec.configuration.migrations; KubeVirt's own.
const (
	DefaultMigrationsPerCluster     = 5
	DefaultOutboundMigrationsNode   = 2
	DefaultMigrationSecondsPerGiB   = 150
	DefaultMigrationProgressTimeout = 150 // seconds
	DefaultNodeDrainTaintKey        = "kubevirt.io/drain"
)

// Migrations returns spec.configuration.migrations, the settings of migrations, with every default filled in: no field
// that virtkit honours is nil. Fields that it refuses are.
func Migrations(given *v1.MigrationConfiguration) v1.MigrationConfiguration {
	if given == nil {
		given = &v1.MigrationConfiguration{}
	}
	out := v1.MigrationConfiguration{
		ParallelMigrationsPerCluster: filled(given.ParallelMigrationsPerCluster, DefaultMigrationsPerCluster),
		ParallelOutboundMigrationsPerNode: filled(given.ParallelOutboundMigrationsPerNode,
			DefaultOutboundMigrationsNode),
		BandwidthPerMigration:   filled(given.BandwidthPerMigration, resource.Quantity{}),
		CompletionTimeoutPerGiB: filled(given.CompletionTimeoutPerGiB, DefaultMigrationSecondsPerGiB),
		ProgressTimeout:         filled(given.ProgressTimeout, DefaultMigrationProgressTimeout),
		NodeDrainTaintKey:       filled(given.NodeDrainTaintKey, DefaultNodeDrainTaintKey),
		AllowAutoConverge:       filled(given.AllowAutoConverge, false),
		AllowPostCopy:           filled(given.AllowPostCopy, false),
		UnsafeMigrationOverride: filled(given.UnsafeMigrationOverride, false),
	}
	// A guest that may be moved by post-copy may be disturbed, unless said otherwise.
	out.AllowWorkloadDisruption = filled(given.AllowWorkloadDisruption, *out.AllowPostCopy)
	return out
}

// filled returns a copy of what was given, else of the default.
func filled[T any](given *T, value T) *T {
	if given != nil {
		value = *given
	}
	return &value
}
