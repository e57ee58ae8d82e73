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
	for _, mode := range []corev1.PersistentVolumeMode{
		corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock,
	} {
		t.Run(string(mode), func(t *testing.T) {
			c := theCluster
			ns := c.namespace(t, "restricted")
			c.claim(t, ns, "data", mode)
			g := c.create(t, newVM(ns, "keeper", v1.RunStrategyManual, withClaim("data")))
			g.waitStatus(t, 10*time.Second, v1.VirtualMachineStatusStopped)
			const device = "$(for d in /sys/block/vd*; do [ \"$(cat $d/serial)\" = DATA ] && echo /dev/${d##*/}; done)"
			for round := range 2 {
				g.virtctl(t, nil, "-n", ns, "start", g.name)
				g.waitLogin(t)
				con := g.openConsole(t, "")
				con.login(t, "root", "tiny")
				if round == 0 {
					con.run(t, "echo kept-data | dd of="+device+" bs=512 count=1 conv=sync 2>/dev/null; sync")
					if size := con.run(t, "cat /sys/block/$(basename "+device+")/size"); size == "0" || size == "" {
						t.Fatalf("the disk has no size: %q", size)
					}
				} else if got := con.run(t, "dd if="+device+" bs=9 count=1 2>/dev/null"); got != "kept-data" {
					t.Fatalf("after a restart the disk holds %q", got)
				}
				g.virtctl(t, nil, "-n", ns, "stop", g.name)
				g.waitGone(t, 60*time.Second)
			}
		})
	}
}

// Two VMs with one claim: the second is kept from starting and says why; it starts when the first is gone.
func TestTwoVMsOneClaim(t *testing.T) {
	t.Parallel()
	for _, mode := range []corev1.PersistentVolumeMode{
		corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock,
	} {
		t.Run(string(mode), func(t *testing.T) { testTwoVMsOneClaim(t, mode) })
	}
}

func testTwoVMsOneClaim(t *testing.T, mode corev1.PersistentVolumeMode) {
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", mode)
	first := c.create(t, newVM(ns, "first", v1.RunStrategyAlways, withClaim("data")))
	first.waitPhase(t, bootTime, v1.Running)
	second := c.create(t, newVM(ns, "second", v1.RunStrategyAlways, withClaim("data")))
	eventually(t, bootTime, "the second VM says that the disk is in use", func() string {
		events, err := c.Kube.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{})
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
	if vmi := second.vmi(t); vmi != nil && vmi.Status.Phase == v1.Running {
		t.Fatal("both VMs run on one disk")
	}
	if vmi := first.vmi(t); vmi == nil || vmi.Status.Phase != v1.Running {
		t.Fatal("the first VM was disturbed")
	}
	c.virtctl(t, nil, "-n", ns, "stop", "first")
	first.waitGone(t, 60*time.Second)
	second.waitPhase(t, 2*time.Minute, v1.Running)
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
