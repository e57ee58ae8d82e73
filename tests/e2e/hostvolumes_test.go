//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// openGates opens these of the feature gates that are closed in other tests, for good: other tests do not mind.
func (c *cluster) openGates(t *testing.T, gates string) {
	t.Helper()
	if gates != "" {
		gates = "," + gates
	}
	gates = `"EnableVirtioFsStorageVolumes"` + gates // a test beside this one needs it all the time
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.KubeVirt}}
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"configuration":{"developerConfiguration":{"featureGates":[`+gates+`]}}}}`))
	if err := c.Client.Patch(t.Context(), kv, patch); err != nil {
		t.Fatal(err)
	}
}

// metricsPort is a shell's way to the port with metrics.
const metricsPort = `/dev/$(basename $(dirname $(grep -l org.github.vhostmd.1 /sys/class/virtio-ports/*/name)))`

// What reaches from the guest to its node is allowed once an administrator has said so: an image on the node, which is
// made there and kept, and goes along when it is said to be shared; and metrics of the node, on a disk and at a port.
func TestHostVolumes(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "privileged")
	// virt-local's nodes have their own /tmp and /var, and the rest is the machine's.
	dir, err := os.MkdirTemp("/srv", "virtkit-e2e-") //nolint:usetesting // t.TempDir is in /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	image := filepath.Join(dir, "images", "a.img")
	hostDisk := func(kind v1.HostDiskType, change ...func(*v1.HostDisk)) v1.VolumeSource {
		disk := &v1.HostDisk{Path: image, Type: kind}
		for _, f := range change {
			f(disk)
		}
		return v1.VolumeSource{HostDisk: disk}
	}
	made := hostDisk(v1.HostDiskExistsOrCreate, func(d *v1.HostDisk) { d.Capacity = resource.MustParse("16Mi") })
	vm := newVM(ns, "first", v1.RunStrategyAlways, withVolume("image", made))
	c.openGates(t, "") // an earlier run has opened them
	eventually(t, 30*time.Second, "the gate is closed", func() string {
		err := c.Client.Create(t.Context(), vm.DeepCopy(), client.DryRunAll)
		if err == nil ||
			!strings.Contains(err.Error(),
				"can add HostDisk to spec.configuration.developerConfiguration.featureGates") {
			return fmt.Sprint(err)
		}
		return ""
	})
	c.openGates(t, `"HostDisk","DownwardMetrics"`)
	eventually(t, 30*time.Second, "the gate is open", func() string {
		if err := c.Client.Create(t.Context(), vm.DeepCopy()); err != nil {
			return err.Error()
		}
		return ""
	})
	first := &guest{cluster: c, ns: ns, name: "first"}
	first.waitLogin(t)
	con := first.shell(t, "")
	expectText(t, con, "cat /sys/block/$(basename "+virtioDisk("image")+")/size", "32768")
	con.run(t, "echo kept | dd of="+virtioDisk("image")+" bs=512 count=1 conv=sync 2>/dev/null; sync")
	for _, condition := range first.vmi(t).Status.Conditions {
		if condition.Type == v1.VirtualMachineInstanceIsMigratable &&
			(condition.Status != corev1.ConditionFalse ||
				condition.Reason != v1.VirtualMachineInstanceReasonDisksNotMigratable) {
			t.Errorf("an image of one node: %+v", condition)
		}
	}
	first.virtctl(t, nil, "-n", ns, "stop", first.name)
	first.waitGone(t, bootTime)

	second := c.create(t, newVM(ns, "second", v1.RunStrategyAlways,
		withVolume("image", hostDisk(v1.HostDiskExists, func(d *v1.HostDisk) { d.Shared = ptr(true) })),
		withVolume("metrics", v1.VolumeSource{DownwardMetrics: &v1.DownwardMetricsVolumeSource{}}),
		func(vm *v1.VirtualMachine) {
			vm.Spec.Template.Spec.Domain.Devices.DownwardMetrics = &v1.DownwardMetrics{}
		}))
	second.waitLogin(t)
	con = second.shell(t, "")
	expectText(t, con, "head -c 4 "+virtioDisk("image"), "kept")
	checkMetrics := func(con *console, node string) {
		t.Helper()
		host := `grep -A1 '<name>HostName</name>' | grep -o '>.*<' | tail -1`
		expectText(t, con,
			`exec 3<>`+metricsPort+`; printf 'GET /metrics/XML\r\n\r\n' >&3; timeout 10 head -n 20 <&3 | `+host+
				`; exec 3>&-`, ">"+node+"<")
		eventually(t, 30*time.Second, "the disk names "+node, func() string {
			got := con.run(t, "echo 3 > /proc/sys/vm/drop_caches; tr -d '\\0' < "+virtioDisk("metrics")+" | "+host)
			if got != ">"+node+"<" {
				return instead(got)
			}
			return ""
		})
	}
	home := second.vmi(t).Status.NodeName
	checkMetrics(con, home)
	second.waitMigration(t, second.migrate(t, "there"), v1.MigrationSucceeded)
	con = second.again(t)
	expectText(t, con, "echo 3 > /proc/sys/vm/drop_caches; head -c 4 "+virtioDisk("image"), "kept")
	away := second.vmi(t).Status.NodeName
	if away == home {
		t.Fatalf("the guest is on %s still", home)
	}
	checkMetrics(con, away)
}
