//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// attachments are the VM's attachment pods that are not on their way out.
func (g *guest) attachments(t *testing.T) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	err := g.Client.List(t.Context(), pods, client.InNamespace(g.ns),
		client.MatchingLabels{names.LabelComponent: names.HotplugDisk})
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

// waitAttachments waits until the VM's attachment pods are so many, all on the node that the guest is on.
func (g *guest) waitAttachments(t *testing.T, want int) {
	t.Helper()
	eventually(t, 90*time.Second, fmt.Sprintf("%d attachment pods, where the guest is", want), func() string {
		node, pods := g.vmi(t).Status.NodeName, g.attachments(t)
		for _, pod := range pods {
			if pod.Spec.NodeName != node {
				return "pod " + pod.Name + " is on " + pod.Spec.NodeName
			}
		}
		if len(pods) != want {
			return fmt.Sprintf("%d pods", len(pods))
		}
		return ""
	})
}

// writes has a guest write its numbers to the scsi disks with these serials, until check; see counter.
func writes(serials ...string) string {
	var devices []string
	for _, s := range serials {
		devices = append(devices, scsiDisk(s))
	}
	return `D="` + strings.Join(devices, " ") + `"; E=; export E D
cat > /tmp/w <<'W'
i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); for d in $E $D; do echo $i | dd of=$d bs=512 seek=$i conv=sync,notrunc 2>/dev/null; done; echo $i > /tmp/i; sleep 0.1; done; sync; echo done > /tmp/stopped
W
sh /tmp/w &
`
}

// Volumes that were plugged in go along, of both modes; one that is to be taken away waits for the end of the
// migration; a migration that fails leaves nothing of them on the other node.
func TestMigrationHotplug(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "files", corev1.PersistentVolumeFilesystem)
	c.claim(t, ns, "device", corev1.PersistentVolumeBlock)
	g := c.create(t,
		newVM(ns, "loaded", v1.RunStrategyAlways, withUserData("#cloud-config\nuser: root\npassword: tiny\n")))
	g.waitLogin(t)
	home := g.vmi(t).Status.NodeName
	for _, volume := range []string{"files", "device"} {
		g.virtctl(t, nil, "-n", ns, "addvolume", g.name, "--volume-name="+volume, "--wait", "--timeout=90s")
	}
	con := g.shell(t, "")
	for _, volume := range []string{"files", "device"} {
		eventually(t, 30*time.Second, "the guest sees "+volume, func() string {
			if con.run(t, "echo "+scsiDisk(volume)) == "" {
				return "no such disk"
			}
			return ""
		})
	}
	for line := range strings.Lines(writes("files", "device")) {
		con.send(t, strings.TrimSuffix(line, "\n")+"\r")
	}
	con.run(t, "while [ ! -e /tmp/i ]; do sleep 0.1; done")

	failed := g.migrate(t, "failing")
	g.targetQEMU(t, failed, syscall.SIGKILL)
	g.waitMigration(t, failed, v1.MigrationFailed)
	g.onlyOn(t, home)
	g.waitAttachments(t, 2)

	g.waitMigration(t, g.migrate(t, "there"), v1.MigrationSucceeded)
	away := g.vmi(t)
	g.onlyOn(t, away.Status.NodeName)
	g.waitAttachments(t, 1)
	for _, s := range away.Status.VolumeStatus {
		if s.HotplugVolume != nil &&
			(s.Phase != v1.VolumeReady || s.Target == "" || s.HotplugVolume.AttachPodUID != g.attachments(t)[0].UID) {
			t.Errorf("volume %s after the migration: %+v %+v", s.Name, s, s.HotplugVolume)
		}
	}

	con = g.again(t)
	if got := con.run(t, check); got != "bad 0" {
		t.Errorf("what the guest wrote: %s", got)
	}

	// Back, and one is taken away meanwhile.
	back := g.migrate(t, "back")
	eventually(t, 60*time.Second, "the nodes know of the migration", func() string {
		if ms := g.vmi(t).Status.MigrationState; ms == nil || ms.MigrationUID != back.UID {
			return "not yet"
		}
		return ""
	})
	g.virtctl(t, nil, "-n", ns, "removevolume", g.name, "--volume-name=files", "--wait", "--timeout=120s")
	g.waitMigration(t, back, v1.MigrationSucceeded)
	g.onlyOn(t, home)
	g.waitAttachments(t, 1)
	con = g.again(t)
	lacks(t, con, "files")
	if got := con.run(t, "echo "+scsiDisk("device")); got == "" {
		t.Error("the other volume went, too")
	}
	g.virtctl(t, nil, "-n", ns, "removevolume", g.name, "--volume-name=device", "--wait", "--timeout=90s")
	g.waitAttachments(t, 0)
}

// A guest keeps the cloud-init image that it has, although the Secret that it was made of is another by now, or gone; a
// block claim that two nodes share, one that the host caches, and one that is only read go along.
func TestMigrationDisks(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeBlock)
	c.claim(t, ns, "cached", corev1.PersistentVolumeFilesystem)
	c.claim(t, ns, "shared", corev1.PersistentVolumeFilesystem)
	secrets := c.Kube.CoreV1().Secrets(ns)
	secret, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "seed"},
		StringData: map[string]string{"userdata": "#cloud-config\nuser: root\npassword: tiny\n"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g := c.create(t, newVM(ns, "disks", v1.RunStrategyAlways, withClaim("data"), func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		for _, name := range []string{"cached", "shared"} {
			d := v1.Disk{
				Name: name, Serial: strings.ToUpper(name),
				DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
			}
			if name == "cached" {
				d.Cache = v1.CacheWriteThrough
			} else {
				d.Shareable = ptr(true)
			}
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, d)
			spec.Volumes = append(spec.Volumes, v1.Volume{
				Name: name,
				VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
				}},
			})
		}
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
			Name: "seed", Serial: "SEED", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		})
		spec.Volumes = append(spec.Volumes, v1.Volume{
			Name: "seed",
			VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{
				UserDataSecretRef: &corev1.LocalObjectReference{Name: "seed"},
			}},
		})
	}))
	g.waitLogin(t)
	home := g.vmi(t)
	for _, s := range home.Status.VolumeStatus {
		if s.Name == "root" && (s.ContainerDiskVolume == nil || s.ContainerDiskVolume.Checksum == 0) {
			t.Errorf("the container disk has no checksum: %+v", s)
		}
	}
	con := g.shell(t, strings.NewReplacer("EMPTY", "CACHED").Replace(counter))
	const whole = `echo 3 > /proc/sys/vm/drop_caches; S=$(for d in /sys/block/vd*; do [ "$(cat $d/serial)" = SEED ] && echo /dev/${d##*/}; done); md5sum < $S`
	before := con.run(t, whole)
	con.run(t, "while [ ! -e /tmp/i ]; do sleep 0.1; done")

	secret.StringData = map[string]string{"userdata": "#cloud-config\n#" + strings.Repeat("x", 10000)}
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.waitMigration(t, g.migrate(t, "there"), v1.MigrationSucceeded)
	con = g.again(t)
	expectText(t, con, whole, before)

	if err := secrets.Delete(t.Context(), "seed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.waitMigration(t, g.migrate(t, "back"), v1.MigrationSucceeded)
	g.onlyOn(t, home.Status.NodeName)
	con = g.again(t)
	expectText(t, con, whole, before)
	expectText(t, con, check, "bad 0")
}
