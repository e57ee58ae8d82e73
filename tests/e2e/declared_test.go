//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
)

// template changes the VM's template.
func (g *guest) template(t *testing.T, change func(*v1.VirtualMachineInstanceSpec)) {
	t.Helper()
	eventually(t, 30*time.Second, "the VM is changed", func() string {
		vm := g.vm(t)
		change(&vm.Spec.Template.Spec)
		err := g.Client.Update(t.Context(), vm)
		switch {
		case apierrors.IsConflict(err):
			return err.Error()
		case err != nil:
			t.Fatal(err)
		}
		return ""
	})
}

// pluggable is a volume from a claim that may come while the guest runs.
func pluggable(name, claim string) v1.Volume {
	return v1.Volume{
		Name: name,
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			Hotpluggable:                      true,
		}},
	}
}

func without(names ...string) func(*v1.VirtualMachineInstanceSpec) {
	return func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v v1.Volume) bool { return slices.Contains(names, v.Name) })
	}
}

// plugged waits until the guest has just these hotplugged volumes, of these claims.
func (g *guest) plugged(t *testing.T, claims map[string]string) {
	t.Helper()
	eventually(t, 2*time.Minute, fmt.Sprintf("the guest has %v", claims), func() string {
		vmi := g.vmi(t)
		if vmi == nil {
			return "no instance"
		}
		found := 0
		for _, s := range vmi.Status.VolumeStatus {
			if s.HotplugVolume == nil {
				continue
			}
			info := s.PersistentVolumeClaimInfo
			if info == nil || claims[s.Name] != info.ClaimName || s.Phase != v1.VolumeReady || s.Target == "" {
				return fmt.Sprintf("%+v", s)
			}
			found++
		}
		if found != len(claims) {
			return fmt.Sprintf("%d volumes", found)
		}
		return ""
	})
}

// A running guest gets what its VM is edited to: disks come and go, discs are put into its CD-ROM drives, swapped and
// taken out, also while it moves to another node; what it cannot have before its next start is named, and a restart
// changes nothing of it.
func TestDeclaredVolumes(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "one", corev1.PersistentVolumeFilesystem)
	c.claim(t, ns, "two", corev1.PersistentVolumeBlock)
	g := c.create(t,
		newVM(ns, "declared", v1.RunStrategyAlways, withUserData("#cloud-config\nuser: root\npassword: tiny\n"),
			func(vm *v1.VirtualMachine) {
				devices := &vm.Spec.Template.Spec.Domain.Devices
				devices.Disks = append(devices.Disks,
					v1.Disk{Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI}}},
					// on sata, for which the guest has no driver
					v1.Disk{Name: "bay", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}})
			}))
	g.waitLogin(t)
	con := g.shell(t, "")
	disc := func(want string) {
		t.Helper()
		eventually(t, 60*time.Second, "the disc holds "+want, func() string {
			if got := con.run(t, "dd if=/dev/sr0 bs=8 count=1 2>/dev/null | tr -d '\\0'"); got != want {
				return fmt.Sprintf("%q", got)
			}
			return ""
		})
	}
	disc("")

	disks := []v1.Disk{
		{Name: "one", Serial: "one", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}},
		{
			Name: "two", Serial: "two", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
			DedicatedIOThread: ptr(true),
		},
	}
	devices := map[string]string{
		"one": scsiDisk("one"),
		"two": `$(for d in /sys/block/vd*; do [ "$(cat $d/serial)" = two ] && echo /dev/${d##*/}; done)`,
	}
	g.template(t, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, disks...)
		spec.Volumes = append(spec.Volumes, pluggable("one", "one"), pluggable("two", "two"))
	})
	g.plugged(t, map[string]string{"one": "one", "two": "two"})
	for _, name := range []string{"one", "two"} {
		eventually(t, 30*time.Second, "the guest sees "+name, func() string {
			if con.run(t, "echo "+devices[name]) == "" {
				return "no such disk"
			}
			return ""
		})
		con.run(t, "echo disc-"+name+" | dd of="+devices[name]+" bs=2048 count=1 conv=sync 2>/dev/null; sync")
	}
	if why := g.restartMessage(t); why != "" {
		t.Error(why)
	}

	// A claim leaves as a disk, and comes back as a disc.
	g.template(t, func(spec *v1.VirtualMachineInstanceSpec) {
		without("one", "two")(spec)
		spec.Domain.Devices.Disks = slices.DeleteFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool {
			return d.Name == "one" || d.Name == "two"
		})
		spec.Volumes = append(spec.Volumes, pluggable("cd", "one"))
	})
	g.plugged(t, map[string]string{"cd": "one"})
	disc("disc-one")
	expectText(t, con, "ls /sys/block | grep -c ^sd", "0")

	// Another is put in while the guest moves.
	there := g.migrate(t, "there")
	g.template(t, func(spec *v1.VirtualMachineInstanceSpec) {
		without("cd")(spec)
		spec.Volumes = append(spec.Volumes, pluggable("cd", "two"), pluggable("bay", "one"))
	})
	g.waitMigration(t, there, v1.MigrationSucceeded)
	con = g.again(t)
	g.plugged(t, map[string]string{"cd": "two", "bay": "one"})
	disc("disc-two")
	if why := g.restartMessage(t); why != "" {
		t.Error(why)
	}

	g.template(t, without("cd", "bay"))
	g.plugged(t, nil)
	disc("")
	g.waitAttachments(t, 0)

	// Drives come and go with a restart.
	g.template(t, func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.Disks = slices.DeleteFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool {
			return d.Name == "bay"
		})
		spec.Volumes = append(spec.Volumes, pluggable("cd", "one"))
	})
	g.plugged(t, map[string]string{"cd": "one"})
	disc("disc-one")
	eventually(t, 30*time.Second, "a restart is asked for", func() string {
		if why := g.restartMessage(t); !strings.HasSuffix(why,
			"spec.template.spec.domain.devices.disks[bay] (a CD-ROM drive comes, goes and changes only then)") {
			return instead(why)
		}
		return ""
	})
	first := g.vmi(t).UID
	g.virtctl(t, nil, "-n", ns, "restart", g.name, "--force", "--grace-period=0")
	eventually(t, bootTime, "the VM is restarted", func() string {
		if vmi := g.vmi(t); vmi == nil || vmi.UID == first {
			return "no new instance"
		}
		return ""
	})
	g.waitLogin(t)
	con = g.shell(t, "")
	g.plugged(t, map[string]string{"cd": "one"})
	disc("disc-one")
	if why := g.restartMessage(t); why != "" {
		t.Error(why)
	}
}
