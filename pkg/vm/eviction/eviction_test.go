package eviction

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// guest is one that runs on node one, in pod "a".
func guest(change ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}}
	vmi.Status = v1.VirtualMachineInstanceStatus{
		Phase: v1.Running, NodeName: "one", ActivePods: map[types.UID]string{"a": "one"},
		Conditions: []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
		},
	}
	for _, c := range change {
		c(vmi)
	}
	return vmi
}

func with(strategy v1.EvictionStrategy) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) { vmi.Spec.EvictionStrategy = &strategy }
}

func tied(vmi *v1.VirtualMachineInstance) {
	vmi.Status.Conditions[0].Status = corev1.ConditionFalse
	vmi.Status.Conditions[0].Message = "it is tied to its node"
}

func marked(vmi *v1.VirtualMachineInstance) { vmi.Status.EvacuationNodeName = "one" }

// moving is on its way to pod "b" on node two.
func moving(vmi *v1.VirtualMachineInstance) {
	vmi.Status.ActivePods["b"] = "two"
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourceNode: "one", TargetNode: "two"}
}

func phase(p v1.VirtualMachineInstancePhase) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = p }
}

func TestDecide(t *testing.T) {
	const (
		triggered  = `Eviction triggered evacuation of VMI "ns/vm"`
		inProgress = "Evacuation in progress: " + triggered
	)
	a, b := Pod{UID: "a", Node: "one"}, Pod{UID: "b", Node: "two"}
	for name, tc := range map[string]struct {
		vmi     *v1.VirtualMachineInstance
		pod     Pod
		cluster v1.EvictionStrategy
		want    Verdict
	}{
		"nobody says": {guest(), a, "", Verdict{Allow: true}},
		"None": {
			guest(with(v1.EvictionStrategyNone)), a, v1.EvictionStrategyLiveMigrate, Verdict{Allow: true},
		},
		"LiveMigrate":   {guest(with(v1.EvictionStrategyLiveMigrate)), a, "", Verdict{Mark: true, Message: triggered}},
		"the cluster's": {guest(), a, v1.EvictionStrategyLiveMigrate, Verdict{Mark: true, Message: triggered}},
		"again":         {guest(with(v1.EvictionStrategyLiveMigrate), marked), a, "", Verdict{Message: inProgress}},
		"marked for where it was": {
			guest(with(v1.EvictionStrategyLiveMigrate), marked, func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.NodeName = "two"
				vmi.Status.ActivePods["a"] = "two"
			}),
			a, "",
			Verdict{Mark: true, Message: triggered},
		},
		"LiveMigrate, tied": {
			guest(with(v1.EvictionStrategyLiveMigrate), tied), a, "",
			Verdict{
				Message: "VMI vm is configured with an eviction strategy but is not " +
					"live-migratable: it is tied to its node",
			},
		},
		"LiveMigrate, unknown yet": {
			guest(with(v1.EvictionStrategyLiveMigrate), func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.Conditions = nil
			}),
			a, "",
			Verdict{
				Message: "VMI vm is configured with an eviction strategy but is not live-migratable: its node has " +
					"not said yet whether it can move",
			},
		},
		"IfPossible": {
			guest(with(v1.EvictionStrategyLiveMigrateIfPossible)), a, "", Verdict{Mark: true, Message: triggered},
		},
		"IfPossible, tied": {guest(with(v1.EvictionStrategyLiveMigrateIfPossible), tied), a, "", Verdict{Allow: true}},
		"External": {
			guest(with(v1.EvictionStrategyExternal), tied), a, "", Verdict{Mark: true, Message: triggered},
		},
		"not running yet": {
			guest(with(v1.EvictionStrategyLiveMigrate), phase(v1.Scheduled)), a, "", Verdict{Allow: true},
		},
		"over": {guest(with(v1.EvictionStrategyLiveMigrate), phase(v1.Failed)), a, "", Verdict{Allow: true}},
		"being deleted": {
			guest(with(v1.EvictionStrategyLiveMigrate), func(vmi *v1.VirtualMachineInstance) {
				vmi.DeletionTimestamp = &metav1.Time{}
			}),
			a, "",
			Verdict{Allow: true},
		},
		"node lost": {
			guest(with(v1.EvictionStrategyLiveMigrate), phase(v1.Unknown)), a, "",
			Verdict{Mark: true, Message: triggered},
		},
		"the pod to which it moves": {
			guest(with(v1.EvictionStrategyLiveMigrate), moving), b, "",
			Verdict{Message: `the guest of VMI "ns/vm" is moving to this pod`},
		},
		"the pod that it leaves": {
			guest(with(v1.EvictionStrategyLiveMigrate), moving), a, "", Verdict{Mark: true, Message: triggered},
		},
		"somebody else's pod": {guest(with(v1.EvictionStrategyLiveMigrate)), b, "", Verdict{Allow: true}},
		"what a failed migration left": {
			guest(with(v1.EvictionStrategyLiveMigrate), moving, func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.MigrationState.Completed = true
			}),
			b, "",
			Verdict{Allow: true},
		},
		"attachment": {
			guest(),
			Pod{UID: "h", Node: "one", Attachment: true},
			"",
			Verdict{
				Message: `the pod holds a volume that is plugged into VMI "ns/vm", and goes with the guest's own pod`,
			},
		},
		"attachment of an ended guest": {
			guest(phase(v1.Succeeded)), Pod{UID: "h", Node: "one", Attachment: true}, "", Verdict{Allow: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.vmi, tc.pod, tc.cluster); got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestProtected(t *testing.T) {
	for name, tc := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want bool
	}{
		"None":             {guest(with(v1.EvictionStrategyNone)), false},
		"nobody says":      {guest(), false},
		"LiveMigrate":      {guest(with(v1.EvictionStrategyLiveMigrate)), true},
		"LiveMigrate tied": {guest(with(v1.EvictionStrategyLiveMigrate), tied), true},
		"IfPossible":       {guest(with(v1.EvictionStrategyLiveMigrateIfPossible)), true},
		"IfPossible tied":  {guest(with(v1.EvictionStrategyLiveMigrateIfPossible), tied), false},
		"External":         {guest(with(v1.EvictionStrategyExternal)), true},
		"starting":         {guest(with(v1.EvictionStrategyLiveMigrate), phase(v1.Scheduled)), false},
		"lost":             {guest(with(v1.EvictionStrategyLiveMigrate), phase(v1.Unknown)), true},
		"over":             {guest(with(v1.EvictionStrategyLiveMigrate), phase(v1.Succeeded)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Protected(tc.vmi, Strategy(tc.vmi, "")); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// onDisk has a disk that only its node has, and a VM.
func onDisk(vmi *v1.VirtualMachineInstance) {
	vmi.Status.Conditions[0].Status = corev1.ConditionFalse
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: vmi.Name, UID: "vm"}}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	vmi.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("data", "a")}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "a", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}}
}

