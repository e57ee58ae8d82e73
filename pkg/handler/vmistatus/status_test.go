package vmistatus

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// vmiOf reads a VMI from YAML.
func vmiOf(t *testing.T, text string) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	if err := yaml.UnmarshalStrict([]byte(text), vmi); err != nil {
		t.Fatal(err)
	}
	return vmi
}

const scheduled = `
metadata: {namespace: ns, name: demo}
spec:
  domain: {cpu: {cores: 2}, devices: {interfaces: [{name: default, masquerade: {}}]}}
  networks: [{name: default, pod: {}}]
  volumes:
  - {name: root, containerDisk: {image: d}}
  - {name: data, persistentVolumeClaim: {claimName: claim}}
status:
  phase: Scheduled
  nodeName: node1
  activePods: {pod1: node1}
  conditions: [{type: DataVolumesReady, status: "False"}]
  phaseTransitionTimestamps: [{phase: Scheduled, phaseTransitionTimestamp: "2026-01-02T03:04:00Z"}]
  volumeStatus:
  - name: data
    target: ""
    persistentVolumeClaimInfo: {claimName: claim, accessModes: [ReadWriteMany]}
`

func plan() *network.Plan {
	return &network.Plan{Interfaces: []network.Interface{{
		Name: "default", Binding: network.Masquerade, PodLink: "eth0", MAC: "02:00:00:00:00:07",
		PodIPs: []netip.Addr{netip.MustParseAddr("10.42.1.5")},
	}}}
}

func guest(change func(*launcherpb.GuestState)) *launcherpb.GuestState {
	g := &launcherpb.GuestState{
		Lifecycle: launcherpb.Lifecycle_LIFECYCLE_RUNNING, Machine: "pc-q35-10.0",
		MemoryAtBoot: 256 << 20, MemoryCurrent: 200 << 20,
		VolumeTargets: map[string]string{"root": "vda", "data": "vdb"},
	}
	if change != nil {
		change(g)
	}
	return g
}

func pod() *corev1.Pod {
	return &corev1.Pod{
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "compute", Image: "launcher:1"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}
}

func TestNextGolden(t *testing.T) {
	for _, test := range []struct {
		name string
		in   Input
	}{
		{"running", Input{VMI: vmiOf(t, scheduled), Pod: pod(), Guest: guest(nil), Plan: plan()}},
		{
			"emulated-with-agent",
			Input{VMI: vmiOf(t, scheduled), Pod: pod(), Plan: plan(), Guest: guest(func(g *launcherpb.GuestState) {
				g.Emulation, g.AgentConnected, g.FsfreezeStatus = true, true, "thawed"
				g.GuestOsJson = []byte(`{"name":"Debian GNU/Linux","id":"debian","prettyName":"Debian\u001b[31m 13"}`)
				g.InterfacesJson = []byte(`[{"interfaceName":"lo","ipAddresses":["127.0.0.1"]},
				{"interfaceName":"enp1s0","mac":"02:00:00:00:00:07","ipAddresses":["10.0.2.2"]},
				{"interfaceName":"docker0","mac":"02:42:00:00:00:01","ipAddresses":["172.17.0.1","nonsense"]}]`)
			})},
		},
		{
			"paused-io-error",
			Input{VMI: vmiOf(t, scheduled), Pod: pod(), Plan: plan(), Guest: guest(func(g *launcherpb.GuestState) {
				g.Lifecycle, g.Reason = launcherpb.Lifecycle_LIFECYCLE_PAUSED, "ioerror"
			})},
		},
		{
			"crashed",
			Input{VMI: vmiOf(t, scheduled), Pod: pod(), Plan: plan(), Guest: guest(func(g *launcherpb.GuestState) {
				g.Lifecycle, g.Reason = launcherpb.Lifecycle_LIFECYCLE_CRASHED, "panicked"
			})},
		},
		{
			"not-started",
			Input{VMI: vmiOf(t, scheduled), Pod: pod(), Failure: &Failure{Message: "volume root is in use"}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.in.Now = now
			got, err := yaml.Marshal(Next(test.in))
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", test.name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("status differs from %s (-want +got), -update to accept:\n%s", golden, diff)
			}
			again := test.in
			again.VMI = test.in.VMI.DeepCopy()
			again.VMI.Status = Next(test.in)
			again.Now = now.Add(time.Hour)
			if diff := cmp.Diff(again.VMI.Status, Next(again)); diff != "" {
				t.Errorf("the same again changes the status:\n%s", diff)
			}
		})
	}
}

