//go:build integration

package security

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

const (
	ownNode, otherNode = "node1", "node2"
	thirdNode          = "node3"
)

// handlerOf is virt-handler's client on a node.
func handlerOf(t *testing.T, node string) client.Client {
	t.Helper()
	return serviceAccount(t, names.VirtHandler, node)
}

// merge is a merge patch.
func merge(t *testing.T, change map[string]any) client.Patch {
	t.Helper()
	data, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	return client.RawPatch(types.MergePatchType, data)
}

func metadata(change map[string]any) map[string]any { return map[string]any{"metadata": change} }

// newNode makes a node with a label, an annotation and a taint that are not virtkit's.
func newNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"zone": "a", v1.NodeSchedulable: "true"},
			Annotations: map[string]string{"theirs": "1"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "keep", Effect: corev1.TaintEffectNoSchedule}}},
	}
	if err := environment.Client.Create(t.Context(), n); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return n
}

// A broken node's token cordons, taints and labels another node, and frees its own of what its administrator set.
func TestNodeOfVirtHandler(t *testing.T) {
	newNode(t, ownNode)
	newNode(t, otherNode)
	handler := handlerOf(t, ownNode)
	patch := func(node string, change map[string]any) func() error {
		return func() error {
			return handler.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, merge(t, change))
		}
	}
	for _, c := range []struct {
		name, node, says string
		change           map[string]any
	}{
		{
			"labels another node", otherNode, "its own node only",
			metadata(map[string]any{"labels": map[string]any{v1.NodeSchedulable: "false"}}),
		},
		{
			"says that another node's heartbeat pauses", otherNode, "its own node only",
			metadata(map[string]any{"annotations": map[string]any{names.AnnotationHeartbeatPaused: "x"}}),
		},
		{
			"chooses who vouches for another node", otherNode, "its own node only",
			metadata(map[string]any{"annotations": map[string]any{names.AnnotationFencingSet: "a,b,c"}}),
		},
		{
			"cordons another node", otherNode, "its own node only",
			map[string]any{"spec": map[string]any{"unschedulable": true}},
		},
		{
			"taints another node", otherNode, "its own node only",
			map[string]any{"spec": map[string]any{"taints": []any{map[string]any{"key": "x", "effect": "NoExecute"}}}},
		},
		{"cordons its own", ownNode, "spec of a node", map[string]any{"spec": map[string]any{"unschedulable": true}}},
		{"takes its taints away", ownNode, "spec of a node", map[string]any{"spec": map[string]any{"taints": nil}}},
		{"changes a label", ownNode, "node's labels", metadata(map[string]any{"labels": map[string]any{"zone": "b"}})},
		{
			"adds a label", ownNode, "node's labels",
			metadata(map[string]any{"labels": map[string]any{"node-role.kubernetes.io/control-plane": ""}}),
		},
		{
			"adds a label like ours", ownNode, "node's labels",
			metadata(map[string]any{"labels": map[string]any{"xkubevirt.io/a": ""}}),
		},
		{"removes a label", ownNode, "node's labels", metadata(map[string]any{"labels": map[string]any{"zone": nil}})},
		{
			"changes an annotation", ownNode, "node's annotations",
			metadata(map[string]any{"annotations": map[string]any{"theirs": "2"}}),
		},
		{
			"removes an annotation", ownNode, "node's annotations",
			metadata(map[string]any{"annotations": map[string]any{"theirs": nil}}),
		},
		{"has a finalizer", ownNode, "finalizers", metadata(map[string]any{"finalizers": []string{"example.com/x"}})},
	} {
		t.Run(c.name, func(t *testing.T) { denied(t, c.says, patch(c.node, c.change)) })
	}
	t.Run("what virt-handler does", func(t *testing.T) {
		beat, err := nodestatus.Patch(true, metav1.Now().Time, map[string]string{
			names.AnnotationHost:            "{}",
			names.AnnotationFencingSet:      "a",
			names.AnnotationHeartbeatPaused: "b",
		})
		if err != nil {
			t.Fatal(err)
		}
		own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ownNode}}
		allowed(t, func() error { return handler.Patch(t.Context(), own, client.RawPatch(types.MergePatchType, beat)) })
		labels, err := nodestatus.Relabel(own, nodestatus.Wanted{Labels: map[string]string{
			v1.CPUModelLabel + "Haswell": "true", v1.HostModelCPULabel + "x": "true", v1.CPUManager: "true",
			v1.SEVLabel:             "",
			v1.HypervLabel + "base": "true", v1.CPUTimerLabel + "tsc-frequency": "1",
			v1.CPUModelVendorLabel + "Intel": "true",
		}})
		if err != nil {
			t.Fatal(err)
		}
		allowed(t, func() error {
			return handler.Patch(t.Context(), own, client.RawPatch(types.MergePatchType, labels))
		})
		gone, err := nodestatus.Relabel(own, nodestatus.Wanted{Owned: []string{v1.CPUModelLabel, v1.SEVLabel}})
		if err != nil {
			t.Fatal(err)
		}
		allowed(t, func() error { return handler.Patch(t.Context(), own, client.RawPatch(types.MergePatchType, gone)) })
		if own.Labels["zone"] != "a" || own.Labels[v1.CPUManager] != "true" {
			t.Errorf("labels %v", own.Labels)
		}
	})
	t.Run("a token without a node", func(t *testing.T) {
		groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + names.Namespace}
		nowhere := as(t, "system:serviceaccount:"+names.Namespace+":"+names.VirtHandler, groups, nil)
		denied(t, "names no node", func() error {
			return nowhere.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ownNode}},
				merge(t, metadata(map[string]any{"labels": map[string]any{v1.NodeSchedulable: "false"}})))
		})
	})
}