// A guest that only its disk keeps is moved where its VM has opted in, also while the disk is being copied already.
func TestMovable(t *testing.T) {
	optedIn := func(vmi *v1.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{volumemigration.OptInAnnotation: "true"}
	}
	copying := func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "b" }
	shareable := func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Domain.Devices.Disks[0].Shareable = new(true) }
	for name, tc := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want bool
	}{
		"a disk":                {guest(onDisk), false},
		"opted in":              {guest(onDisk, optedIn), true},
		"it is being copied":    {guest(onDisk, optedIn, copying), true},
		"it cannot be copied":   {guest(onDisk, optedIn, shareable), false},
		"no disk, opted in":     {guest(tied, optedIn), false},
		"it can as it is":       {guest(), true},
		"copied, not opted in":  {guest(onDisk, copying), false},
		"opted in, for nothing": {guest(optedIn), true},
	} {
		if got := Movable(tc.vmi); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
		for _, strategy := range []v1.EvictionStrategy{
			v1.EvictionStrategyLiveMigrate, v1.EvictionStrategyLiveMigrateIfPossible,
		} {
			verdict := Decide(tc.vmi, Pod{UID: "a", Node: "one"}, strategy)
			if verdict.Mark != tc.want || Protected(tc.vmi, v1.EvictionStrategyLiveMigrateIfPossible) != tc.want {
				t.Errorf("%s, %s: %+v", name, strategy, verdict)
			}
		}
	}
}