func TestPhase(t *testing.T) {
	deleted := vmiOf(t, scheduled)
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	unknown := vmiOf(t, scheduled)
	unknown.Status.Phase = v1.Unknown
	wasRunning := unknown.DeepCopy()
	wasRunning.Status.PhaseTransitionTimestamps = append(wasRunning.Status.PhaseTransitionTimestamps,
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: v1.Running},
		v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: v1.Unknown})
	none := guest(func(g *launcherpb.GuestState) { g.Lifecycle = launcherpb.Lifecycle_LIFECYCLE_NONE })
	shuttingDown := guest(func(g *launcherpb.GuestState) { g.Lifecycle = launcherpb.Lifecycle_LIFECYCLE_SHUTTING_DOWN })
	off := guest(func(g *launcherpb.GuestState) { g.Lifecycle = launcherpb.Lifecycle_LIFECYCLE_SHUTOFF })
	evicted := guest(func(g *launcherpb.GuestState) {
		g.Lifecycle, g.Reason = launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, names.ReasonTerminated
	})
	evictedPod := pod()
	evictedPod.Status.Phase = corev1.PodSucceeded
	evictedPod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: names.ContainerCompute, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{
				Message: `{"lifecycle":"LIFECYCLE_DESTROYED","reason":"terminated"}`,
			},
		}},
	}
	failedPod := pod()
	failedPod.Status.Phase = corev1.PodFailed
	for _, test := range []struct {
		name   string
		in     Input
		want   v1.VirtualMachineInstancePhase
		reason string
	}{
		{"nothing known", Input{}, v1.Scheduled, ""},
		{"no domain yet", Input{Guest: none}, v1.Scheduled, ""},
		{"failure to be tried again", Input{Guest: none, Failure: &Failure{Message: "m"}}, v1.Scheduled, ""},
		{
			"final failure",
			Input{Guest: none, Failure: &Failure{Message: "m", Final: true}},
			v1.Failed,
			ReasonCannotStart,
		},
		{"shutting down", Input{Guest: shuttingDown}, v1.Running, ""},
		{"the guest's word counts more than the pod's", Input{Guest: off, Pod: failedPod}, v1.Succeeded, ""},
		{"ended with its pod", Input{Guest: evicted}, v1.Failed, ReasonPodEnded},
		{"ended with its pod, as wished", Input{VMI: deleted, Guest: evicted}, v1.Succeeded, ""},
		{"ended with its pod, unseen", Input{Pod: evictedPod}, v1.Failed, ReasonPodEnded},
		{"ended with its pod, unseen, as wished", Input{VMI: deleted, Pod: evictedPod}, v1.Succeeded, ""},
		{"pod failed", Input{Guest: none, Pod: failedPod}, v1.Failed, ReasonLauncherError},
		{"gone", Input{Gone: "x"}, v1.Failed, ReasonLauncherGone},
		{"gone as wished", Input{VMI: deleted, Gone: "x"}, v1.Succeeded, ""},
		{"never started", Input{VMI: deleted, Guest: none, NeverStarted: true}, v1.Succeeded, ""},
		{"back from unknown, running", Input{VMI: unknown, Guest: guest(nil)}, v1.Running, ""},
		{"back from unknown, not attached", Input{VMI: wasRunning}, v1.Running, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.in.VMI == nil {
				test.in.VMI = vmiOf(t, scheduled)
			}
			test.in.Now = now
			got := Next(test.in)
			if got.Phase != test.want || got.Reason != test.reason {
				t.Errorf("phase %s, reason %q; want %s, %q", got.Phase, got.Reason, test.want, test.reason)
			}
		})
	}
}