// newInstance makes a VMI with a status.
func newInstance(t *testing.T, namespace, name string, status v1.VirtualMachineInstanceStatus,
) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.VirtualMachineInstanceSpec{Domain: v1.DomainSpec{Devices: v1.Devices{}}},
	}
	if err := environment.Client.Create(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	vmi.Status = status
	if err := environment.Client.Status().Update(t.Context(), vmi); err != nil {
		t.Fatal(err)
	}
	return vmi
}

// running is the status of a VMI on a node, with a hotplugged volume.
func running(node string) v1.VirtualMachineInstanceStatus {
	cid := uint32(7)
	return v1.VirtualMachineInstanceStatus{
		Phase: v1.Running, NodeName: node, ActivePods: map[types.UID]string{"pod1": node}, VSOCKCID: &cid,
		EvacuationNodeName: node,
		VolumeStatus: []v1.VolumeStatus{{
			Name: "plugged", Phase: v1.VolumeReady,
			HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: "hp-1", AttachPodUID: "hp1"},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "claim"},
		}},
	}
}

// moving is the status of a VMI that moves from one node to another.
func moving(from, to string) v1.VirtualMachineInstanceStatus {
	s := running(from)
	s.ActivePods["pod2"] = to
	s.VolumeStatus = append(s.VolumeStatus, v1.VolumeStatus{
		Name: "state-1",
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "state-1", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	})
	s.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: "m", SourceNode: from, SourcePod: "p1", TargetNode: to, TargetPod: "p2",
		TargetAttachmentPodUID:       "hp2",
		SourcePersistentStatePVCName: "state-1", TargetPersistentStatePVCName: "state-2",
	}
	return s
}

