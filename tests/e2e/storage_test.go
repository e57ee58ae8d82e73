//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/tests/guests"
)

func (c *cluster) claim(t *testing.T, ns, name string, mode corev1.PersistentVolumeMode) {
	t.Helper()
	_, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), guests.NewClaim(ns, name, mode),
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// What a guest writes to a claim is there after a restart, on filesystem and block volumes alike.
func TestPersistentVolumeClaim(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	modes := map[string]corev1.PersistentVolumeMode{
		"files": corev1.PersistentVolumeFilesystem, "device": corev1.PersistentVolumeBlock,
	}
	for name, mode := range modes {
		c.claim(t, ns, name, mode)
	}
	g := c.create(t, newVM(ns, "keeper", v1.RunStrategyManual, withDisks("files", "device")))
	g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped)
	for round := range 2 {
		g.virtctl(t, nil, "-n", ns, "start", g.name)
		g.waitLogin(t)
		con := g.openConsole(t, "")
		con.login(t, "root", "tiny")
		for name := range modes {
			device := "$(for d in /sys/block/vd*; do [ \"$(cat $d/serial)\" = " + name +
				" ] && echo /dev/${d##*/}; done)"
			want := "kept-on-" + name
			if round == 0 {
				con.run(t, "echo "+want+" | dd of="+device+" bs=512 count=1 conv=sync 2>/dev/null; sync")
				if size := con.run(t, "cat /sys/block/$(basename "+device+")/size"); size == "0" || size == "" {
					t.Fatalf("%s has no size: %q", name, size)
				}
				continue
			}
			if got := con.run(t, fmt.Sprintf("dd if=%s bs=%d count=1 2>/dev/null", device, len(want))); got != want {
				t.Errorf("after a restart %s holds %q", name, got)
			}
		}
		g.virtctl(t, nil, "-n", ns, "stop", g.name)
		g.waitGone(t, 60*time.Second)
	}
}

// Two VMs with one claim: the second is kept from starting and says why; it starts when the first is gone. So it is
// with a claim of each volume mode; those of both wait side by side.
func TestTwoVMsOneClaim(t *testing.T) {
	t.Parallel()
	c := theCluster
	var pairs []*pair
	for _, mode := range []corev1.PersistentVolumeMode{
		corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock,
	} {
		ns := c.namespace(t, "restricted")
		c.claim(t, ns, "data", mode)
		pairs = append(pairs, &pair{
			mode: mode, first: c.create(t, newVM(ns, "first", v1.RunStrategyAlways, withClaim("data"))),
		})
	}
	for _, p := range pairs {
		p.first.waitPhase(t, bootTime, v1.Running)
		p.second = c.create(t, newVM(p.first.ns, "second", v1.RunStrategyAlways, withClaim("data")))
	}
	for _, p := range pairs {
		p.waitRefused(t)
	}
	for _, p := range pairs {
		c.virtctl(t, nil, "-n", p.first.ns, "stop", "first")
	}
	for _, p := range pairs {
		p.first.waitGone(t, 60*time.Second)
		p.second.waitPhase(t, 2*time.Minute, v1.Running)
	}
}

// pair are two VMs with one claim.
type pair struct {
	mode          corev1.PersistentVolumeMode
	first, second *guest
}

// waitRefused waits until the second VM says that the disk is in use, and checks that the first runs alone.
func (p *pair) waitRefused(t *testing.T) {
	t.Helper()
	eventually(t, bootTime, "the second VM says that the disk is in use, "+string(p.mode), func() string {
		events, err := p.second.Kube.CoreV1().Events(p.second.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var seen []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name != "second" {
				continue
			}
			if e.Reason == string(v1.SyncFailed) && strings.Contains(e.Message, "data") {
				return ""
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		return fmt.Sprintf("events: %v", seen)
	})
	if vmi := p.second.vmi(t); vmi != nil && vmi.Status.Phase == v1.Running {
		t.Fatalf("both VMs run on one disk, %s", p.mode)
	}
	if vmi := p.first.vmi(t); vmi == nil || vmi.Status.Phase != v1.Running {
		t.Fatalf("the first VM was disturbed, %s", p.mode)
	}
}

// An empty disk has the size asked for; and what the firmware hands over is there: Ignition's configuration where
// Ignition looks for it, an ACPI table that a Secret has.
func TestEmptyDisk(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	// A table's header: signature, length, and what QEMU fills in or nobody reads.
	table := append([]byte("SLIC\x28\x00\x00\x00\x01\x00ACME  LICENCE \x01\x00\x00\x00ACME\x01\x00\x00\x00"), "key7"...)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "licence"}, Data: map[string][]byte{"slic.bin": table},
	}
	if err := c.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	g := c.create(t, newVM(ns, "scratch", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Firmware = &v1.Firmware{ACPI: &v1.ACPI{SlicNameRef: "licence"}}
		spec.Volumes = append(spec.Volumes, v1.Volume{
			Name: "licence", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "licence"}},
		})
		vm.Spec.Template.ObjectMeta.Annotations = map[string]string{
			v1.IgnitionAnnotation: `{"ignition":{"version":"3.4.0"}}`,
		}
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
			Name: "scratch", Serial: "SCRATCH", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		})
		spec.Volumes = append(spec.Volumes, v1.Volume{
			Name:         "scratch",
			VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("32Mi")}},
		})
	}))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	got := con.run(t, `for d in /sys/block/vd*; do [ "$(cat $d/serial)" = SCRATCH ] && cat $d/size; done`)
	if got != "65536" {
		t.Errorf("the empty disk has %q sectors, want 65536", got)
	}
	ignition := con.run(t, `cat /sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw; echo`)
	if ignition != `{"ignition":{"version":"3.4.0"}}` {
		t.Errorf("Ignition would read %q", ignition)
	}
	if got := con.run(t, `tail -c 4 /sys/firmware/acpi/tables/SLIC; echo`); got != "key7" {
		t.Errorf("the ACPI table ends with %q", got)
	}
}

// A claim that does not exist is named in the VM's status, and the VM starts once it is there.
func TestMissingClaim(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "claimless", v1.RunStrategyAlways, withClaim("data")))
	g.waitStatus(t, 30*time.Second, v1.VirtualMachineStatusPvcNotFound)
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	g.waitPhase(t, bootTime, v1.Running)
}
