package vmistatus

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// terminated is a launcher that has left a message.
func terminated(message string) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{Name: names.ContainerCompute, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: message},
	}}}
}

const migratingVMI = `
metadata: {namespace: ns, name: demo}
spec:
  domain: {devices: {interfaces: [{name: default, masquerade: {}}]}}
  networks: [{name: default, pod: {}}]
status:
  phase: Running
  nodeName: node1
  activePods: {pod1: node1, pod2: node2}
  migrationState: {migrationUid: m, sourceNode: node1, targetNode: node2, targetPod: target}
`

var node2 = Target{Node: "node2", Address: "10.0.0.2", Port: 8187}

func TestAtSource(t *testing.T) {
	in := Input{VMI: vmiOf(t, migratingVMI), Pod: pod(), Guest: guest(nil), Plan: plan(), Now: now}
	in.Outgoing = &Outgoing{UID: "another", Failed: true}
	if ms := Next(in).MigrationState; ms.StartTimestamp != nil || migrations.Over(ms) {
		t.Errorf("another migration's news: %+v", ms)
	}
	in.Outgoing = &Outgoing{UID: "m", Begun: now.Add(-time.Second)}
	running := Next(in)
	if ms := running.MigrationState; ms.StartTimestamp == nil || ms.Mode != v1.MigrationPreCopy || migrations.Over(ms) {
		t.Errorf("begun: %+v", ms)
	}
	if events := Events(in.VMI.Status, running); len(events) != 1 || events[0].Reason != string(v1.Migrating) {
		t.Errorf("events %+v", events)
	}
	in.VMI.Status = running
	in.Outgoing = &Outgoing{UID: "m", Failed: true, Cancelled: true, Reason: "aborted\nby hand"}
	over := Next(in)
	if ms := over.MigrationState; !ms.Failed || !ms.Completed || ms.EndTimestamp == nil ||
		ms.AbortStatus != v1.MigrationAbortSucceeded || ms.FailureReason != "abortedby hand" {
		t.Errorf("failed: %+v", ms)
	}
	if over.Phase != v1.Running || over.NodeName != "node1" {
		t.Errorf("phase %s on %s", over.Phase, over.NodeName)
	}
	if events := Events(in.VMI.Status, over); len(events) != 1 || events[0].Type != corev1.EventTypeWarning ||
		events[0].Reason != string(v1.Migrated) {
		t.Errorf("events %+v", events)
	}
}

func TestAtTarget(t *testing.T) {
	in := Input{
		VMI: vmiOf(t, migratingVMI), Pod: pod(),
		Guest: guest(func(g *launcherpb.GuestState) { g.Lifecycle = launcherpb.Lifecycle_LIFECYCLE_NONE }),
		Plan:  plan(), Now: now,
	}
	in.Pod.UID = "pod2"
	if ms := AtTarget(in, node2).MigrationState; ms.TargetNodeAddress != "" {
		t.Errorf("not prepared: %+v", ms)
	}
	prepared := node2
	prepared.Prepared = true
	waiting := AtTarget(in, prepared)
	if ms := waiting.MigrationState; ms.TargetNodeAddress != "10.0.0.2" || len(ms.TargetDirectMigrationNodePorts) != 1 {
		t.Errorf("prepared: %+v", ms)
	}
	if _, ok := waiting.MigrationState.TargetDirectMigrationNodePorts["8187"]; !ok || waiting.NodeName != "node1" {
		t.Errorf("prepared: %+v", waiting)
	}
	if events := Events(in.VMI.Status, waiting); len(events) != 1 || events[0].Reason != string(v1.PreparingTarget) {
		t.Errorf("events %+v", events)
	}
	in.VMI.Status = waiting
	in.Guest = guest(nil)
	here := AtTarget(in, prepared)
	ms := here.MigrationState
	// virt-handler gives no pod away and takes none in.
	want := map[types.UID]string{"pod1": "", "pod2": "node2"}
	if here.NodeName != "node2" || !maps.Equal(here.ActivePods, want) || here.Phase != v1.Running {
		t.Errorf("at the target: %+v", here)
	}
	if !ms.Completed || ms.Failed || ms.EndTimestamp == nil || !ms.TargetNodeDomainDetected {
		t.Errorf("at the target: %+v", ms)
	}
	if len(here.Interfaces) != 1 || here.Interfaces[0].IP != "10.42.1.5" {
		t.Errorf("interfaces %+v", here.Interfaces)
	}
	if events := Events(in.VMI.Status, here); events[len(events)-1].Reason != string(v1.Migrated) {
		t.Errorf("events %+v", events)
	}
	late := in
	late.VMI = in.VMI.DeepCopy()
	late.VMI.Status.MigrationState.AbortRequested = true
	late.VMI.Status.MigrationState.AbortStatus = v1.MigrationAbortInProgress
	// virt-controller's to say: a target may not write it.
	if ms := AtTarget(late, prepared).MigrationState; !migrations.Succeeded(ms) ||
		ms.AbortStatus != v1.MigrationAbortInProgress {
		t.Errorf("cancelled too late: %+v", ms)
	}
	// A guest that comes late is not taken over: the source has said that it stays.
	migrations.Fail(in.VMI.Status.MigrationState, "network", false, now)
	if late := AtTarget(in, prepared); late.NodeName != "node1" {
		t.Errorf("late: %+v", late)
	}
}

func TestTargetCannotBePrepared(t *testing.T) {
	in := Input{VMI: vmiOf(t, migratingVMI), Pod: pod(), Now: now, Failure: &Failure{Message: "no image"}}
	if ms := AtTarget(in, node2).MigrationState; migrations.Over(ms) {
		t.Errorf("tried again: %+v", ms)
	}
	in.Failure.Final = true
	if ms := AtTarget(in, node2).MigrationState; !ms.Failed || ms.FailureReason != "target node node2: no image" {
		t.Errorf("final: %+v", ms)
	}
	if ms := AtTarget(Input{VMI: in.VMI, Pod: pod(), Now: now},
		Target{Node: "node2", Prepared: true}).MigrationState; !ms.Failed {
		t.Errorf("no address: %+v", ms)
	}
}

// The launcher that the guest has left ends, and nothing is said of it.
func TestSourceEnds(t *testing.T) {
	in := Input{VMI: vmiOf(t, migratingVMI), Pod: pod(), Now: now}
	in.Pod.Status.Phase = corev1.PodSucceeded
	in.Pod.Status.ContainerStatuses = terminated(`{"lifecycle":"LIFECYCLE_MIGRATED","reason":"migrated"}`)
	if next := Next(in); next.Phase != v1.Running {
		t.Errorf("phase %s", next.Phase)
	}
}