// A broken node's token writes the status of VMIs that are not its own, or takes them, or has others use pods and
// volumes that virt-controller has not made.
func TestInstancesOfVirtHandler(t *testing.T) {
	namespace, _ := tenant(t)
	handler := handlerOf(t, ownNode)
	ended := moving(otherNode, ownNode)
	left := running(ownNode)
	left.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: volumemigration.LeftCondition, Status: corev1.ConditionTrue,
		Message: `[{"volume":"plugged","claim":"old","uid":"2"}]`,
	}}
	ended.MigrationState.Failed, ended.MigrationState.Completed = true, true
	instances := map[string]*v1.VirtualMachineInstance{
		"own":       newInstance(t, namespace, "own", running(ownNode)),
		"left":      newInstance(t, namespace, "left", left),
		"other":     newInstance(t, namespace, "other", running(otherNode)),
		"leaving":   newInstance(t, namespace, "leaving", moving(ownNode, otherNode)),
		"coming":    newInstance(t, namespace, "coming", moving(otherNode, ownNode)),
		"failed":    newInstance(t, namespace, "failed", ended),
		"elsewhere": newInstance(t, namespace, "elsewhere", moving(otherNode, thirdNode)),
		"pending":   newInstance(t, namespace, "pending", v1.VirtualMachineInstanceStatus{Phase: v1.Scheduling}),
	}
	const (
		foreign   = "is on another node"
		hijack    = "another node"
		pods      = "activePods"
		migration = "status.migrationState"
		part      = "part of a VirtualMachineInstance's status"
		volume    = "attachment pod or a claim"
		condition = "a condition that virt-controller alone writes"
	)
	of := func(change map[string]any) map[string]any { return map[string]any{"migrationState": change} }
	volumes := func(change func(*v1.VolumeStatus)) map[string]any {
		s := *instances["own"].Status.VolumeStatus[0].DeepCopy()
		change(&s)
		return map[string]any{"volumeStatus": []v1.VolumeStatus{s}}
	}
	state := func(name, claim string, access corev1.PersistentVolumeAccessMode) map[string]any {
		s := v1.VolumeStatus{Name: name, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: claim, AccessModes: []corev1.PersistentVolumeAccessMode{access},
		}}
		return map[string]any{
			"nodeName":     ownNode,
			"volumeStatus": []v1.VolumeStatus{instances["own"].Status.VolumeStatus[0], s},
		}
	}
	// What the claims are that a guest leaves: virt-controller deletes them.
	leaving := func(more ...v1.VirtualMachineInstanceCondition) map[string]any {
		forged := v1.VirtualMachineInstanceCondition{
			Type: volumemigration.LeftCondition, Status: corev1.ConditionTrue,
			Message: `[{"volume":"root","claim":"backup","uid":"1"}]`,
		}
		return map[string]any{"nodeName": ownNode, "conditions": append(more, forged)}
	}
	for _, c := range []struct {
		name, instance, says string
		status               map[string]any
	}{
		{"has a claim deleted", "own", condition, leaving()},
		{"has a claim deleted of a guest that comes", "coming", condition, leaving()},
		{"has another claim deleted than the guest left", "left", condition, leaving()},
		{"has a claim deleted, too", "left", condition, leaving(instances["left"].Status.Conditions...)},
		{"has no claim deleted", "left", condition, map[string]any{"conditions": nil}},
		{"says that there is memory to plug in", "own", condition, map[string]any{
			"conditions": []v1.VirtualMachineInstanceCondition{
				{Type: v1.VirtualMachineInstanceMemoryChange, Status: corev1.ConditionTrue},
			},
		}},
		{"has the state on a claim of its choice", "coming", volume, state("state-2", "other", corev1.ReadWriteOnce)},
		{"has the state under another name", "coming", volume, state("other", "state-2", corev1.ReadWriteOnce)},
		{
			"has the state's claim be another's, too", "coming", volume,
			state("state-2", "state-2", corev1.ReadWriteMany),
		},
		{"has the state's claim without a migration", "own", volume, state("state-2", "state-2", corev1.ReadWriteOnce)},
		{"ends another node's guest", "other", foreign, map[string]any{"phase": "Failed"}},
		{"takes another node's guest", "other", foreign, map[string]any{"nodeName": ownNode}},
		{"takes a guest of no node", "pending", foreign, map[string]any{"nodeName": ownNode, "phase": "Scheduled"}},
		{"takes a guest that moves between others", "elsewhere", foreign, map[string]any{"nodeName": ownNode}},
		{"takes a guest whose migration failed", "failed", foreign, map[string]any{"nodeName": ownNode}},
		{"gives its own guest away", "own", hijack, map[string]any{"nodeName": otherNode}},
		{"gives its own guest nowhere", "own", hijack, map[string]any{"nodeName": nil}},
		{"gives away a guest that comes", "coming", hijack, map[string]any{"nodeName": thirdNode}},
		{"names a pod", "own", pods, map[string]any{"activePods": map[string]any{"pod9": ownNode}}},
		{"moves a pod", "own", pods, map[string]any{"activePods": map[string]any{"pod1": otherNode}}},
		{
			"lets a pod go while the guest is in it", "own", pods,
			map[string]any{"activePods": map[string]any{"pod1": ""}},
		},
		{
			"names a pod for a guest that comes", "coming", pods,
			map[string]any{"nodeName": ownNode, "activePods": map[string]any{"pod9": ownNode}},
		},
		{
			"begins a migration", "own", migration,
			of(map[string]any{"migrationUid": "x", "sourceNode": ownNode, "targetNode": otherNode}),
		},
		{"forgets a migration", "leaving", migration, map[string]any{"migrationState": nil}},
		{"changes the target's node", "leaving", migration, of(map[string]any{"targetNode": thirdNode})},
		{"changes the target's pod", "leaving", migration, of(map[string]any{"targetPod": "p9"})},
		{"changes the source", "coming", migration, of(map[string]any{"sourceNode": thirdNode})},
		{"says for the target where it is", "leaving", migration, of(map[string]any{"targetNodeAddress": "192.0.2.1"})},
		{"has the source give up", "coming", migration, of(map[string]any{"abortRequested": true})},
		{
			"allows itself what a policy forbids", "leaving", migration,
			of(map[string]any{"migrationConfiguration": map[string]any{"allowPostCopy": true}}),
		},
		{
			"says as the source that it is over there", "leaving", "when its target has the guest",
			of(map[string]any{"completed": true}),
		},
		{
			"says that it is there and does not take it", "coming", "when its target has the guest",
			of(map[string]any{"completed": true}),
		},
		{"ends a guest that comes", "coming", part, map[string]any{"phase": "Failed"}},
		{"takes another guest's vsock", "own", part, map[string]any{"VSOCKCID": 8}},
		{"empties another node", "own", "evacuationNodeName", map[string]any{"evacuationNodeName": otherNode}},
		{
			"has an attachment pod", "own", volume,
			volumes(func(s *v1.VolumeStatus) { s.HotplugVolume.AttachPodUID = "other" }),
		},
		{
			"has another claim", "own", volume,
			volumes(func(s *v1.VolumeStatus) { s.PersistentVolumeClaimInfo.ClaimName = "other" }),
		},
		{"has a volume more", "own", volume, volumes(func(s *v1.VolumeStatus) { s.Name = "new" })},
		{"has an attachment pod for a guest that comes", "coming", volume, map[string]any{
			"nodeName": ownNode,
			"volumeStatus": volumes(func(s *v1.VolumeStatus) {
				s.HotplugVolume.AttachPodUID = "other"
			})["volumeStatus"],
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			denied(t, c.says, func() error {
				return handler.Status().Patch(t.Context(), instances[c.instance].DeepCopy(),
					merge(t, map[string]any{"status": c.status}))
			})
		})
	}
	t.Run("the spec, or labels", func(t *testing.T) {
		vmi := instances["own"].DeepCopy()
		err := handler.Patch(t.Context(), vmi, merge(t, metadata(map[string]any{"labels": map[string]any{"a": "b"}})))
		if !apierrors.IsForbidden(err) {
			t.Errorf("%v", err)
		}
	})
}

