package handler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

var passTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// says is a decision in words, its times from passTime on.
func says(v View, d Decision) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if d.Lost {
		add("lost")
	}
	if d.End {
		add("end")
	}
	if d.Session != "" {
		add("%s", d.Session)
	}
	if !d.StopBy.IsZero() {
		add("stop by %s", d.StopBy.Sub(passTime))
	}
	if d.Announce {
		add("announce")
	}
	if d.Outgoing != nil && d.Outgoing.uid != "" {
		add("leave for %s", d.Outgoing.node)
	}
	if d.Report != nil {
		add("report")
	}
	if d.TakeOver != nil {
		add("take over, paused %t", *d.TakeOver)
	}
	if s := d.Status; s != nil {
		add("%s on %s %s", s.Phase, s.NodeName, s.Reason)
		for _, e := range d.Events {
			add("event %s", e.Reason)
		}
	}
	if d.RequeueAfter > 0 {
		add("again in %s", d.RequeueAfter)
	}
	return strings.Join(strings.Fields(strings.Join(out, "; ")), " ")
}

// ownedView is that of a VMI that runs here, as its status says, and is followed.
func ownedView(change ...func(*View)) View {
	v := View{
		Key: vmiKey, Now: passTime, Here: vmistatus.Target{Node: nodeName, Address: "10.0.0.1", Port: 4321},
		VMI: newVMI(), Pod: newPod(), Session: &Following{VMI: vmiUID, Pod: podUID},
	}
	v.Session.Seen.Guest = guestIn(launcherpb.Lifecycle_LIFECYCLE_RUNNING)
	v.VMI.Status = *Next(v).Status
	for _, c := range change {
		c(&v)
	}
	return v
}

func guestIn(lifecycle launcherpb.Lifecycle) *launcherpb.GuestState {
	return &launcherpb.GuestState{Lifecycle: lifecycle}
}

// migratingTo has the guest on its way.
func migratingTo(v *View) {
	v.VMI.Status = migratingVMI(nodeName, newPod().Name, "node2", "other").Status
	v.Session.Seen.Guest.Migration = &launcherpb.Migration{
		Uid: "m", Phase: launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING,
	}
	v.VMI.Status = *Next(*v).Status
}

// inHandoff has it stand still, as its status says.
func inHandoff(v *View) {
	migratingTo(v)
	guest := v.Session.Seen.Guest
	guest.Lifecycle, guest.Reason = launcherpb.Lifecycle_LIFECYCLE_PAUSED, names.ReasonHandoff
	v.Other = otherPod(corev1.PodRunning, "")
	v.VMI.Status = *Next(*v).Status
}

func hasMoved(v *View) {
	migratingTo(v)
	v.Session.Seen.Guest.Lifecycle = launcherpb.Lifecycle_LIFECYCLE_MIGRATED
}

// changes make a view another one.
type changes []func(*View)

func noPod(v *View)     { v.Pod = nil }
func noSession(v *View) { v.Session = nil }

func phase(phase v1.VirtualMachineInstancePhase) func(*View) {
	return func(v *View) { v.VMI.Status.Phase = phase }
}

func podEnds(phase corev1.PodPhase, lastWord string) func(*View) {
	return func(v *View) {
		v.Pod = otherPod(phase, lastWord)
		v.Pod.Name, v.Pod.UID, v.Pod.Spec.NodeName = newPod().Name, podUID, nodeName
	}
}

func deleted(ago time.Duration) func(*View) {
	return func(v *View) {
		at := metav1.NewTime(passTime.Add(-ago))
		v.VMI.DeletionTimestamp, v.VMI.Spec.TerminationGracePeriodSeconds = &at, new(int64(60))
	}
}

func lostSince(ago time.Duration, dead bool) func(*View) {
	return func(v *View) { v.Session.Seen.LostAt, v.Session.Seen.Dead = passTime.Add(-ago), dead }
}

