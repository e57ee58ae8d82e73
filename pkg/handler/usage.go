package handler

import (
	"maps"

	"github.com/virtkit/virtkit/pkg/handler/usage"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// Guests returns the guests of this node whose launchers are connected.
func (r *Reconciler) Guests() []usage.Guest {
	r.mu.Lock()
	sessions := maps.Clone(r.sessions)
	r.mu.Unlock()
	out := make([]usage.Guest, 0, len(sessions))
	for key, s := range sessions {
		launcher, err := s.launcher()
		if err != nil {
			continue
		}
		guest := usage.Guest{
			VMI: key, Pod: s.target.Pod, Launcher: launcher, Interfaces: map[string]string{},
			Disks: map[string]string{},
		}
		if vmi := s.latest(); vmi != nil {
			guest.Labels, guest.Limits, guest.DeviceLimits = vmi.Labels, qos.SumsOf(vmi), qos.Each(vmi)
		}
		seen := s.observation()
		if seen.Plan != nil {
			for _, i := range seen.Plan.Interfaces {
				if i.Tap != "" { // QEMU does not count what a device does that the guest has itself
					guest.Interfaces[i.Tap] = i.Name
				}
			}
		}
		for volume, target := range seen.Guest.GetVolumeTargets() {
			guest.Disks[target] = volume
		}
		if m := seen.Guest.GetMigration(); m.GetPhase() == launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING {
			guest.Migration = m.Progress
		}
		guest.Agent = seen.Guest.GetAgentConnected() &&
			seen.Guest.GetLifecycle() == launcherpb.Lifecycle_LIFECYCLE_RUNNING && guest.Migration == nil
		out = append(out, guest)
	}
	return out
}
