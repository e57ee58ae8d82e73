//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// victims are what fails, or comes between: those of faulty, and others.
func (d *diskMover) victims() map[string]func(*testing.T) {
	all := d.faulty.victims()
	for _, victim := range []string{"source launcher", "source QEMU", "target QEMU"} {
		kill := all[victim]
		all[victim] = func(t *testing.T) {
			d.forgetCrashes(t)
			kill(t)
		}
	}
	all["api"] = func(t *testing.T) { d.killComponent(t, names.VirtAPI, "") }
	all["control plane"] = d.killControlPlane
	all["csi controller"] = func(t *testing.T) { d.killProgram(t, "csi-controller", "") }
	all["csi node"] = func(t *testing.T) { d.killProgram(t, "csi-node", d.to) }
	all["source node"] = func(t *testing.T) {
		begun := time.Now()
		d.cutNode(t, d.from, "a while passes", func() string {
			if time.Since(begun) < 10*time.Second {
				return "not over"
			}
			return ""
		})
	}
	all["target node"] = func(t *testing.T) {
		d.cutNode(t, d.to, "the migration is over", func() string {
			if m := d.migrations(t)[d.m.UID]; m != nil && !m.IsFinal() {
				return fmt.Sprintf("phase %s", m.Status.Phase)
			}
			return ""
		})
	}
	all["full"] = d.fills
	all["cancel"] = d.cancel
	all["snapshot"] = d.snapshot
	all["plug"] = d.plug
	all["second"] = d.bringsAgain
	all["another"] = d.namesAnother
	return all
}

// cutNode takes a node off the network until something has come about.
func (d *diskMover) cutNode(t *testing.T, node, what string, is func() string) {
	t.Helper()
	if err := d.Node(t.Context(), "cut", node); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Node(t.Context(), "heal", node); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, 3*time.Minute, what+" while "+node+" is cut off", is)
}

// controllersStand says that the stage of now is held by stopping virt-controller.
func (d *diskMover) controllersStand() bool {
	return d.stage == "claimed" || d.stage == "named" || d.stage == "landed"
}

// cancel takes back what is under way, and waits until the nodes know, where somebody can tell them.
func (d *diskMover) cancel(t *testing.T) {
	t.Helper()
	switch {
	case !d.exchanged && !d.controllersStand():
		d.faulty.cancel(t)
		return
	case !d.exchanged:
		if err := d.Client.Delete(t.Context(), d.m); err != nil {
			t.Fatal(err)
		}
		return
	}
	d.names(t, d.had)
	if d.controllersStand() {
		return
	}
	eventually(t, 60*time.Second, "the cancel is known", func() string {
		vmi := d.vmi(t)
		if ms := vmi.Status.MigrationState; volumemigration.Pending(vmi) && d.inUse(t) == d.had &&
			(ms == nil || ms.MigrationUID != d.m.UID || !ms.AbortRequested) {
			return fmt.Sprintf("%+v", conditions.Find(vmi.Status.Conditions, volumemigration.Condition))
		}
		return ""
	})
}

// bringsAgain makes a second migration, which waits for the first one's end and brings the disk back.
func (d *diskMover) bringsAgain(t *testing.T) {
	t.Helper()
	d.second = d.brings(t, fmt.Sprintf("fault-%d-second", d.n))
	eventually(t, 30*time.Second, "the second one waits", func() string {
		if is := d.migrations(t)[d.second.UID].Status.Phase; is != v1.MigrationPending {
			return "it is " + string(is)
		}
		return ""
	})
}

// namesAnother has the VM name a third claim while the disk is copied to the second: that comes afterwards.
func (d *diskMover) namesAnother(t *testing.T) {
	t.Helper()
	d.names(t, d.another(t))
	eventually(t, 30*time.Second, "the VM says that it is not taken over", func() string {
		c := conditions.Find(d.vm(t).Status.Conditions, v1.VirtualMachineRestartRequired)
		if c == nil || !strings.Contains(c.Message, "only be reverted") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
}

// snapshot takes a snapshot of the VM, which waits for the end of the copy.
func (d *diskMover) snapshot(t *testing.T) {
	t.Helper()
	s := &snapshotv1beta1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: fmt.Sprintf("amid-%d", d.n)},
		Spec:       snapshotv1beta1.VirtualMachineSnapshotSpec{Source: machine(d.name)},
	}
	if err := d.Client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	d.after = append(d.after, func(t *testing.T) {
		eventually(t, 60*time.Second, "the snapshot is ready", func() string {
			if err := d.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
				return err.Error()
			}
			if s.Status == nil || s.Status.ReadyToUse == nil || !*s.Status.ReadyToUse {
				return fmt.Sprintf("%+v", s.Status)
			}
			return ""
		})
		content := &snapshotv1beta1.VirtualMachineSnapshotContent{}
		key := client.ObjectKey{Namespace: d.ns, Name: *s.Status.VirtualMachineSnapshotContentName}
		if err := d.Client.Get(t.Context(), key, content); err != nil {
			t.Fatal(err)
		}
		for _, b := range content.Spec.VolumeBackups {
			if b.VolumeName == "data" && b.PersistentVolumeClaim.Name != d.inUse(t) {
				t.Errorf("the snapshot has claim %s, and the guest %s", b.PersistentVolumeClaim.Name, d.inUse(t))
			}
		}
		if err := d.Client.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		eventually(t, 60*time.Second, "the snapshot is gone", func() string {
			err := d.Client.Get(t.Context(), key, content)
			if !apierrors.IsNotFound(err) {
				return fmt.Sprint("its content is there: ", err)
			}
			return ""
		})
	})
}

// plug plugs in a disk, which waits for the end of the migration.
func (d *diskMover) plug(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("plug-%d", d.n)
	d.claim(t, d.ns, name, corev1.PersistentVolumeFilesystem)
	d.made = append(d.made, name)
	d.virtctl(t, nil, "-n", d.ns, "addvolume", d.name, "--volume-name="+name)
	d.after = append(d.after, func(t *testing.T) {
		eventually(t, 90*time.Second, "the volume is plugged in", func() string {
			for _, s := range d.vmi(t).Status.VolumeStatus {
				if s.Name == name && s.Phase == v1.VolumeReady {
					return ""
				}
			}
			return fmt.Sprintf("%+v", d.vmi(t).Status.VolumeStatus)
		})
		d.virtctl(t, nil, "-n", d.ns, "removevolume", d.name, "--volume-name="+name, "--wait", "--timeout=90s")
		d.waitAttachments(t, 0)
	})
}
