//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
	"github.com/virtkit/virtkit/tests/guests"
)

const mebibyte = 1 << 20

// largeClaim makes a claim of mode Filesystem whose file system, XFS, grows while it is mounted.
func (c *cluster) largeClaim(t *testing.T, ns, name string) {
	t.Helper()
	claim := guests.NewClaim(ns, name, corev1.PersistentVolumeFilesystem)
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Gi")
	_, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// request asks for a claim's expansion, as any program may.
func (c *cluster) request(t *testing.T, ns, claim, size string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size)
	_, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).
		Patch(t.Context(), claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// expandingVM has a disk of each kind, with its name as its serial number; the third is plugged in.
type expandingVM struct {
	*guest
	con *console
	// sums are the checksums of what was written, by disk.
	sums map[string]string
}

var expandingDisks = []string{"files", "device", "plugged"}

func newExpandingVM(t *testing.T, name string) *expandingVM {
	t.Helper()
	needSnapshots(t) // of the driver that expands, too
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.largeClaim(t, ns, "files")
	c.claim(t, ns, "device", corev1.PersistentVolumeBlock)
	c.largeClaim(t, ns, "plugged")
	vm := &expandingVM{
		guest: c.create(t, newVM(ns, name, v1.RunStrategyAlways, withDisks("files", "device"))),
		sums:  map[string]string{},
	}
	vm.waitLogin(t)
	vm.virtctl(t, nil, "-n", ns, "addvolume", name, "--volume-name=plugged", "--wait", "--timeout=90s")
	vm.con = vm.shell(t, "")
	for _, disk := range expandingDisks {
		eventually(t, 30*time.Second, "the guest sees "+disk, func() string {
			if vm.sectors(t, disk) == 0 {
				return "it has no such disk"
			}
			return ""
		})
		vm.con.run(t, vm.on(disk, "dd if=/dev/urandom of=$D bs=512 seek=40000 count=2000 2>/dev/null; sync"))
		vm.sums[disk] = vm.sum(t, disk)
		if len(strings.Fields(vm.sums[disk])) != 2 {
			t.Fatalf("the guest says of %s: %q", disk, vm.sums[disk])
		}
	}
	return vm
}

// on is a shell's command with a disk as $D.
func (vm *expandingVM) on(disk, command string) string {
	return "D=; for d in /sys/block/vd*; do [ \"$(cat $d/serial)\" = " + disk + " ] && D=/dev/${d##*/}; done; " +
		"[ $D ] || D=" + scsiDisk(disk) + "; " + command
}

func (vm *expandingVM) sum(t *testing.T, disk string) string {
	t.Helper()
	return vm.con.run(t, vm.on(disk, "dd if=$D bs=512 skip=40000 count=2000 iflag=direct 2>/dev/null | sha256sum"))
}

// sectors is the size of a disk that the guest's kernel knows, of 512 bytes; 0 when there is no such disk.
func (vm *expandingVM) sectors(t *testing.T, disk string) int64 {
	t.Helper()
	text := vm.con.run(t, vm.on(disk, "cat /sys/block/${D##*/}/size 2>/dev/null"))
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// sees waits until the guest's kernel sees each disk with a size between least and most, and the status has it, and
// checks what was written.
func (vm *expandingVM) sees(t *testing.T, least, most map[string]int64) {
	t.Helper()
	for _, disk := range expandingDisks {
		eventually(t, 30*time.Second, "the guest's "+disk+" has grown", func() string {
			size := vm.sectors(t, disk) * 512
			if size < least[disk] || size > most[disk] {
				return fmt.Sprintf("it has %d bytes, not from %d to %d", size, least[disk], most[disk])
			}
			for _, s := range vm.vmi(t).Status.VolumeStatus {
				if s.Name == disk && s.Size != size {
					return fmt.Sprintf("it has %d bytes, and the status says %d", size, s.Size)
				}
			}
			return ""
		})
		if got := vm.sum(t, disk); got != vm.sums[disk] {
			t.Errorf("%s has %q, and had %q", disk, got, vm.sums[disk])
		}
		// What is new can be written to its end.
		const end = "N=$(($(cat /sys/block/${D##*/}/size)-8)); printf last-words | dd of=$D bs=512 seek=$N conv=sync " +
			"2>/dev/null; sync; dd if=$D bs=512 skip=$N count=1 iflag=direct 2>/dev/null | head -c 10"
		expectText(t, vm.con, vm.on(disk, end), "last-words")
	}
}

// settled waits until the claims have their sizes and nothing is said of an expansion any more.
func (vm *expandingVM) settled(t *testing.T, sizes map[string]string) {
	t.Helper()
	eventually(t, 4*time.Minute, "the expansion is over", func() string {
		vmi := vm.vmi(t)
		for _, s := range vmi.Status.VolumeStatus {
			info, want := s.PersistentVolumeClaimInfo, sizes[s.Name]
			if want != "" && (info == nil || info.Capacity.Storage().Cmp(resource.MustParse(want)) != 0) {
				return fmt.Sprintf("volume %s: %+v, not %s", s.Name, info, want)
			}
		}
		if c := expansion.ConditionOf(vmi); c != nil {
			return c.Reason + ": " + c.Message
		}
		return ""
	})
}

// sizesOf are the least and most bytes of the disks: a file system keeps a part of its claim for itself.
func sizesOf(files, device, plugged int64) (least, most map[string]int64) {
	share := func(n int64) int64 { return n * mebibyte * 85 / 100 }
	return map[string]int64{"files": share(files), "device": device * mebibyte, "plugged": share(plugged)},
		map[string]int64{"files": files * mebibyte, "device": device * mebibyte, "plugged": plugged * mebibyte}
}

// The claims of a running guest are expanded: its kernel sees the disks of a file, of a device and of a claim that was
// plugged in grow, each with all its data. They have their sizes after a migration, and after another expansion while
// the VM is off.
func TestExpand(t *testing.T) {
	t.Parallel()
	vm := newExpandingVM(t, "grows")
	sizes := map[string]string{"files": "1300Mi", "device": "96Mi", "plugged": "1300Mi"}
	for disk, size := range sizes {
		begun := time.Now()
		vm.virtctl(t, nil, "-n", vm.ns, "volume", "resize", vm.name, disk, size, "--wait", "--timeout=3m")
		t.Logf("%s has grown after %v", disk, time.Since(begun))
	}
	vm.settled(t, sizes)
	least, most := sizesOf(1300, 96, 1300)
	vm.sees(t, least, most)

	vm.waitMigration(t, vm.migrate(t, "there"), v1.MigrationSucceeded)
	vm.con = vm.again(t)
	vm.sees(t, least, most)

	vm.virtctl(t, nil, "-n", vm.ns, "stop", vm.name, "--wait", "--timeout=90s")
	sizes = map[string]string{"files": "1500Mi", "device": "128Mi", "plugged": "1500Mi"}
	for disk, size := range sizes {
		vm.request(t, vm.ns, disk, size)
	}
	vm.virtctl(t, nil, "-n", vm.ns, "start", vm.name)
	vm.waitLogin(t)
	vm.settled(t, sizes)
	vm.con = vm.shell(t, "")
	least, most = sizesOf(1500, 128, 1500)
	vm.sees(t, least, most)
}

// Each component is killed between the growth of the claims and that of the guest's disks, and the guest moves to
// another node meanwhile: the next one does what is left, and the guest's kernel knows of it.
func TestExpandFaults(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	vm := newExpandingVM(t, "survives")
	next := int64(0)
	grow := func(t *testing.T, amid func()) {
		t.Helper()
		next++
		sizes := map[string]string{}
		for disk, size := range map[string]int64{"files": 1100, "device": 64, "plugged": 1100} {
			sizes[disk] = fmt.Sprintf("%dMi", size+next*40)
			vm.request(t, vm.ns, disk, sizes[disk])
		}
		amid()
		vm.settled(t, sizes)
		vm.con = vm.again(t)
		least, most := sizesOf(1100+next*40, 64+next*40, 1100+next*40)
		vm.sees(t, least, most)
	}
	for _, component := range []string{names.VirtHandler, names.VirtController} {
		t.Run(component, func(t *testing.T) {
			grow(t, func() {
				killed := map[types.UID]bool{}
				for _, pod := range vm.componentPods(t, component) {
					killed[pod.UID] = true
				}
				pods := []client.DeleteAllOfOption{
					client.InNamespace(names.Namespace),
					client.MatchingLabels{names.LabelComponent: component},
					client.GracePeriodSeconds(0),
				}
				if err := vm.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, pods...); err != nil {
					t.Fatal(err)
				}
				vm.waitComponents(t, vm.ns, killed)
			})
		})
	}
	t.Run("migration", func(t *testing.T) {
		grow(t, func() { vm.waitMigration(t, vm.migrate(t, "amid"), v1.MigrationSucceeded) })
	})
	t.Run("migration before", func(t *testing.T) {
		m := vm.migrate(t, "before")
		grow(t, func() { vm.waitMigration(t, m, v1.MigrationSucceeded) })
	})
}
