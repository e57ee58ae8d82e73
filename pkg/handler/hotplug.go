package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/waits"
)

const (
	// plugTimeout bounds one attempt to attach or detach a volume; the launcher's own limits are shorter.
	plugTimeout = time.Minute
	// plugRetryMost is the longest wait before a volume that failed is tried again: a guest that holds a disk releases
	// it when somebody unmounts it there.
	plugRetryMost = 5 * time.Second
)

// task is the work to do on one hotplugged volume.
type task struct {
	name string
	// attachPod is the pod that holds the claim on this node.
	attachPod types.UID
	detach    bool
	// eject says that a CD-ROM drive stays without it.
	eject    bool
	block    bool
	readOnly bool
	// dump says that the volume is no disk but to take the guest's memory.
	dump bool
	// settled says that the status has nothing more to gain: Ready.
	settled bool
}

// tasks reads from a VMI what is to be done. What is not on this node yet is virt-controller's.
func tasks(vmi *v1.VirtualMachineInstance) []task {
	var out []task
	for i := range vmi.Status.VolumeStatus {
		s := &vmi.Status.VolumeStatus[i]
		if s.HotplugVolume == nil {
			continue
		}
		t := task{name: s.Name, attachPod: s.HotplugVolume.AttachPodUID}
		if info := s.PersistentVolumeClaimInfo; info != nil {
			t.block = claims.IsBlock(info.VolumeMode)
		}
		switch s.Phase {
		case v1.HotplugVolumeDetaching:
			t.detach = true
			drive := hotplug.Disk(&vmi.Spec, s.Name)
			t.eject = drive != nil && drive.CDRom != nil
		case v1.HotplugVolumeAttachedToNode, v1.HotplugVolumeMounted, v1.VolumeReady, v1.MemoryDumpVolumeInProgress:
			volume := hotplug.Volume(&vmi.Spec, s.Name)
			if volume == nil || !hotplug.Is(volume) || t.attachPod == "" || vmi.DeletionTimestamp != nil {
				continue
			}
			t.readOnly = claims.Of(volume).ReadOnly
			t.settled, t.dump = s.Phase == v1.VolumeReady, volume.MemoryDump != nil
		default:
			continue
		}
		out = append(out, t)
	}
	return out
}

// keepPlugged does with the hotplugged volumes of the VMI what it says, again and again until ctx ends.
func (s *session) keepPlugged(ctx context.Context, client launcherpb.LauncherClient, process *podfs.Process) {
	failed := setbacks{}
	s.sync(ctx, "hotplug", plugRetryMost, func(vmi *v1.VirtualMachineInstance) (time.Duration, error) {
		s.plugAll(ctx, vmi, failed, func(t task) (vmistatus.Volume, error) {
			return s.plugOne(ctx, client, process, vmi, t)
		})
		again := failed.next(s.node.Now())
		if s.dumping() && (again == 0 || again > dumpLook) {
			again = dumpLook
		}
		return again, nil
	})
}

// plugAll goes over all hotplugged volumes once. One that fails does not hold up the others, and is left alone until
// its time comes: the VMI changes with each failure, and with much else.
func (s *session) plugAll(
	ctx context.Context, vmi *v1.VirtualMachineInstance, failed setbacks, plug func(task) (vmistatus.Volume, error),
) {
	if vmi.Status.NodeName != s.node.Name {
		return // the guest is not here yet, or any more
	}
	list := tasks(vmi)
	if len(list) == 0 && len(s.observation().Volumes) == 0 {
		return
	}
	known := map[string]bool{}
	for _, t := range list {
		known[t.name] = true
		if failed.wait(t, s.node.Now()) {
			continue
		}
		v, err := plug(t)
		v.AttachPod = t.attachPod
		if err != nil && ctx.Err() != nil {
			return // by that alone
		}
		if err != nil {
			v.Failure = describe(err)
			s.log.Warn("hotplug", "volume", t.name, "err", v.Failure, "again", failed.add(t, s.node.Now()))
		} else {
			delete(failed, t.name)
		}
		s.sawVolume(t.name, v)
	}
	maps.DeleteFunc(failed, func(name string, _ *setback) bool { return !known[name] })
	for name := range s.observation().Volumes {
		if !known[name] {
			s.publish(false, func(o *observation) {
				o.Volumes = maps.Clone(o.Volumes)
				delete(o.Volumes, name)
			})
		}
	}
}

