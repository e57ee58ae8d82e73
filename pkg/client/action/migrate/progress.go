// Package migrate is what there is to know of a guest's move to another node before and while it happens: Plan
// (plan.go) says where it could go, what would be copied and what is in the way, Progress how far it is. Both are
// pure; the dashboard shows the same.
package migrate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/progress"
)

// Progress returns how far a migration is; nil when that is not known.
func Progress(m *v1.VirtualMachineInstanceMigration) *progress.Progress {
	p, err := progress.Parse(m.Annotations[names.AnnotationProgress])
	if err != nil { // it is the cluster's to say something sensible, and nothing depends on it
		return nil
	}
	return p
}

// UnderWay returns the migration of one guest that has begun and has not ended; nil when there is none.
func UnderWay(list []v1.VirtualMachineInstanceMigration) *v1.VirtualMachineInstanceMigration {
	var found *v1.VirtualMachineInstanceMigration
	for i := range list {
		m := &list[i]
		if m.IsFinal() || found != nil && found.Status.MigrationState != nil {
			continue
		}
		found = m
	}
	return found
}

// Stage returns in a line where a migration that has not ended stands: "Running, from node1 to node2: 63 %, …".
func Stage(m *v1.VirtualMachineInstanceMigration) string {
	text := string(cmp.Or(m.Status.Phase, v1.MigrationPending))
	if s := m.Status.MigrationState; s != nil && s.SourceNode != "" && s.TargetNode != "" {
		text += fmt.Sprintf(", from %s to %s", s.SourceNode, s.TargetNode)
	}
	if p := Progress(m); p != nil {
		text += ": " + Summary(p)
	}
	if m.DeletionTimestamp != nil {
		text += " (being cancelled)"
	}
	return text
}

// Summary returns in a line how far a migration is: "63 %, 45.0 MiB left at 120 MiB/s, changes 30.0 MiB/s, about 1s".
func Summary(p *progress.Progress) string {
	if p.Done {
		// The whole move takes longer: the target starts first, and is handed the guest afterwards.
		text := fmt.Sprintf("copying %s took %s", Bytes(p.ProcessedBytes), seconds(p.ElapsedSeconds))
		if p.DowntimeMilliseconds > 0 {
			text += fmt.Sprintf(", stood still for %d ms", p.DowntimeMilliseconds)
		}
		return text
	}
	parts := []string{fmt.Sprintf("%d %%", p.Percent())}
	left := Bytes(p.RemainingBytes) + " left"
	if p.BandwidthBytesPerSecond > 0 {
		left += " at " + Bytes(p.BandwidthBytesPerSecond) + "/s"
	}
	parts = append(parts, left)
	if p.DirtyBytesPerSecond > 0 {
		parts = append(parts, "changes "+Bytes(p.DirtyBytesPerSecond)+"/s")
	}
	if p.ThrottlePercent > 0 {
		parts = append(parts, fmt.Sprintf("slowed down by %d %%", p.ThrottlePercent))
	}
	switch v1.MigrationMode(p.Mode) {
	case v1.MigrationPostCopy:
		parts = append(parts, "post-copy")
	case v1.MigrationPaused:
		parts = append(parts, "stands still")
	}
	if left, ends := p.Left(); ends {
		parts = append(parts, "about "+max(left, time.Second).Round(time.Second).String())
	} else if !p.Converges() {
		parts = append(parts, "no end in sight")
	}
	return strings.Join(parts, ", ")
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}

// Bytes formats a number of bytes in three digits or so: "45.0 MiB".
func Bytes(n uint64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if value >= 100 {
		return fmt.Sprintf("%.0f %ciB", value, units[unit])
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