func TestFinalStays(t *testing.T) {
	vmi := vmiOf(t, scheduled)
	vmi.Status.Phase = v1.Succeeded
	if diff := cmp.Diff(vmi.Status, Next(Input{VMI: vmi, Guest: guest(nil), Now: now})); diff != "" {
		t.Errorf("changed:\n%s", diff)
	}
}

func TestMigratable(t *testing.T) {
	for _, test := range []struct {
		name, old, replacement string
		live, storage          string // reasons, empty for True
		method                 v1.VirtualMachineInstanceMigrationMethod
	}{
		{"shared claim", "", "", "", "", v1.BlockMigration},
		{ // no disk has it that could be copied
			"claim of one node", "ReadWriteMany", "ReadWriteOnce", "DisksNotLiveMigratable", "DisksNotLiveMigratable",
			v1.BlockMigration,
		},
		{
			"ephemeral",
			"  - {name: root, containerDisk: {image: d}}\n  - {name: data, persistentVolumeClaim: {claimName: claim}}",
			"  - {name: data, ephemeral: {persistentVolumeClaim: {claimName: claim}}}", "", "", v1.BlockMigration,
		},
		{
			"host disk", "- {name: root, containerDisk: {image: d}}",
			"- {name: root, hostDisk: {path: /d/a.img, type: Disk}}", "DisksNotLiveMigratable",
			"DisksNotLiveMigratable", v1.BlockMigration,
		},
		{
			"shared host disk", "- {name: root, containerDisk: {image: d}}",
			"- {name: root, hostDisk: {path: /d/a.img, type: Disk, shared: true}}", "", "", v1.LiveMigration,
		},
		{"only shared claims", "  - {name: root, containerDisk: {image: d}}\n", "", "", "", v1.LiveMigration},
		{
			"bridge", "masquerade", "bridge", "InterfaceNotLiveMigratable", "InterfaceNotLiveMigratable",
			v1.BlockMigration,
		},
		{
			"node selector", "spec:", "spec:\n  nodeSelector: {kubernetes.io/hostname: node1}", "NotMigratable",
			"NotMigratable", v1.BlockMigration,
		},
		{
			"affinity", "spec:", `spec:
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]}]}}}`,
			"NotMigratable", "NotMigratable", v1.BlockMigration,
		},
		{
			"affinity to two", "spec:", `spec:
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
    {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1, node2]}]}]}}}`,
			"", "", v1.BlockMigration,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			vmi := vmiOf(t, strings.Replace(scheduled, test.old, test.replacement, 1))
			got := Next(Input{VMI: vmi, Guest: guest(nil), Plan: plan(), Now: now})
			for kind, want := range map[v1.VirtualMachineInstanceConditionType]string{
				v1.VirtualMachineInstanceIsMigratable:            test.live,
				v1.VirtualMachineInstanceIsStorageLiveMigratable: test.storage,
			} {
				for _, c := range got.Conditions {
					if c.Type == kind && (c.Reason != want || (c.Status == corev1.ConditionTrue) != (want == "")) {
						t.Errorf("%s is %s, %q: %s; want reason %q", kind, c.Status, c.Reason, c.Message, want)
					}
				}
			}
			if got.MigrationMethod != test.method {
				t.Errorf("method %s, want %s", got.MigrationMethod, test.method)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	reasons := func(old, next v1.VirtualMachineInstanceStatus) string {
		var out []string
		for _, e := range Events(old, next) {
			out = append(out, e.Reason)
		}
		return strings.Join(out, " ")
	}
	with := func(phase v1.VirtualMachineInstancePhase, conditions ...v1.VirtualMachineInstanceCondition,
	) v1.VirtualMachineInstanceStatus {
		return v1.VirtualMachineInstanceStatus{Phase: phase, Conditions: conditions}
	}
	paused := v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstancePaused, Status: corev1.ConditionTrue}
	unsynced := func(m string) v1.VirtualMachineInstanceCondition {
		return v1.VirtualMachineInstanceCondition{
			Type: v1.VirtualMachineInstanceSynchronized, Status: corev1.ConditionFalse, Message: m,
		}
	}
	for _, test := range []struct {
		old, next v1.VirtualMachineInstanceStatus
		want      string
	}{
		{with(v1.Scheduled), with(v1.Running), "Created Started"},
		{with(v1.Unknown), with(v1.Running), ""},
		{with(v1.Running), with(v1.Running), ""},
		{with(v1.Running), with(v1.Running, paused), "Paused"},
		{with(v1.Running, paused), with(v1.Running), "Unpaused"},
		{with(v1.Running, paused), with(v1.Succeeded), "Stopped"},
		{with(v1.Running), with(v1.Failed), "Stopped"},
		{with(v1.Scheduled), with(v1.Scheduled, unsynced("a")), "SyncFailed"},
		{with(v1.Scheduled, unsynced("a")), with(v1.Scheduled, unsynced("a")), ""},
		{with(v1.Scheduled, unsynced("a")), with(v1.Scheduled, unsynced("b")), "SyncFailed"},
		{with(v1.Scheduled, unsynced("a")), with(v1.Running), "Created Started"},
	} {
		if got := reasons(test.old, test.next); got != test.want {
			t.Errorf("%v → %v: %q, want %q", test.old, test.next, got, test.want)
		}
	}
}

func TestHostileGuest(t *testing.T) {
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf(`{"interfaceName":"e%d","mac":"02:00:00:00:00:%02x","ipAddresses":["10.0.0.1"]}`, i,
			i%256)
	}
	g := guest(func(g *launcherpb.GuestState) {
		g.AgentConnected = true
		g.Machine = strings.Repeat("m", 1<<20)
		g.GuestOsJson = []byte(`{"name":"` + strings.Repeat("ä", 10000) + `"}`)
		g.InterfacesJson = []byte("[" + strings.Join(many[:3000], ",") + "]")
	})
	got := Next(Input{VMI: vmiOf(t, scheduled), Guest: g, Plan: plan(), Now: now})
	if n := len(got.Interfaces); n > maxInterfaces+1 {
		t.Errorf("%d interfaces", n)
	}
	if n := len(got.Machine.Type); n > maxText {
		t.Errorf("machine of %d bytes", n)
	}
	if n := len(got.GuestOSInfo.Name); n > maxText || n < maxText-1 {
		t.Errorf("name of %d bytes", n)
	}
	for _, broken := range []string{"", "{", "null", `"x"`, "[1]", strings.Repeat("[", 1<<20)} {
		g.GuestOsJson, g.InterfacesJson = []byte(broken), []byte(broken)
		got := Next(Input{VMI: vmiOf(t, scheduled), Guest: g, Plan: plan(), Now: now})
		if got.GuestOSInfo != (v1.VirtualMachineInstanceGuestOSInfo{}) || len(got.Interfaces) != 1 {
			t.Errorf("%.10q gave %+v, %+v", broken, got.GuestOSInfo, got.Interfaces)
		}
	}
}

func FuzzGuest(f *testing.F) {
	f.Add([]byte(`{"name":"x"}`), []byte(`[{"mac":"a"}]`), `{"lifecycle":"LIFECYCLE_CRASHED"}`)
	f.Fuzz(func(t *testing.T, os, interfaces []byte, end string) {
		if len(guestOS(os).Name) > maxText || len(agentInterfaces(interfaces)) > maxInterfaces ||
			len(lastWord(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: terminated(end)}}).Reason) > maxText {
			t.Error("a limit was passed")
		}
	})
}