func TestNextOwned(t *testing.T) {
	for name, tc := range map[string]struct {
		change changes
		want   string
	}{
		"nothing new":                           {nil, "refresh"},
		"not scheduled":                         {changes{phase(v1.Scheduling), noSession}, ""},
		"nobody follows the launcher":           {changes{noSession}, "start"},
		"another pod's launcher is followed":    {changes{func(v *View) { v.Session.Pod = otherUID }}, "end; start"},
		"an earlier VMI's launcher is followed": {changes{func(v *View) { v.Session.VMI = "earlier" }}, "end; start"},
		"the guest has started": {
			changes{phase(v1.Scheduled)}, "refresh; Running on node1 ; event Created; event Started",
		},
		"the node was thought lost": {changes{phase(v1.Unknown)}, "lost; refresh; Running on node1"},
		"the guest has ended": {
			changes{func(v *View) { v.Session.Seen.Guest = guestIn(launcherpb.Lifecycle_LIFECYCLE_SHUTOFF) }},
			"refresh; Succeeded on node1 ; event Stopped",
		},
		"final": {changes{phase(v1.Failed)}, ""},
		"final, and the pod has ended": {
			changes{phase(v1.Failed), podEnds(corev1.PodFailed, "")}, "end",
		},
		"final, and the pod is gone": {changes{phase(v1.Failed), noPod}, "end"},
		"the pod has ended, and nobody followed it": {
			changes{noSession, podEnds(corev1.PodSucceeded, `{"lifecycle":"LIFECYCLE_SHUTOFF"}`)},
			"Succeeded on node1 ; event Stopped",
		},

		"deleted": {changes{deleted(time.Second)}, "refresh; stop by 1m0s; announce"},
		"deleted, and asked before": {
			changes{deleted(time.Second), func(v *View) { v.Session.StopBy = passTime.Add(time.Minute) }},
			"refresh; stop by 1m0s",
		},
		"deleted with less time than before": {
			changes{deleted(11 * time.Second), func(v *View) { v.Session.StopBy = passTime.Add(time.Minute) }},
			"refresh; stop by 50s; announce",
		},
		"deleted while virt-handler was down": {
			changes{deleted(time.Second), noSession}, "start; stop by 1m0s; announce",
		},
		"deleted before the start": {
			changes{deleted(time.Second), phase(v1.Scheduled), noSession}, "start; stop by 1m0s",
		},
		"deleted, and there is no launcher": {
			changes{deleted(time.Second), noPod, noSession},
			"Succeeded on node1 ; event Stopped; event Deleted",
		},

		"the pod is gone": {changes{noPod, noSession}, "Failed on node1 LauncherGone; event Stopped"},
		"the pod is gone, a process is not": {
			changes{noPod, noSession, func(v *View) { v.MayRun = true }}, "again in 1s",
		},
		"the pod is gone, the launcher is not": {changes{noPod}, "refresh; again in 1s"},
		"the launcher does not answer":         {changes{lostSince(time.Hour, false)}, "refresh"},
		"the launcher has died":                {changes{lostSince(5*time.Second, true)}, "refresh; again in 15s"},
		"the launcher has died, the pod has not": {
			changes{lostSince(20*time.Second, true)},
			"refresh; Failed on node1 LauncherGone; event Stopped",
		},

		"a migration begins": {
			changes{migratingTo, func(v *View) { v.VMI.Status.MigrationState.StartTimestamp = nil }},
			"refresh; leave for node2; Running on node1 ; event Migrating",
		},
		"the guest has moved": {changes{hasMoved}, "refresh; leave for node2; again in 1s"},
		"it has, and the target has ended": {
			changes{hasMoved, func(v *View) { v.Other = otherPod(corev1.PodFailed, "") }},
			"refresh; leave for node2; Failed on node1 LauncherGone; event Stopped",
		},
		"it has, says the pod": {
			changes{hasMoved, noSession, podEnds(corev1.PodSucceeded, `{"lifecycle":"LIFECYCLE_MIGRATED"}`)},
			"again in 1s",
		},
		"it has, and no migration is known": {
			changes{hasMoved, func(v *View) { v.VMI.Status.MigrationState = nil }}, "refresh",
		},
		"handoff": {changes{inHandoff}, "refresh; leave for node2; again in 1s"},
		"handoff, and the target never ran it": {
			changes{inHandoff, func(v *View) {
				v.Other = otherPod(corev1.PodFailed, `{"lifecycle":"LIFECYCLE_CRASHED","reason":"not started"}`)
			}},
			"refresh; leave for node2; take over, paused false; again in 1s",
		},
		"handoff, and the target may have run it": {
			changes{inHandoff, func(v *View) { v.Other = otherPod(corev1.PodFailed, "") }},
			"refresh; leave for node2; Failed on node1 LauncherGone; event Stopped",
		},
		"handoff, and the target was removed": {
			changes{inHandoff, func(v *View) { v.Other = nil }}, "refresh; leave for node2; again in 1s",
		},
		"handoff, and the target is known to be gone": {
			changes{inHandoff, func(v *View) {
				v.Other = nil
				v.VMI.Status.ActivePods = map[types.UID]string{podUID: nodeName}
			}},
			"refresh; leave for node2; Failed on node1 LauncherGone; event Stopped",
		},
	} {
		t.Run(name, func(t *testing.T) { decides(t, ownedView(tc.change...), tc.want) })
	}
}

