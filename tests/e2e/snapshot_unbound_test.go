//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/tests/guests"
)

// A VM that was never started has a claim that is bound at its first start. Its status says so and virtctl refuses a
// snapshot; one that is made all the same waits, and is taken once the VM is started.
func TestSnapshotOfAnUnboundClaim(t *testing.T) {
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	claim := guests.NewClaim(ns, "disk", corev1.PersistentVolumeBlock)
	claim.Spec.StorageClassName = ptr("local-node")
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	if err := c.Client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	g := c.create(t, newVM(ns, "new", v1.RunStrategyHalted, withoutRoot, func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
			Name: "disk", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
		})
		volume := v1.Volume{Name: "disk"}
		volume.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{}
		volume.PersistentVolumeClaim.ClaimName = claim.Name
		spec.Volumes = append(spec.Volumes, volume)
	}))
	says := func(enabled bool, reason string) {
		t.Helper()
		eventually(t, 60*time.Second, fmt.Sprintf("the VM's disk can be snapshotted: %t", enabled), func() string {
			statuses := g.vm(t).Status.VolumeSnapshotStatuses
			for _, s := range statuses {
				if s.Name == "disk" && s.Enabled == enabled && s.Reason == reason {
					return ""
				}
			}
			return fmt.Sprintf("%+v", statuses)
		})
	}
	const bound = "PVC disk is bound when the VM is started for the first time"
	says(false, bound)
	_, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "snapshot", "create", g.name, "refused", "--partial")
	if err == nil || !strings.Contains(stderr, bound+"); start it with `virtctl start new -n "+ns+"`") {
		t.Errorf("snapshot create: %v, %s", err, stderr)
	}
	snapshot := &snapshotv1beta1.VirtualMachineSnapshot{
		Spec: snapshotv1beta1.VirtualMachineSnapshotSpec{Source: machine(g.name)},
	}
	snapshot.Namespace, snapshot.Name = ns, "early"
	if err := c.Client.Create(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	g.virtctl(t, nil, "-n", ns, "start", g.name)
	g.waitPhase(t, bootTime, v1.Running)
	says(true, "")
	c.awaitSnapshot(t, snapshot)
	if has := snapshot.Status.SnapshotVolumes; has == nil || fmt.Sprint(has.IncludedVolumes) != "[disk]" {
		t.Errorf("it has %+v", has)
	}
}