// setback is a task that failed.
type setback struct {
	task task
	// longer returns how long to wait after each failure, the last of which has its next attempt at again.
	longer func() time.Duration
	again  time.Time
}

// setbacks are those of a guest's hotplugged volumes, by name.
type setbacks map[string]*setback

// wait reports whether it is too early for another attempt at a task. Another task with the volume does not wait.
func (f setbacks) wait(t task, now time.Time) bool {
	last := f[t.name]
	return last != nil && last.task == t && now.Before(last.again)
}

// add notes a failure, and returns how long to wait.
func (f setbacks) add(t task, now time.Time) time.Duration {
	last := f[t.name]
	if last == nil || last.task != t {
		last = &setback{task: t, longer: waits.Doubling(retryFirst, plugRetryMost)}
		f[t.name] = last
	}
	wait := last.longer()
	last.again = now.Add(wait)
	return wait
}

// next returns how long it is to the first attempt, 0 when there is none to make.
func (f setbacks) next(now time.Time) time.Duration {
	var first time.Duration
	for _, last := range f {
		if wait := max(last.again.Sub(now), time.Nanosecond); first == 0 || wait < first {
			first = wait
		}
	}
	return first
}

// sawVolume publishes what was done with a volume.
func (s *session) sawVolume(name string, v vmistatus.Volume) {
	if old, ok := s.observation().Volumes[name]; ok && old == v {
		return
	}
	s.publish(true, func(o *observation) {
		next := maps.Clone(o.Volumes)
		if next == nil {
			next = map[string]vmistatus.Volume{}
		}
		next[name] = v
		o.Volumes = next
	})
}

// sawMounted publishes that the launcher's pod has a volume. Where that is known, a failure to attach it stands until
// the next attempt has ended.
func (s *session) sawMounted(t task) {
	if last := s.observation().Volumes[t.name]; !last.Mounted || last.AttachPod != t.attachPod {
		s.sawVolume(t.name, vmistatus.Volume{AttachPod: t.attachPod, Mounted: true})
	}
}

func (s *session) plugOne(
	ctx context.Context, client launcherpb.LauncherClient, process *podfs.Process,
	vmi *v1.VirtualMachineInstance, t task,
) (vmistatus.Volume, error) {
	target := s.observation().Guest.GetVolumeTargets()[t.name]
	switch {
	case t.detach:
		return s.unplugVolume(ctx, client, process, t)
	case t.dump && savedmemory.IsVolume(t.name):
		return s.mountMemory(ctx, process, t)
	case t.dump:
		return s.dumpMemory(ctx, client, process, t)
	case t.settled && target != "":
		if err := s.do(ctx, volumeStep(t.name), func() error { return s.recordDevice(process, t) }); err != nil {
			s.log.Warn("device of a volume not on record", "volume", t.name, "err", err) // the guest has it open
		}
		return vmistatus.Volume{Mounted: true, Attached: true, Target: target}, nil
	}
	return s.plugVolume(ctx, client, process, vmi, t)
}