func decides(t *testing.T, v View, want string) {
	t.Helper()
	before := v.VMI.DeepCopy()
	if got := says(v, Next(v)); got != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !equality.Semantic.DeepEqual(before, v.VMI) {
		t.Error("the view's VMI was changed")
	}
}

// expectedView is that of a VMI that is to come here from node2, where its launcher waits for it.
func expectedView(change ...func(*View)) View {
	v := ownedView()
	v.VMI = migratingVMI("node2", "other", nodeName, newPod().Name)
	v.Session.Seen = observation{Guest: guestIn(launcherpb.Lifecycle_LIFECYCLE_NONE), Prepared: true}
	for _, c := range change {
		c(&v)
	}
	return v
}

func receivedAgo(ago time.Duration) func(*View) {
	return func(v *View) {
		v.Session.Seen.Guest.Arrived = true
		v.Session.Seen.ReceivedAt = passTime.Add(-ago)
		v.Other = otherPod(corev1.PodRunning, "")
	}
}

func begun(v *View) {
	at := metav1.NewTime(passTime)
	v.VMI.Status.MigrationState.StartTimestamp = &at
}

func TestNextExpected(t *testing.T) {
	letGo := func(v *View) { v.Other = otherPod(corev1.PodSucceeded, `{"lifecycle":"LIFECYCLE_MIGRATED"}`) }
	for name, tc := range map[string]struct {
		change changes
		want   string
	}{
		"nobody follows the launcher": {changes{noSession}, "start"},
		"its address is known":        {nil, "refresh"},
		"it waits": {
			changes{func(v *View) { v.VMI.Status.MigrationState.TargetNodeAddress = "" }},
			"refresh; Running on node2 ; event PreparingTarget",
		},
		"the migration is over": {
			changes{func(v *View) { v.VMI.Status.MigrationState.Completed = true }}, "end",
		},
		"it is to go elsewhere": {changes{func(v *View) { v.VMI.Status.MigrationState.TargetNode = "node3" }}, "end"},
		"the VMI is final":      {changes{phase(v1.Failed)}, "end"},
		"the pod is of another migration": {
			changes{func(v *View) { v.VMI.Status.MigrationState.TargetPod = "another" }}, "",
		},
		"the pod has ended":    {changes{noSession, podEnds(corev1.PodFailed, "")}, ""},
		"the pod is not there": {changes{noPod, noSession}, ""},
		"the pod was removed":  {changes{begun, noPod, noSession}, "Running on node2"},
		"the pod was removed, a process stays": {
			changes{begun, noPod, noSession, func(v *View) { v.MayRun = true }},
			"again in 1s",
		},
		"the guest has just left this node": {
			changes{func(v *View) { v.Session = ownedView(migratingTo).Session; v.Session.Pod = otherUID }}, "",
		},
		"the guest had left this node": {
			changes{func(v *View) { v.Session = ownedView(hasMoved).Session; v.Session.Pod = otherUID }}, "end; start",
		},
		"the guest was just received": {changes{receivedAgo(time.Second / 4)}, "refresh; again in 750ms"},
		"nobody has let the guest go": {changes{receivedAgo(time.Minute)}, "refresh; again in 1s"},
		"its launcher has let it go": {
			changes{receivedAgo(time.Minute), letGo},
			"refresh; take over, paused false; again in 1s",
		},
		"it has, and it was paused": {
			changes{receivedAgo(time.Minute), letGo, func(v *View) {
				v.VMI.Status.Conditions = append(v.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
					Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue,
					Reason: vmistatus.ReasonPausedByUser,
				})
			}},
			"refresh; take over, paused true; again in 1s",
		},
		"the guest runs here": {
			changes{func(v *View) { v.Session.Seen.Guest = guestIn(launcherpb.Lifecycle_LIFECYCLE_RUNNING) }},
			"refresh; Running on node1 ; event Migrating; event Migrated",
		},
	} {
		t.Run(name, func(t *testing.T) { decides(t, expectedView(tc.change...), tc.want) })
	}
}

