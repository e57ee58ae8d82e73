//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A guest that boots from a claim, and has written to another, goes into an OVA and comes out of it as another VM: QEMU
// reads the same bytes from the OVA's disks as from the claims, and the second guest boots, with virtio again, and
// reads what the first has written. An OVA of a snapshot has the same disks, while the VM runs.
func TestOVA(t *testing.T) {
	skipInShort(t)
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	dir := t.TempDir()
	qemuImg := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %s: %v\n%s", args[0], err, out)
		}
	}
	c.virtctl(t, nil, "-n", ns, "import", tinyDisk, "--name=first", "--disk-bus=virtio", "--memory=128Mi")
	c.claim(t, ns, "data", corev1.PersistentVolumeBlock)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // with virt-controller, who has just met it
		vm := &v1.VirtualMachine{}
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "first"}, vm); err != nil {
			return err
		}
		withDisks("data")(vm)
		return c.Client.Update(t.Context(), vm)
	})
	if err != nil {
		t.Fatal(err)
	}
	c.virtctl(t, nil, "-n", ns, "start", "first")
	first := &guest{cluster: c, ns: ns, name: "first"}
	first.waitLogin(t)
	const sums = "for d in /dev/vd?; do dd if=$d bs=512 skip=40000 count=200 2>/dev/null | sha256sum; done"
	written := first.shell(t, "").run(t, "for d in /sys/block/vd*; do test \"$(cat $d/serial)\" = data && "+
		"dd if=/dev/urandom of=/dev/${d##*/} bs=512 seek=40000 count=200 conv=notrunc 2>/dev/null; done; sync; "+
		"D=/dev/$(for d in /sys/block/vd*; do test \"$(cat $d/serial)\" = data && echo ${d##*/}; done); "+
		"dd if=$D bs=512 skip=40000 count=200 2>/dev/null | sha256sum")
	sum, _, ok := strings.Cut(written, " ")
	if !ok || len(sum) != 64 {
		t.Fatalf("the guest says %q", written)
	}
	c.virtctl(t, nil, "-n", ns, "snapshot", "create", "first", "taken", "--wait")
	taken := filepath.Join(dir, "taken.ova")
	c.virtctl(t, nil, "-n", ns, "vmexport", "download", "of-snapshot", "--snapshot=taken", "--format=ova",
		"--output="+taken, "--readiness-timeout=5m")
	c.virtctl(t, nil, "-n", ns, "stop", "first", "--wait", "--timeout=120s")

	ova := filepath.Join(dir, "first.ova")
	c.virtctl(t, nil, "-n", ns, "vmexport", "create", "exp", "--vm=first")
	c.virtctl(t, nil, "-n", ns, "vmexport", "download", "exp", "--format=ova", "--output="+ova)
	for i, claim := range []string{"first-disk1", "data"} {
		raw := filepath.Join(dir, claim)
		c.virtctl(t, nil, "-n", ns, "vmexport", "download", "exp", "--volume="+claim, "--format=raw", "--output="+raw)
		for _, of := range []string{ova, taken} {
			if i == 0 && of == taken {
				continue // the guest has written to it since
			}
			unpacked := t.TempDir()
			if out, err := exec.Command("tar", "-xf", of, "-C", unpacked).CombinedOutput(); err != nil {
				t.Fatalf("tar: %v\n%s", err, out)
			}
			entries, err := os.ReadDir(unpacked)
			if err != nil || len(entries) != 4 {
				t.Errorf("%v %v", entries, err)
			}
			qemuImg("compare", "-f", "vmdk", "-F", "raw",
				filepath.Join(unpacked, []string{"first-disk1.vmdk", "first-disk2.vmdk"}[i]), raw)
		}
	}
	c.virtctl(t, nil, "-n", ns, "vmexport", "delete", "exp")

	for name, file := range map[string]string{"second": ova, "third": taken} {
		_, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "import", file, "--name", name, "--start")
		if err != nil || strings.Contains(stderr, "controller") {
			t.Fatalf("%v\n%s", err, stderr)
		}
		again := &guest{cluster: c, ns: ns, name: name}
		again.waitLogin(t)
		if got := again.shell(t, "").run(t, sums); !strings.Contains(got, sum) {
			t.Errorf("%s has not what the first guest has written, %s:\n%s", name, sum, got)
		}
		c.virtctl(t, nil, "-n", ns, "stop", name, "--wait", "--timeout=120s")
	}
}