// What virt-handler writes in a migration is let through: the target's address, the source's account, and, in one step,
// that the guest has come.
func TestMigrationOfVirtHandler(t *testing.T) {
	namespace, _ := tenant(t)
	source, target := handlerOf(t, otherNode), handlerOf(t, ownNode)
	status := moving(otherNode, ownNode)
	if err := volumemigration.SetLeft(&status, []volumemigration.Left{{Volume: "x", Claim: "y", UID: "z"}},
		time.Now()); err != nil {
		t.Fatal(err)
	}
	vmi := newInstance(t, namespace, "moving", status)
	write := func(by client.Client, next v1.VirtualMachineInstanceStatus) {
		t.Helper()
		allowed(t, func() error {
			changed := vmi.DeepCopy()
			changed.Status = next
			err := by.Status().Patch(t.Context(), changed,
				client.MergeFromWithOptions(vmi, client.MergeFromWithOptimisticLock{}))
			if err == nil {
				vmi = changed
			}
			return err
		})
	}
	now := metav1.Now().Time
	here := vmistatus.Target{Node: ownNode, Address: "192.0.2.7", Port: 8187, Prepared: true}
	write(target, vmistatus.AtTarget(vmistatus.Input{VMI: vmi, Now: now}, here))
	if vmi.Status.MigrationState.TargetNodeAddress != here.Address {
		t.Fatalf("%+v", vmi.Status.MigrationState)
	}
	guest := &launcherpb.GuestState{
		Lifecycle: launcherpb.Lifecycle_LIFECYCLE_RUNNING, MemoryAtBoot: 1 << 30, Machine: "q35", Vcpus: 1,
	}
	write(source, vmistatus.Next(vmistatus.Input{
		VMI: vmi, Guest: guest, Now: now,
		Outgoing: &vmistatus.Outgoing{UID: "m", Begun: now, Mode: v1.MigrationPostCopy},
	}))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod2", Name: "p2"}}
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)} // nobody here asks the API server for the spec
	write(target, vmistatus.AtTarget(vmistatus.Input{VMI: vmi, Pod: pod, Guest: guest, Now: now}, here))
	guest.StateSaved = true
	write(target, vmistatus.Next(vmistatus.Input{VMI: vmi, Pod: pod, Guest: guest, Now: now}))
	if s := vmi.Status.VolumeStatus; len(s) != 2 || s[1].Name != "state-2" ||
		s[1].PersistentVolumeClaimInfo.ClaimName != "state-2" {
		t.Errorf("volumes %+v", s)
	}
	if s := vmi.Status; s.NodeName != ownNode || !s.MigrationState.Completed || s.EvacuationNodeName != "" {
		t.Errorf("%+v", s)
	}
	if err := source.Status().Patch(t.Context(), vmi.DeepCopy(),
		merge(t, map[string]any{"status": map[string]any{"phase": "Failed"}})); err == nil {
		t.Error("the node that the guest has left still writes its status")
	}
	write(target, vmistatus.Next(vmistatus.Input{VMI: vmi, Gone: "the launcher is gone", Now: now}))
	if vmi.Status.Phase != v1.Failed {
		t.Errorf("phase %s", vmi.Status.Phase)
	}
}