// plugVolume brings the claim into the launcher's pod and its disk into the guest.
func (s *session) plugVolume(
	ctx context.Context, client launcherpb.LauncherClient, process *podfs.Process,
	vmi *v1.VirtualMachineInstance, t task,
) (vmistatus.Volume, error) {
	var v vmistatus.Volume
	if err := s.giveVolume(ctx, process, t); err != nil {
		return v, err
	}
	v.Mounted = true
	s.sawMounted(t)
	encoded, err := json.Marshal(vmi)
	if err != nil {
		return v, fmt.Errorf("encode VirtualMachineInstance: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, plugTimeout)
	defer cancel()
	response, err := client.AttachVolume(ctx, &launcherpb.AttachVolumeRequest{VmiJson: encoded, Volume: t.name})
	if err != nil {
		return v, err
	}
	v.Attached, v.Target = true, response.GetTarget()
	return v, nil
}

// giveVolume brings a claim into the launcher's pod.
func (s *session) giveVolume(ctx context.Context, process *podfs.Process, t task) error {
	return s.do(ctx, volumeStep(t.name), func() error {
		if t.block {
			return s.giveDevice(process, t)
		}
		return s.giveDirectory(context.WithoutCancel(ctx), process, t) // so that the step lasts as long as its mounting
	})
}

// giveDirectory mounts a filesystem claim in the launcher's pod, from the attachment pod.
func (s *session) giveDirectory(ctx context.Context, process *podfs.Process, t task) error {
	target := path.Join(names.HotplugDir, t.name)
	if mounted, err := process.Mounted(target); err != nil || mounted {
		return err
	}
	source := path.Join(names.AttachmentDir, t.name)
	holder, err := podfs.FindHolder(s.node.ProcDir, s.node.PodsDir, t.attachPod, names.HotplugDisk, source)
	if err != nil {
		return err
	}
	defer holder.Close()
	return podfs.AttachMount(ctx, holder, source, process, target, t.readOnly)
}

// giveDevice makes the device of a block claim in the launcher's pod.
func (s *session) giveDevice(process *podfs.Process, t task) error {
	number, err := podfs.KubeletDevice(s.node.PodsDir, s.node.ProcDir, t.attachPod,
		path.Join(names.BlockDevicesDir, t.name))
	if err != nil {
		return err
	}
	device := podfs.Block(number)
	if err := process.MakeBlock(path.Join(names.BlockDevicesDir, t.name), device); err != nil {
		return err
	}
	return s.node.Rights.Allow(process, volumeUse(t.name), device)
}

// volumeUse returns the use of a hotplugged volume's device, as the record of devices has it.
func volumeUse(volume string) string { return "volume/" + volume }

// recordDevice has the device of a volume on record that an earlier virt-handler, which kept none, has plugged in: the
// next change of the launcher's rights would take it away.
func (s *session) recordDevice(process *podfs.Process, t task) error {
	if !t.block {
		return nil
	}
	if _, ok, err := s.node.Rights.Given(process.Pod, volumeUse(t.name)); err != nil || ok {
		return err
	}
	return s.giveDevice(process, t)
}

// giveIncoming brings the hotplugged volumes of a guest that is to come into its launcher's pod.
func (s *session) giveIncoming(ctx context.Context, process *podfs.Process, vmi *v1.VirtualMachineInstance) error {
	ms := vmi.Status.MigrationState
	volumes, _ := hotplug.Moving(vmi)
	if ms == nil || vmi.Status.NodeName == s.node.Name || len(volumes) == 0 {
		return nil
	}
	modes := map[string]*v1.PersistentVolumeClaimInfo{}
	for _, status := range vmi.Status.VolumeStatus {
		modes[status.Name] = status.PersistentVolumeClaimInfo
	}
	for _, name := range volumes {
		t := task{name: name, attachPod: ms.TargetAttachmentPodUID}
		if info := modes[name]; info != nil {
			t.block = claims.IsBlock(info.VolumeMode)
		}
		if volume := hotplug.Volume(&vmi.Spec, name); volume != nil && volume.PersistentVolumeClaim != nil {
			t.readOnly = claims.Of(volume).ReadOnly
		}
		if err := s.giveVolume(ctx, process, t); errors.Is(err, errStuck) {
			return err // which names it
		} else if err != nil {
			return fmt.Errorf("%s%w", hotplug.Naming(name), err)
		}
	}
	return nil
}

// unplugVolume takes the disk from the guest, then the claim from the launcher's pod.
func (s *session) unplugVolume(
	ctx context.Context, client launcherpb.LauncherClient, process *podfs.Process, t task,
) (vmistatus.Volume, error) {
	v := vmistatus.Volume{Mounted: true}
	within, cancel := context.WithTimeout(ctx, plugTimeout)
	defer cancel()
	if _, err := client.DetachVolume(within, &launcherpb.DetachVolumeRequest{Volume: t.name, Eject: t.eject}); err !=
		nil {
		return v, err
	}
	err := s.do(ctx, volumeStep(t.name), func() error { return s.takeVolume(context.WithoutCancel(ctx), process, t) })
	if err != nil {
		return v, err
	}
	return vmistatus.Volume{Gone: true}, nil
}

// takeVolume undoes giveVolume.
func (s *session) takeVolume(ctx context.Context, process *podfs.Process, t task) error {
	if err := process.RemoveBlock(path.Join(names.BlockDevicesDir, t.name)); err != nil {
		return err
	}
	if err := s.node.Rights.Deny(process, volumeUse(t.name)); err != nil {
		return err
	}
	return podfs.Prune(ctx, process, path.Join(names.HotplugDir, t.name))
}
