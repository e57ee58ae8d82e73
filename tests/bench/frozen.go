package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mounts puts a file system on each disk but the first, and mounts it. There are diskCount of them.
const mounts = "for d in vdb vdc vdd; do mke2fs /dev/$d >/dev/null; mkdir -p /$d; mount /dev/$d /$d; done; sync"

// snapshotsOf returns snapshotsEach snapshots of a VM, which are not made yet.
func (b *bench) snapshotsOf(vm, kind string) (all []*snapshotv1beta1.VirtualMachineSnapshot) {
	for i := range snapshotsEach {
		all = append(all, b.snapshot(fmt.Sprintf("%s-%s-%d", vm, kind, i), vm))
	}
	return all
}

// takePaused makes snapshots of a guest that has mounted nothing: its agent answers, has nothing to freeze, and the
// guest is paused.
func (b *bench) takePaused(
	ctx context.Context, name string, all []*snapshotv1beta1.VirtualMachineSnapshot, s *snapshotSamples,
) error {
	if err := b.untilAgent(ctx, name); err != nil {
		return err
	}
	for _, snapshot := range all {
		if err := pause(ctx, settled); err != nil {
			return err
		}
		took, err := b.takeQuiesced(ctx, snapshot, snapshotv1beta1.VMSnapshotPausedIndication)
		if err != nil {
			return err
		}
		s.takenPaused = append(s.takenPaused, took)
	}
	return nil
}

// takeQuiesced makes a snapshot and returns how long that takes; the guest must have been kept from writing as how
// says.
func (b *bench) takeQuiesced(
	ctx context.Context, snapshot *snapshotv1beta1.VirtualMachineSnapshot, how snapshotv1beta1.Indication,
) (time.Duration, error) {
	took, err := b.take(ctx, snapshot)
	if err != nil {
		return 0, err
	}
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(snapshot), snapshot); err != nil {
		return 0, err
	}
	said := snapshot.Status.SourceIndications
	if !slices.ContainsFunc(said, func(i snapshotv1beta1.SourceIndication) bool { return i.Indication == how }) {
		return 0, fmt.Errorf("snapshot %s has the indications %+v, and not %s", snapshot.Name, said, how)
	}
	return took, nil
}

// mountDisks has a guest mount file systems on its disks, which its agent freezes from then on.
func (b *bench) mountDisks(ctx context.Context, name string) error {
	g := &guest{bench: b, vmi: b.vmi(name)}
	if err := login(ctx, g); err != nil {
		return err
	}
	return say(ctx, g, mounts)
}

// untilAgent waits until a guest's agent answers.
func (b *bench) untilAgent(ctx context.Context, name string) error {
	_, err := b.timed(ctx, b.vmi(name), &v1.VirtualMachineInstanceList{}, func() error { return nil },
		func(e watch.Event) (bool, error) {
			vmi, ok := e.Object.(*v1.VirtualMachineInstance)
			return ok && slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
				return c.Type == v1.VirtualMachineInstanceAgentConnected && c.Status == corev1.ConditionTrue
			}), nil
		})
	if err != nil {
		return fmt.Errorf("wait for the agent of vmi %s: %w", name, err)
	}
	return nil
}

// frozen is how long each snapshot of a VMI kept it from writing, at most: from the request that froze or paused it to
// the answer that it goes on, by the audit log.
func (b *bench) frozen(vmi string) ([]time.Duration, error) {
	file, err := os.Open(filepath.Join("/var/lib/virt-local", b.Name, "audit.log"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []time.Duration
	var since time.Time
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Stage                    string
			ObjectRef                struct{ Name, Namespace, Subresource string }
			ResponseStatus           struct{ Code int }
			RequestReceivedTimestamp time.Time
			StageTimestamp           time.Time
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the last line may be half written
		}
		o := event.ObjectRef
		if event.Stage != "ResponseComplete" || o.Name != vmi || o.Namespace != b.namespace ||
			event.ResponseStatus.Code >= 300 {
			continue
		}
		switch {
		case o.Subresource == "freeze" && since.IsZero():
			since = event.RequestReceivedTimestamp
		case o.Subresource == "unfreeze" && !since.IsZero():
			all, since = append(all, event.StageTimestamp.Sub(since)), time.Time{}
		}
	}
	return all, lines.Err()
}