// A broken node's token changes migrations: where to, of whom, whether they are tidied up.
func TestMigrationObjectsOfVirtHandler(t *testing.T) {
	namespace, _ := tenant(t)
	handler := handlerOf(t, ownNode)
	migration := func(name, from, to string) *v1.VirtualMachineInstanceMigration {
		m := &v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, Labels: map[string]string{v1.MigrationSelectorLabel: "vmi"},
				Annotations: map[string]string{"theirs": "1"},
			},
			Spec: v1.VirtualMachineInstanceMigrationSpec{VMIName: "vmi"},
		}
		if err := environment.Client.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		m.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			MigrationUID: m.UID, SourceNode: from, TargetNode: to,
		}
		if err := environment.Client.Status().Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	own, other := migration("own", ownNode, otherNode), migration("other", otherNode, thirdNode)
	progress := metadata(map[string]any{"annotations": map[string]any{names.AnnotationProgress: "{}"}})
	for _, c := range []struct {
		name, says string
		migration  *v1.VirtualMachineInstanceMigration
		change     map[string]any
	}{
		{"of others", "between other nodes", other, progress},
		{"its guest", "spec of a migration", own, map[string]any{"spec": map[string]any{"vmiName": "x"}}},
		{
			"its labels", "labels of a migration", own,
			metadata(map[string]any{"labels": map[string]any{v1.MigrationSelectorLabel: "x"}}),
		},
		{
			"its annotations", "migration's annotations", own,
			metadata(map[string]any{"annotations": map[string]any{"theirs": nil}}),
		},
		{"its finalizers", "finalizers", own, metadata(map[string]any{"finalizers": []string{"example.com/x"}})},
		{"its owners", "finalizers and owners", own, metadata(map[string]any{"ownerReferences": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x",
		}}})},
	} {
		t.Run(c.name, func(t *testing.T) {
			denied(t, c.says, func() error {
				return handler.Patch(t.Context(), c.migration.DeepCopy(), merge(t, c.change))
			})
		})
	}
	allowed(t, func() error { return handler.Patch(t.Context(), own.DeepCopy(), merge(t, progress)) })
	// Which claims a migration has made: virt-controller deletes them when it fails.
	forged := merge(t, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": volumemigration.MadeCondition, "status": "True", "message": `[{"volume":"x","claim":"y","uid":"z"}]`,
	}}}})
	if err := handler.Status().Patch(t.Context(), own.DeepCopy(), forged); !apierrors.IsForbidden(err) {
		t.Errorf("the status of a migration: %v", err)
	}
	changed := own.DeepCopy()
	if err := handler.Patch(t.Context(), changed, forged); err != nil || len(changed.Status.Conditions) > 0 {
		t.Errorf("the status beside a migration: %v, conditions %v", err, changed.Status.Conditions)
	}
}

// A broken node's token writes events of others, and asks for other certificates than virt-handler's.
func TestOtherObjectsOfVirtHandler(t *testing.T) {
	namespace, _ := tenant(t)
	handler := handlerOf(t, ownNode)
	event := func(name, component, host string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
			InvolvedObject: corev1.ObjectReference{Namespace: namespace, Name: "vmi"},
			Source:         corev1.EventSource{Component: component, Host: host}, Reason: "x",
		}
	}
	create := func(o client.Object) func() error {
		return func() error { return handler.Create(t.Context(), o.DeepCopyObject().(client.Object)) }
	}
	denied(t, "events of its own only", create(event("a", names.VirtController, ownNode)))
	denied(t, "events of its own only", create(event("b", names.VirtHandler, otherNode)))
	allowed(t, create(event("c", names.VirtHandler, ownNode)))
	if err := environment.Client.Create(context.WithoutCancel(t.Context()),
		event("d", names.VirtHandler, otherNode)); err != nil {
		t.Fatal(err)
	}
	denied(t, "events of its own only", func() error {
		return handler.Patch(t.Context(), event("d", "", ""),
			merge(t, map[string]any{"message": "x", "source": map[string]any{"host": ownNode}}))
	})
	_, request, err := certs.HandlerLeaf(ownNode).Request()
	if err != nil {
		t.Fatal(err)
	}
	denied(t, "signer virtkit.io/virt-handler only", create(&certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeletServingSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth},
		},
	}))
}
