package resizecontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// vmi runs with a socket and 256Mi, and has room for four and 1Gi. spec and status are changed by what is given.
func guest(t *testing.T, text string) *v1.VirtualMachineInstance {
	t.Helper()
	out := &v1.VirtualMachineInstance{}
	for _, text := range []string{`
metadata: {name: demo, namespace: default, uid: u}
spec: {domain: {devices: {}, cpu: {sockets: 1, maxSockets: 4}, memory: {guest: 256Mi, maxGuest: 1Gi}}}
status:
  phase: Running
  nodeName: node1
  currentCPUTopology: {sockets: 1, cores: 1, threads: 1}
  memory: {guestAtBoot: 256Mi, guestCurrent: 256Mi, guestRequested: 256Mi}
`, text} {
		if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	return out
}

func pod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	out := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte("metadata: {name: p, uid: p}\n"+text), out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	out.Spec.NodeName = "node1"
	return out
}

func requirements(t *testing.T, text string) corev1.ResourceRequirements {
	t.Helper()
	var out corev1.ResourceRequirements
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// container is a pod's only one, with what it requests and has.
func containerOf(requests, has string) string {
	return "spec: {containers: [{name: compute, resources: {requests: " + requests + "}}]}\n" +
		"status: {containerStatuses: [{name: compute, ready: true, restartCount: 0, image: i, " +
		"imageID: i, resources: {requests: " + has + "}}], conditions: ["
}

const small, large = "{cpu: 100m, memory: 350Mi}", "{cpu: 200m, memory: 610Mi}"

func TestNext(t *testing.T) {
	const (
		grown = "spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4}, " +
			"memory: {guest: 512Mi, maxGuest: 1Gi}}}\n"
		migratable = "{type: LiveMigratable, status: 'True'}"
		stuck      = "{type: LiveMigratable, status: 'False', reason: DisksNotLiveMigratable, message: volume}"
	)
	infeasible := containerOf(large, small) +
		"{type: PodResizePending, status: 'True', reason: Infeasible, message: too little}]}"
	deferred := func(since time.Duration) string {
		return containerOf(large, small) +
			"{type: PodResizePending, status: 'True', reason: Deferred, message: busy, lastTransitionTime: '" +
			now.Add(-since).Format(time.RFC3339) + "'}]}"
	}
	failed := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.WorkloadUpdateMigrationAnnotation: ""}},
		Status: v1.VirtualMachineInstanceMigrationStatus{
			Phase: v1.MigrationFailed,
			PhaseTransitionTimestamps: []v1.VirtualMachineInstanceMigrationPhaseTransitionTimestamp{
				{Phase: v1.MigrationFailed, PhaseTransitionTimestamp: metav1.NewTime(now.Add(-15 * time.Second))},
			},
		},
	}
	// One that failed a while ago, after others that did, and after one that succeeded.
	row := func(succeeded bool) (out []*v1.VirtualMachineInstanceMigration) {
		for n, ago := range []time.Duration{50 * time.Minute, 45 * time.Minute, 40 * time.Minute, time.Minute} {
			m := failed.DeepCopy()
			m.CreationTimestamp = metav1.NewTime(now.Add(-ago))
			m.Status.PhaseTransitionTimestamps[0].PhaseTransitionTimestamp = m.CreationTimestamp
			if n == 2 && succeeded {
				m.Status.Phase = v1.MigrationSucceeded
			}
			out = append(out, m)
		}
		return out
	}
	status := func(conditions string) string {
		return "status: {phase: Running, nodeName: node1, currentCPUTopology: {sockets: 1}, " +
			"memory: {guestAtBoot: 256Mi, guestCurrent: 256Mi, guestRequested: 256Mi}, conditions: [" + conditions +
			"]}"
	}
	for name, tc := range map[string]struct {
		vmi, pod   string
		fit        string
		migrations []*v1.VirtualMachineInstanceMigration
		// cpu and memory are the reasons of the conditions, message the beginning of the message.
		cpu, memory, message string
		resize, migrate      bool
		again                time.Duration
	}{
		"nothing to do": {vmi: ``, pod: containerOf(small, small) + "]}"},
		"is to grow": {
			vmi: grown, pod: containerOf(small, small) + "]}", cpu: sizing.ReasonPodResizing,
			memory: sizing.ReasonPodResizing, resize: true,
		},
		"only CPUs": {
			vmi: "spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4}}}",
			pod: containerOf(small, small) + "]}", cpu: sizing.ReasonPodResizing, resize: true,
		},
		"asked for": {
			vmi: grown, pod: containerOf(large, small) + "]}", cpu: sizing.ReasonPodResizing,
			memory: sizing.ReasonPodResizing, again: again,
		},
		"under way": {
			vmi: grown, pod: containerOf(large, small) + "{type: PodResizeInProgress, status: 'True', message: slow}]}",
			cpu: sizing.ReasonPodResizing, memory: sizing.ReasonPodResizing,
			message: "Pod p is being given what the guest is to have. The kubelet says: slow", again: again,
		},
		"has room": {
			vmi: grown, pod: containerOf(large, large) + "]}", cpu: sizing.ReasonPodResized,
			memory: sizing.ReasonPodResized,
		},
		"had room before": {
			vmi: grown, pod: containerOf("{cpu: 1, memory: 1Gi}", "{cpu: 1, memory: 1Gi}") + "]}",
			cpu: sizing.ReasonPodResized, memory: sizing.ReasonPodResized,
		},
		"no room just now": {
			vmi: grown + status(migratable), pod: deferred(3 * time.Second), cpu: sizing.ReasonPodResizing,
			memory: sizing.ReasonPodResizing, message: "Node node1 has no room just now: busy", again: 7 * time.Second,
		},
		"no room for long": {
			vmi: grown + status(migratable), pod: deferred(11 * time.Second), cpu: sizing.ReasonNoRoom,
			memory: sizing.ReasonNoRoom, migrate: true,
		},
		"never any room": {
			vmi: grown + status(migratable), pod: infeasible, cpu: sizing.ReasonNoRoom, memory: sizing.ReasonNoRoom,
			message: "Pod p cannot grow on node node1: too little. The guest moves", migrate: true,
		},
		"nor elsewhere": {
			vmi: grown + status(stuck), pod: infeasible, cpu: sizing.ReasonRestart, memory: sizing.ReasonRestart,
			message: "Pod p cannot grow on node node1: too little. Cannot migrate VMI, Reason: DisksNotLiveMigratable",
			again:   again,
		},
		"moves already": {
			vmi: grown + status(migratable), pod: infeasible, migrations: []*v1.VirtualMachineInstanceMigration{{}},
			cpu: sizing.ReasonNoRoom, memory: sizing.ReasonNoRoom,
		},
		"could not move": {
			vmi: grown + status(migratable), pod: infeasible, migrations: []*v1.VirtualMachineInstanceMigration{failed},
			cpu: sizing.ReasonNoRoom, memory: sizing.ReasonNoRoom, again: 5 * time.Second,
		},
		"could not move four times": {
			vmi: grown + status(migratable), pod: infeasible, migrations: row(false),
			cpu: sizing.ReasonNoRoom, memory: sizing.ReasonNoRoom, again: 100 * time.Second,
		},
		"could not move once after it moved": {
			vmi: grown + status(migratable), pod: infeasible, migrations: row(true),
			cpu: sizing.ReasonNoRoom, memory: sizing.ReasonNoRoom, migrate: true,
		},
		"the API says no": {
			vmi: grown +
				status(migratable+
					", {type: HotVCPUChange, status: 'True', reason: PodResizeInfeasible, "+
					"message: 'Pod p cannot grow on node node1: no. The guest moves'}"),
			pod: containerOf(small, small) + "]}", cpu: sizing.ReasonNoRoom, memory: sizing.ReasonNoRoom,
			message: "Pod p cannot grow on node node1: no. The guest moves", migrate: true,
		},
		"it says so, still": {
			vmi: grown +
				status(stuck+", {type: HotVCPUChange, status: 'True', reason: PodResizeInfeasible, message: no}"),
			pod: containerOf(small, small) + "]}", cpu: sizing.ReasonPodResizing, memory: sizing.ReasonPodResizing,
			resize: true,
		},
		"and cannot move": {
			vmi: grown + status(stuck+", {type: HotVCPUChange, status: 'True', reason: NotMigratable, message: no}"),
			pod: containerOf(small, small) + "]}", cpu: sizing.ReasonPodResizing, memory: sizing.ReasonPodResizing,
			resize: true,
		},
		"CPUs of its own": {
			vmi: "spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4, dedicatedCpuPlacement: true}}}\n" +
				status(migratable),
			pod: containerOf(small, small) + "]}", cpu: sizing.ReasonNoRoom, migrate: true,
		},
		"huge pages": {
			vmi: "spec: {domain: {devices: {}, memory: {guest: 512Mi, maxGuest: 1Gi, hugepages: {pageSize: 2Mi}}}}\n" +
				status(migratable),
			pod: containerOf(small, small) + "]}", memory: sizing.ReasonNoRoom, migrate: true,
		},
		"CPUs on such": {
			vmi: "spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4}, " +
				"memory: {hugepages: {pageSize: 2Mi}}}}\n" + status(migratable),
			pod: containerOf(small, small) + "]}", cpu: sizing.ReasonPodResizing, resize: true,
		},
		"on the move": {
			vmi: grown + "status: {phase: Running, migrationState: {sourceNode: node1}}",
			pod: containerOf(small, small) + "]}",
		},
		"not running": {vmi: grown + "status: {phase: Scheduled}", pod: containerOf(small, small) + "]}"},
		"done": {
			vmi: status("{type: HotMemoryChange, status: 'True', reason: PodResized}"),
			pod: containerOf(small, small) + "]}",
		},
		"done, and smaller": {
			vmi: status("{type: HotMemoryChange, status: 'True', reason: PodResized}"),
			pod: containerOf(large, large) + "]}", fit: small, resize: true,
		},
		"memory comes": {
			vmi: "spec: {domain: {devices: {}, memory: {guest: 512Mi, " +
				"maxGuest: 1Gi}}}\nstatus: {phase: Running, memory: {guestAtBoot: 256Mi, guestCurrent: 384Mi, " +
				"guestRequested: 512Mi}}",
			pod: containerOf(large, large) + "]}", memory: sizing.ReasonPodResized,
			message: "The guest has 384Mi of memory so far and is to have 512Mi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := View{
				VMI: guest(t, tc.vmi), Pod: pod(t, tc.pod), Migrations: tc.migrations, Now: now,
				Want: requirements(t, "requests: "+large), Fit: requirements(t, "requests: "+large),
			}
			if tc.fit != "" {
				view.Fit = requirements(t, "requests: "+tc.fit)
			}
			step := Next(view)
			reason := func(kind v1.VirtualMachineInstanceConditionType) string {
				vmi := &v1.VirtualMachineInstance{Status: step.Status}
				if c := sizing.Resizing(vmi, kind); c != nil {
					if !strings.HasPrefix(c.Message, tc.message) {
						t.Errorf("message %q, want %q", c.Message, tc.message)
					}
					return c.Reason
				}
				return ""
			}
			if cpu, memory := reason(cpus), reason(memory); cpu != tc.cpu || memory != tc.memory {
				t.Errorf("CPUs %q, memory %q; want %q, %q", cpu, memory, tc.cpu, tc.memory)
			}
			if (step.Resize != nil) != tc.resize || (step.Migrate != "") != tc.migrate ||
				step.RequeueAfter != tc.again {
				t.Errorf("resize %v, migrate %q, again %s; want %v, %v, %s", step.Resize, step.Migrate,
					step.RequeueAfter, tc.resize, tc.migrate, tc.again)
			}
			view.VMI.Status = step.Status
			if step.Resize == nil {
				if next := Next(view); len(next.Status.Conditions) != len(step.Status.Conditions) {
					t.Errorf("a second look: %+v", next.Status.Conditions)
				}
			}
		})
	}
}
