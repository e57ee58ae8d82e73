package handler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestLimitsOf(t *testing.T) {
	byDefault := limits{perGiB: 150 * time.Second, progress: 150 * time.Second, connections: parallelConnections}
	sized := func(memory string) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Memory = &v1.MemoryStatus{GuestCurrent: new(resource.MustParse(memory))}
		}
	}
	for name, tc := range map[string]struct {
		set  func(*v1.MigrationConfiguration)
		vmi  func(*v1.VirtualMachineInstance)
		want func(*limits)
	}{
		"nothing":       {},
		"a small guest": {vmi: sized("2047Mi"), want: func(l *limits) { l.connections = 0 }},
		"a large guest": {vmi: sized("64Gi")},

		"bandwidth": {
			set:  func(c *v1.MigrationConfiguration) { c.BandwidthPerMigration = new(resource.MustParse("64Mi")) },
			want: func(l *limits) { l.bandwidth, l.connections = 64<<20, 0 },
		},
		"timeouts": {set: func(c *v1.MigrationConfiguration) {
			c.CompletionTimeoutPerGiB, c.ProgressTimeout = new(int64(3)), new(int64(0))
		}, want: func(l *limits) { l.perGiB, l.progress = 3*time.Second, 0 }},
		"auto-converge": {
			set:  func(c *v1.MigrationConfiguration) { c.AllowAutoConverge = new(true) },
			want: func(l *limits) { l.autoConverge = true },
		},
		"post-copy": {
			set:  func(c *v1.MigrationConfiguration) { c.AllowPostCopy = new(true) },
			want: func(l *limits) { l.postCopy, l.disruption, l.connections = true, true, 0 },
		},
		"unsafe": {
			set:  func(c *v1.MigrationConfiguration) { c.UnsafeMigrationOverride = new(true) },
			want: func(l *limits) { l.unsafe = true },
		},
		"limited processors": {vmi: func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}, want: func(l *limits) { l.connections = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
				MigrationConfiguration: &v1.MigrationConfiguration{},
			}
			sized("2Gi")(vmi)
			want := byDefault
			if tc.set != nil {
				tc.set(vmi.Status.MigrationState.MigrationConfiguration)
			}
			if tc.vmi != nil {
				tc.vmi(vmi)
			}
			if tc.want != nil {
				tc.want(&want)
			}
			if got := limitsOf(vmi); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
