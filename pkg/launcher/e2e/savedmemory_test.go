//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// guestRuns runs a script in the guest by its agent and returns what it says.
func (p *pod) guestRuns(script string) (string, error) {
	return (&moving{t: p.t}).run(p, script)
}

// ask waits for the guest's agent, and runs a script that it must run.
func (p *pod) ask(script string) (said string) {
	p.t.Helper()
	p.eventually(3*time.Minute, "the guest's agent", func() bool {
		var err error
		said, err = p.guestRuns(script)
		return err == nil
	})
	return said
}

// onOwnDisk puts the guest's system on a claim, as a snapshot has it.
func onOwnDisk(t *testing.T, name string) (vmi *v1.VirtualMachineInstance, claims string) {
	t.Helper()
	vmi = tinyVMI(name)
	vmi.Spec.Domain.Devices.Disks[0].Name = "root"
	vmi.Spec.Volumes[0] = v1.Volume{Name: "root", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"},
		},
	}}
	claims, err := os.MkdirTemp("", "vkc-") //nolint:usetesting // its parent must let the launcher's user through
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(claims); err != nil {
			t.Error(err)
		}
	})
	for _, directory := range []string{
		claims, filepath.Join(claims, "root"), filepath.Join(claims, filepath.Base(names.ResumeDir)),
	} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(directory, names.User, names.Group); err != nil {
			t.Fatal(err)
		}
	}
	image := filepath.Join(claims, "root/disk.img")
	system := filepath.Join(repository, "bin/images/tiny.qcow2")
	if out, err := exec.Command("qemu-img", "convert", "-O", "raw", system, image).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chown(image, names.User, names.Group); err != nil {
		t.Fatal(err)
	}
	return vmi, claims
}

// A guest whose memory was saved goes on from there in another launcher, with the disk of that moment: what it had only
// in memory is there, what it did since is not. The same happens once.
func TestSavedMemory(t *testing.T) {
	skipInShort(t)
	vmi, claims := onOwnDisk(t, "remember")
	first := newPodOnClaims(t, vmi, claims)
	if _, err := first.start(); err != nil {
		t.Fatal(err)
	}
	first.ask("true")
	boot := first.ask("mkdir -p /memory && mount -t tmpfs memory /memory && echo before > /memory/word && cat " +
		"/proc/sys/kernel/random/boot_id")
	// The claim for the memory, as virt-handler mounts it.
	const volume = "vmsnapshot-memory-1"
	mounted := filepath.Join("/proc", strconv.Itoa(first.pid), "root", names.HotplugDir, volume)
	if err := os.MkdirAll(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(mounted, names.User, names.Group); err != nil {
		t.Fatal(err)
	}
	var saved *pb.SavedMemory
	first.eventually(2*time.Minute, "the guest's memory", func() bool {
		answer, err := first.client.Freeze(t.Context(), &pb.FreezeRequest{
			UnfreezeAfter: durationpb.New(2 * time.Minute), PauseWithoutAgent: true, MemoryVolume: volume,
		})
		if err != nil {
			t.Fatal(err)
		}
		saved = answer.Memory
		return saved.Ended != nil
	})
	if saved.Failure != "" {
		t.Fatal(saved.Failure)
	}
	t.Logf("saved %d bytes in %v", saved.Size, saved.Ended.AsTime().Sub(saved.Began.AsTime()))
	memory, err := os.ReadFile(filepath.Join(mounted, savedmemory.File))
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(claims, "root/disk.img")
	disk, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.client.Unfreeze(t.Context(), &pb.UnfreezeRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := first.ask("cat /memory/word; echo after > /memory/word; cat /memory/word"); got != "before\nafter" {
		t.Errorf("the guest that went on says %q", got)
	}
	first.shutdown(0)
	first.waitExit(10 * time.Second)

	// The restore: the disk and the memory of the snapshot, and a new instance.
	resume := filepath.Join(claims, filepath.Base(names.ResumeDir), savedmemory.File)
	for file, data := range map[string][]byte{image: disk, resume: memory} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, names.User, names.Group); err != nil {
			t.Fatal(err)
		}
	}
	mark, err := (&savedmemory.Resume{Claim: "memory", Restore: "a-restore"}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	restored := vmi.DeepCopy()
	restored.Spec.Domain.Firmware = &v1.Firmware{UUID: vmi.UID} // as a VM's instances have it
	restored.UID = "22222222-2222-3333-4444-555555555555"
	restored.Annotations = map[string]string{savedmemory.ResumeAnnotation: mark}
	second := newPodOnClaims(t, restored, claims)
	answer, err := second.start()
	if err != nil {
		t.Fatal(err)
	}
	if answer.State.Lifecycle != pb.Lifecycle_LIFECYCLE_RUNNING || answer.State.VolumeTargets["root"] != "vda" {
		t.Errorf("%v", answer.State)
	}
	if got := second.ask("cat /memory/word /proc/sys/kernel/random/boot_id"); got != "before\n"+boot {
		t.Errorf("the resumed guest says %q, and not %q", got, "before\n"+boot)
	}
	if strings.Contains(second.console(), "login:") {
		t.Error("the guest has booted")
	}
	// It writes to its disk.
	second.ask("sync")
	second.shutdown(0)
	second.waitExit(10 * time.Second)

	// Its disk is another since: the next instance boots.
	again := restored.DeepCopy()
	again.UID = "33333333-2222-3333-4444-555555555555"
	third := newPodOnClaims(t, again, claims)
	if _, err := third.start(); err != nil {
		t.Fatal(err)
	}
	if got := third.ask("cat /proc/sys/kernel/random/boot_id"); got == boot {
		t.Error("the guest was resumed a second time")
	}
	third.shutdown(0)
	third.waitExit(10 * time.Second)
}
