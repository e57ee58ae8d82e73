//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/tests/instance"
)

// withVolume adds a virtio disk whose serial number is its name.
func withVolume(name string, source v1.VolumeSource) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
			v1.Disk{Name: name, Serial: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}})
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	}
}

// virtioDisk is a shell's way to the virtio disk with a serial number; empty while the guest has none.
func virtioDisk(serial string) string {
	return fmt.Sprintf(`$(for d in /sys/block/vd*; do [ "$(cat $d/serial)" = %s ] && echo /dev/${d##*/}; done)`, serial)
}

// ephemeral is an overlay on a claim.
func ephemeral(claim string) v1.VolumeSource {
	return v1.VolumeSource{
		Ephemeral: &v1.EphemeralVolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		},
	}
}

// One guest that boots the kernel of an image, and has a disk of each kind that is made of what Kubernetes knows, and
// overlays on claims of both modes; what it writes to those is gone with it, and goes along to another node.
func TestVolumes(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "files", corev1.PersistentVolumeFilesystem)
	c.claim(t, ns, "device", corev1.PersistentVolumeBlock)
	keys := map[string]string{"settings": "colour: blue\n"}
	for i := range 60 { // more than one sector of a directory holds
		keys[fmt.Sprintf("a-key-with-a-name-that-is-rather-long-%02d.conf", i)] = fmt.Sprint(i)
	}
	made := func(object any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	core := c.Kube.CoreV1()
	made(core.ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: keys}, metav1.CreateOptions{}))
	made(core.Secrets(ns).Create(t.Context(),
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "app"}, StringData: map[string]string{"password": "swordfish"},
		}, metav1.CreateOptions{}))
	made(core.ServiceAccounts(ns).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}))

	// A guest of its own fills the claims.
	first := c.create(t,
		newVM(ns, "first", v1.RunStrategyManual, withVolume("files", claimOf("files")),
			withVolume("device", claimOf("device"))))
	first.virtctl(t, nil, "-n", ns, "start", first.name)
	first.waitLogin(t)
	con := first.shell(t, "")
	for _, volume := range []string{"files", "device"} {
		con.run(t, "echo golden-"+volume+" | dd of="+virtioDisk(volume)+" bs=512 count=1 conv=sync 2>/dev/null; sync")
	}
	first.virtctl(t, nil, "-n", ns, "stop", first.name)
	first.waitGone(t, bootTime)

	field := func(path string) *corev1.ObjectFieldSelector { return &corev1.ObjectFieldSelector{FieldPath: path} }
	g := c.create(t, newVM(ns, "second", v1.RunStrategyAlways,
		withVolume("map", v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}},
		}),
		withVolume("none", v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: ptr(true),
			},
		}),
		withVolume("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "app", VolumeLabel: "OEMDRV"}}),
		withVolume("account",
			v1.VolumeSource{ServiceAccount: &v1.ServiceAccountVolumeSource{ServiceAccountName: "robot"}}),
		withVolume("down", v1.VolumeSource{
			DownwardAPI: &v1.DownwardAPIVolumeSource{Fields: []corev1.DownwardAPIVolumeFile{
				{Path: "name", FieldRef: field("metadata.name")},
				{Path: "meta/labels", FieldRef: field("metadata.labels")},
				{Path: "memory", ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.memory"}},
			}},
		}),
		withVolume("files", ephemeral("files")),
		withVolume("device", ephemeral("device")),
		func(vm *v1.VirtualMachine) {
			vm.Spec.Template.Spec.Domain.Firmware = &v1.Firmware{KernelBoot: &v1.KernelBoot{
				KernelArgs: "console=tty0 console=ttyS0,115200 quiet loglevel=1 mitigations=off no_timer_check " +
					"panic=10 booted.by=virtkit",
				Container: &v1.KernelBootContainer{
					Image: instance.TinyDisk(), KernelPath: "/boot/vmlinuz", InitrdPath: "/boot/initrd",
				},
			}}
		}))
	g.waitLogin(t)
	con = g.shell(t, "")
	expectText(t, con, "grep -o booted.by=virtkit /proc/cmdline", "booted.by=virtkit")
	mount := func(volume string) {
		con.run(t, "mkdir -p /mnt/"+volume+" && mount -t iso9660 -o ro "+virtioDisk(volume)+" /mnt/"+volume)
	}
	for _, volume := range []string{"map", "none", "secret", "account", "down"} {
		mount(volume)
	}
	expectText(t, con, "cat /mnt/map/settings", "colour: blue")
	expectText(t, con, "ls /mnt/map | wc -l; cat /mnt/map/a-key-with-a-name-that-is-rather-long-59.conf", "61\n59")
	expectText(t, con, "ls /mnt/none | wc -l", "0")
	expectText(t, con,
		"cat /mnt/secret/password; echo; dd if="+virtioDisk("secret")+" bs=1 skip=32808 count=6 2>/dev/null",
		"swordfish\nOEMDRV")
	expectText(t, con, "cat /mnt/account/namespace", ns)
	expectText(t, con, "ls /mnt/account | tr '\\n' ' '", "ca.crt namespace token")
	expectText(t, con,
		"cut -d. -f2 /mnt/account/token | base64 -d 2>/dev/null | grep -o system:serviceaccount:"+ns+":robot",
		"system:serviceaccount:"+ns+":robot")
	expectText(t, con, "cat /mnt/down/name", g.pod(t).Name)
	expectText(t, con, `grep -o '^app=.*' /mnt/down/meta/labels`, `app="second"`)
	expectText(t, con, "[ $(cat /mnt/down/memory) -gt 134217728 ] && echo more than the guest", "more than the guest")

	// The guest writes over the golden disks, and other guests may have them meanwhile.
	for _, volume := range []string{"files", "device"} {
		expectText(t, con, "head -c 12 "+virtioDisk(volume)+" | tr -d '\\0\\n'", ("golden-" + volume)[:12])
		con.run(t, "echo written-"+volume+" | dd of="+virtioDisk(volume)+" bs=512 count=1 conv=sync 2>/dev/null; sync")
	}
	third := c.create(t,
		newVM(ns, "third", v1.RunStrategyAlways, withVolume("files", ephemeral("files")),
			withVolume("device", ephemeral("device"))))
	third.waitPhase(t, bootTime, v1.Running)

	g.waitMigration(t, g.migrate(t, "there"), v1.MigrationSucceeded)
	if kernel := g.vmi(t).Status.KernelBootStatus; kernel == nil || kernel.KernelInfo == nil ||
		kernel.KernelInfo.Checksum == 0 || kernel.InitrdInfo == nil || kernel.InitrdInfo.Checksum == 0 {
		t.Errorf("status.kernelBootStatus: %+v", kernel)
	}
	con = g.again(t)
	for _, volume := range []string{"files", "device"} {
		expectText(t, con, "echo 3 > /proc/sys/vm/drop_caches; head -c 13 "+virtioDisk(volume)+" | tr -d '\\0\\n'",
			("written-" + volume)[:13])
	}
	expectText(t, con, "cat /mnt/secret/password", "swordfish")

	third.waitLogin(t)
	con = third.shell(t, "")
	for _, volume := range []string{"files", "device"} {
		expectText(t, con, "head -c 12 "+virtioDisk(volume)+" | tr -d '\\0\\n'", ("golden-" + volume)[:12])
	}
	shown := c.virtctl(t, nil, "-n", ns, "describe", "second")
	for _, want := range []string{
		"configMap app", "secret app", "serviceAccount robot", "downwardAPI", "ephemeral files",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("describe does not show %q:\n%s", want, shown)
		}
	}
}

func claimOf(name string) v1.VolumeSource {
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}
}
