//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	backupMAC    = "02:00:00:00:77:01"
	backupUUID   = "11111111-2222-4333-8444-555555555555"
	backupSerial = "of-the-first"
)

// What a guest has written to a disk with a file system and to one that is a device is in a backup that is made while
// it runs. When the VM and its claims are gone, the file becomes a VM of another name, with an identity of its own,
// whose guest reads it; its own backup has the same bytes. Nothing that the exports made is left.
func TestBackup(t *testing.T) {
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "disk", corev1.PersistentVolumeFilesystem)
	c.claim(t, ns, "device", corev1.PersistentVolumeBlock)
	g := c.create(t, newVM(ns, "first", v1.RunStrategyAlways, withDisks("disk", "device"),
		func(vm *v1.VirtualMachine) {
			domain := &vm.Spec.Template.Spec.Domain
			domain.Firmware = &v1.Firmware{UUID: backupUUID, Serial: backupSerial}
			for i := range domain.Devices.Interfaces {
				domain.Devices.Interfaces[i].MacAddress = backupMAC
			}
		}))
	g.waitLogin(t)
	con := g.shell(t, "")
	const device = `/dev/$(for d in /sys/block/vd*; do [ "$(cat $d/serial)" = NAME ] && echo ${d##*/}; done)`
	on := func(disk, command string) string {
		return "D=" + strings.ReplaceAll(device, "NAME", disk) + "; " + command
	}
	const read = "dd if=$D bs=512 skip=40000 count=200 2>/dev/null | sha256sum"
	written := map[string]string{}
	for _, disk := range []string{"disk", "device"} {
		written[disk] = con.run(t,
			on(disk, "dd if=/dev/urandom of=$D bs=512 seek=40000 count=200 2>/dev/null; sync; "+read))
		if len(strings.Fields(written[disk])) != 2 {
			t.Fatalf("the guest says of %s: %q", disk, written[disk])
		}
	}
	file := filepath.Join(t.TempDir(), "first.tar")
	c.virtctl(t, nil, "-n", ns, "export", "vm/first", file, "--readiness-timeout=5m")
	nothingTemporary(t, ns)

	c.virtctl(t, nil, "-n", ns, "delete", "first", "--yes", "--wait", "--timeout=120s")
	for _, claim := range []string{"disk", "device"} {
		if err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), claim,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.virtctl(t, nil, "-n", ns, "import", file, "--name=second")
	again := filepath.Join(t.TempDir(), "second.tar")
	c.virtctl(t, nil, "-n", ns, "export", "second", again, "--readiness-timeout=5m")
	for _, disk := range []string{"disk", "device"} {
		before, after := diskIn(t, file, disk), diskIn(t, again, disk)
		sum := sha256.Sum256(before[40000*512:][:200*512])
		if !strings.HasPrefix(written[disk], hex.EncodeToString(sum[:])) {
			t.Errorf("the backup of %s has not what the guest wrote", disk)
		}
		if !bytes.HasPrefix(after, before) || len(bytes.Trim(after[len(before):], "\x00")) > 0 {
			t.Errorf("%s had %d bytes and has others, %d", disk, len(before), len(after))
		}
	}
	nothingTemporary(t, ns)

	second := &guest{cluster: c, ns: ns, name: "second"}
	c.virtctl(t, nil, "-n", ns, "start", "second")
	second.waitLogin(t)
	con = second.shell(t, "")
	for disk, want := range written {
		if got := con.run(t, on(disk, read)); got != want {
			t.Errorf("%s has %q, and had %q", disk, got, want)
		}
	}
	spec := &second.vmi(t).Spec
	if f := spec.Domain.Firmware; f == nil || f.UUID == backupUUID || f.UUID == "" || f.Serial == backupSerial {
		t.Errorf("firmware %+v", f)
	}
	for i := range spec.Domain.Devices.Interfaces {
		if mac := spec.Domain.Devices.Interfaces[i].MacAddress; mac == backupMAC {
			t.Errorf("its MAC address is %s still", mac)
		}
	}
}

// withDisks gives a VM claims as disks, each with its name as its serial number.
func withDisks(claims ...string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		for _, name := range claims {
			source := &v1.PersistentVolumeClaimVolumeSource{}
			source.ClaimName = name
			spec.Volumes = append(spec.Volumes,
				v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}})
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
				Name: name, Serial: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
			})
		}
	}
}

// nothingTemporary waits until what an export was made with is gone.
func nothingTemporary(t *testing.T, ns string) {
	t.Helper()
	eventually(t, 60*time.Second, "the snapshot and the export are gone", func() string {
		var left []string
		for _, list := range []schema.GroupVersionKind{
			snapshotv1beta1.SchemeGroupVersion.WithKind("VirtualMachineSnapshotList"),
			v1beta1.SchemeGroupVersion.WithKind("VirtualMachineExportList"),
		} {
			there := &metav1.PartialObjectMetadataList{}
			there.SetGroupVersionKind(list)
			if err := theCluster.Client.List(t.Context(), there, client.InNamespace(ns)); err != nil {
				return err.Error()
			}
			for i := range there.Items {
				left = append(left, list.Kind+" has "+there.Items[i].Name)
			}
		}
		return strings.Join(left, ", ")
	})
}

// diskIn is a disk in a backup, read by tar and gzip alone.
func diskIn(t *testing.T, path, volume string) []byte {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for in := tar.NewReader(file); ; {
		header, err := in.Next()
		if err != nil {
			t.Fatalf("%s has no disk of %s: %v", path, volume, err)
		}
		if header.Name != "disks/"+volume+".img.gz" {
			continue
		}
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}