func TestNextLeft(t *testing.T) {
	away := func(v *View) { v.VMI.Status.NodeName = "node2" }
	elsewhere := func(v *View) { v.Elsewhere = true }
	failed := func(v *View) {
		v.Session.Seen.Guest.Migration.Phase = launcherpb.MigrationPhase_MIGRATION_PHASE_FAILED
	}
	for name, tc := range map[string]struct {
		change changes
		want   string
	}{
		"nobody followed it":                      {changes{noSession}, ""},
		"it did not migrate":                      {nil, "end"},
		"it still leaves":                         {changes{migratingTo, elsewhere}, ""},
		"it has left":                             {changes{hasMoved, elsewhere}, "end"},
		"its launcher is lost":                    {changes{migratingTo, lostSince(0, false), elsewhere}, "end"},
		"it stands still here, and runs there":    {changes{inHandoff, elsewhere}, "stop by 0s"},
		"it stands still here, and is nowhere":    {changes{inHandoff}, "end"},
		"it goes on here, and runs there":         {changes{migratingTo, failed, elsewhere}, "stop by 0s"},
		"it goes on here, and the VMI is no more": {changes{migratingTo, failed}, "end"},
	} {
		t.Run(name, func(t *testing.T) {
			decides(t, ownedView(append(slices.Clip(tc.change), away)...), tc.want)
			decides(t, ownedView(append(slices.Clip(tc.change), func(v *View) { v.VMI = nil })...), tc.want)
		})
	}
}

func TestReport(t *testing.T) {
	account := func(remaining, iteration uint64) *launcherpb.Migration {
		return &launcherpb.Migration{
			Uid: "m", Phase: launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING,
			Progress: &launcherpb.MigrationProgress{
				DataTotal: 1 << 30, DataRemaining: remaining, Iteration: iteration, Bandwidth: 1 << 20,
				DirtyRate: 1 << 30,
			},
		}
	}
	s := &Following{}
	s.Seen.Guest = &launcherpb.GuestState{Migration: account(1<<29, 1)}
	first := s.report(passTime)
	if first == nil || first.uid != "m" || first.annotation == "" || first.doubt != "" {
		t.Fatalf("at first: %+v", first)
	}
	s.Reported = reported{uid: "m", at: passTime, text: first.text}
	if again := s.report(passTime.Add(time.Hour)); again != nil {
		t.Errorf("without news: %+v", again)
	}
	s.Seen.Guest.Migration = account(1<<28, doubtAfter)
	soon := s.report(passTime.Add(reportEvery / 2))
	if soon == nil || soon.text != "" || !strings.Contains(soon.doubt, "faster (1024 MiB/s)") {
		t.Errorf("too soon, and it does not converge: %+v", soon)
	}
	s.Reported.warned = true
	if later := s.report(passTime.Add(reportEvery)); later == nil || later.text == first.text || later.doubt != "" {
		t.Errorf("later: %+v", later)
	}
	s.Seen.Guest.Migration.Phase = launcherpb.MigrationPhase_MIGRATION_PHASE_COMPLETED
	if done := s.report(passTime); done == nil || done.text == "" {
		t.Errorf("the end: %+v", done)
	}
	s.Seen.Guest.Migration.Phase = launcherpb.MigrationPhase_MIGRATION_PHASE_FAILED
	if failed := s.report(passTime.Add(time.Hour)); failed != nil {
		t.Errorf("it failed: %+v", failed)
	}
	if nobody := (*Following)(nil).report(passTime); nobody != nil {
		t.Errorf("no session: %+v", nobody)
	}
}
