package inventory

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/metrics"
)

var update = flag.Bool("update", false, "write the golden file")

func parse[T any](t testing.TB, text string) *T {
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func example(t testing.TB) *Cluster {
	running := parse[v1.VirtualMachineInstance](t, `
metadata:
  namespace: prod
  name: db
  uid: u1
  ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: db, uid: m1, controller: true}]
  labels: {kubevirt.io/outdatedLauncherImage: ""}
  annotations: {vm.kubevirt.io/os: fedora, vm.kubevirt.io/workload: server, vm.kubevirt.io/flavor: large, kubevirt.io/cluster-instancetype-name: u1.large}
spec:
  evictionStrategy: LiveMigrate
  volumes: [{name: plugged, persistentVolumeClaim: {claimName: more, hotpluggable: true}}]
  networks: [{name: default, pod: {}}, {name: lan, multus: {networkName: prod/lan}}]
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces: [{name: default, masquerade: {}, model: virtio}, {name: lan, bridge: {}}]
status:
  phase: Running
  nodeName: node01
  activePods: {p0: "", p1: node01}
  machine: {type: pc-q35-10.0}
  guestOSInfo: {name: Fedora Linux, versionId: "42", kernelRelease: 6.14, machine: x86_64}
  interfaces: [{name: default, interfaceName: eth0, ipAddress: 10.0.0.1, ipAddresses: [10.0.0.1, "fd00::1"]}, {name: lan, mac: "02:00:00:00:00:01"}]
  migrationState: {migrationUid: m1, startTimestamp: "2026-01-01T00:00:00Z", endTimestamp: "2026-01-01T00:01:00Z", completed: true}
`)
	pending := parse[v1.VirtualMachineInstance](t, `
metadata: {namespace: prod, name: new, uid: u2}
spec: {domain: {memory: {guest: 128Mi}, devices: {}}}
status: {phase: Pending}
`)
	vm := parse[v1.VirtualMachine](t, `
metadata: {namespace: prod, name: db, uid: m1, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  instancetype: {name: u1.large}
  preference: {name: fedora}
  template:
    metadata: {annotations: {vm.kubevirt.io/os: fedora}}
    spec:
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, persistentVolumeClaim: {claimName: db-root}}, {name: data, dataVolume: {name: gone}}, {name: seed, emptyDisk: {capacity: 1Gi}}]
      domain:
        machine: {type: q35}
        memory: {guest: 1Gi}
        cpu: {cores: 2, sockets: 1, threads: 1}
        resources: {requests: {memory: 512Mi, cpu: 500m}, limits: {memory: 2Gi, cpu: "3"}}
        devices: {interfaces: [{name: default, masquerade: {}}]}
status:
  printableStatus: CrashLoopBackOff
  conditions: [{type: Ready, status: "False", lastTransitionTime: "2026-01-01T00:10:00Z"}]
`)
	stopped := parse[v1.VirtualMachine](t, `
metadata: {namespace: test, name: idle, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {runStrategy: Halted}
status: {printableStatus: Stopped}
`)
	migration := func(name, phase string) *v1.VirtualMachineInstanceMigration {
		return parse[v1.VirtualMachineInstanceMigration](t, fmt.Sprintf(`
metadata: {namespace: prod, name: %s, uid: %s}
spec: {vmiName: db}
status: {phase: %q}
`, name, name, phase))
	}
	snapshot := func(name, phase string) *v1beta1.VirtualMachineSnapshot {
		return parse[v1beta1.VirtualMachineSnapshot](t, fmt.Sprintf(`
metadata: {namespace: prod, name: %s}
spec: {source: {kind: VirtualMachine, name: db}}
status: {phase: %s, creationTime: "2026-01-01T00:20:00Z"}
`, name, phase))
	}
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		VolumeMode: new(corev1.PersistentVolumeBlock),
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")},
		},
	}}
	restore := func(name, status string) *v1beta1.VirtualMachineRestore {
		return parse[v1beta1.VirtualMachineRestore](t, fmt.Sprintf(`
metadata: {namespace: prod, name: %s, uid: %s-uid}
spec: {target: {kind: VirtualMachine, name: db}, virtualMachineSnapshotName: s1}
%s
`, name, name, status))
	}
	restored := func(name, vm string) *corev1.PersistentVolumeClaim {
		out := claim.DeepCopy()
		out.Namespace, out.Name = "prod", name
		if vm != "" {
			out.Labels = map[string]string{
				"restore.kubevirt.io/source-vm-name":      vm,
				"restore.kubevirt.io/source-vm-namespace": "prod",
			}
		}
		return out
	}
	launcher := func(uid, name, phase string) *corev1.Pod {
		return parse[corev1.Pod](t, fmt.Sprintf(`
metadata: {namespace: prod, name: %s, uid: %s, labels: {kubevirt.io: virt-launcher, kubevirt.io/created-by: u1}}
spec: {nodeName: node01, containers: []}
status: {phase: %s}
`, name, uid, phase))
	}
	node := func(schedulable string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.NodeSchedulable: schedulable}},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{"devices.kubevirt.io/kvm": resource.MustParse("1k")},
			},
		}
	}
	return &Cluster{
		Instances: []*v1.VirtualMachineInstance{running, pending},
		Machines:  []*v1.VirtualMachine{vm, stopped},
		Migrations: []*v1.VirtualMachineInstanceMigration{
			migration("m1", "Succeeded"), migration("m2", "Failed"), migration("m3", "Pending"),
			migration("m4", "PreparingTarget"), migration("m5", ""),
		},
		Snapshots: []*v1beta1.VirtualMachineSnapshot{snapshot("s1", "Succeeded"), snapshot("s2", "Failed")},
		Restores: []*v1beta1.VirtualMachineRestore{
			restore("new", ""), restore("done", "status: {complete: true}"),
			restore("bad", `status: {complete: false, conditions: [{type: Failure, status: "True"}]}`),
		},
		Claims: []*corev1.PersistentVolumeClaim{
			restored("r1", "db"), restored("r2", "db"), restored("r3", "web"), restored("db-root", ""),
		},
		Nodes: []*corev1.Node{node("true"), node("false")},
		Pods: launchers([]*corev1.Pod{
			launcher("theirs", "virt-launcher-db-00000", "Running"), // says that it is the VMI's, and is not
			launcher("p1", "virt-launcher-db-abcde", "Running"), launcher("p0", "virt-launcher-db-aaaaa", "Succeeded"),
		}),
		Claim: func(key types.NamespacedName) *corev1.PersistentVolumeClaim {
			if key.String() == "prod/db-root" {
				return claim
			}
			return nil
		},
		Config: config.Default(),
	}
}

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	w := metrics.NewWriter(&out)
	example(t).Write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range metrics.Families() {
		switch {
		case f.From != metrics.Controller, f.Type == metrics.Histogram, f == metrics.ControllerLeading,
			f == metrics.ControllerReady:
		case families[f.Name] == nil:
			t.Errorf("%s is not told", f.Name)
		}
	}
	got := out.Bytes()
	golden := filepath.Join("testdata", "cluster.prom")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, sorted(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sorted(got), want) {
		t.Errorf("differs from %s (-update writes it):\n%s", golden, sorted(got))
	}
}

// sorted sorts the series of each family: groups come out of maps.
func sorted(text []byte) []byte {
	all := slices.Collect(strings.Lines(string(text)))
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && !strings.HasPrefix(all[to], "#") {
			to++
		}
		slices.Sort(all[from:to])
		from = to + 1
	}
	return []byte(strings.Join(all, ""))
}

// Statuses of machines each have their group.
func TestGroups(t *testing.T) {
	for _, status := range []v1.VirtualMachinePrintableStatus{
		v1.VirtualMachineStatusStopped, v1.VirtualMachineStatusProvisioning, v1.VirtualMachineStatusStarting,
		v1.VirtualMachineStatusRunning,
		v1.VirtualMachineStatusPaused, v1.VirtualMachineStatusStopping, v1.VirtualMachineStatusTerminating,
		v1.VirtualMachineStatusCrashLoopBackOff,
		v1.VirtualMachineStatusMigrating, v1.VirtualMachineStatusUnknown, v1.VirtualMachineStatusUnschedulable,
		v1.VirtualMachineStatusErrImagePull,
		v1.VirtualMachineStatusImagePullBackOff, v1.VirtualMachineStatusPvcNotFound,
		v1.VirtualMachineStatusDataVolumeError,
		v1.VirtualMachineStatusWaitingForVolumeBinding, v1.VirtualMachineStatusWaitingForReceiver,
	} {
		if _, ok := groupOf[status]; !ok {
			t.Errorf("%s is in no group", status)
		}
	}
}

func TestTransitions(t *testing.T) {
	registry := prometheus.NewRegistry()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	transitions := NewTransitions(registry, func() time.Time { return now })
	handler := transitions.instances()
	vmi := func(phase v1.VirtualMachineInstancePhase, deleted bool) *v1.VirtualMachineInstance {
		out := &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{UID: "u", CreationTimestamp: metav1.NewTime(now.Truncate(time.Hour))},
		}
		out.Status.Phase = phase
		if deleted {
			out.DeletionTimestamp = new(metav1.NewTime(now))
		}
		return out
	}
	old := vmi(v1.Running, false)
	old.UID = "old"
	// was there before we looked: measured from its next phase on, and not from when it came to this one
	handler.OnAdd(old, true)
	now = now.Add(400 * time.Millisecond)
	handler.OnAdd(vmi("", false), false)
	step := func(after time.Duration, phase v1.VirtualMachineInstancePhase, deleted bool) {
		now = now.Add(after)
		handler.OnUpdate(nil, vmi(phase, deleted))
	}
	step(100*time.Millisecond, v1.Pending, false)
	step(200*time.Millisecond, v1.Scheduled, false)
	step(0, v1.Scheduled, false)
	step(700*time.Millisecond, v1.Running, false)
	step(5*time.Second, v1.Running, true)
	step(time.Second, v1.Succeeded, true)
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: vmi(v1.Succeeded, true)})
	if len(transitions.seen) != 1 {
		t.Errorf("%d are remembered", len(transitions.seen))
	}
	migrations := transitions.migrations()
	m := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{UID: "m", CreationTimestamp: metav1.NewTime(now)},
	}
	migrations.OnAdd(m, false)
	now = now.Add(2 * time.Second)
	m = m.DeepCopy()
	m.Status.Phase = v1.MigrationSucceeded
	migrations.OnUpdate(nil, m)

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			got[name] = float64(int(m.Histogram.GetSampleSum()*1000+.5)) / 1000
		}
	}
	want := map[string]float64{
		"kubevirt_vmi_phase_transition_time_from_creation_seconds Pending":             .1,
		"kubevirt_vmi_phase_transition_time_from_creation_seconds Scheduled":           .3,
		"kubevirt_vmi_phase_transition_time_from_creation_seconds Running":             1,
		"kubevirt_vmi_phase_transition_time_from_creation_seconds Succeeded":           7,
		"kubevirt_vmi_phase_transition_time_from_deletion_seconds Succeeded":           1,
		"kubevirt_vmi_phase_transition_time_seconds Pending Scheduled":                 .2,
		"kubevirt_vmi_phase_transition_time_seconds Scheduled Running":                 .7,
		"kubevirt_vmi_phase_transition_time_seconds Running Succeeded":                 6,
		"kubevirt_vmi_migration_phase_transition_time_from_creation_seconds Succeeded": 2,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// What a scrape costs at 8,000 machines: nothing may be kept for each.
func BenchmarkWrite(b *testing.B) {
	c := example(b)
	one, vm := c.Instances[0], c.Machines[0]
	c.Instances, c.Machines = nil, nil
	for i := range 8000 {
		instance, machine := one.DeepCopy(), vm.DeepCopy()
		instance.Name = fmt.Sprint("vm-", i)
		machine.Name = instance.Name
		c.Instances, c.Machines = append(c.Instances, instance), append(c.Machines, machine)
	}
	var size counter
	b.ReportAllocs()
	for b.Loop() {
		size = 0
		w := metrics.NewWriter(&size)
		c.Write(w)
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(size), "bytes/scrape")
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func TestEphemeralHotplug(t *testing.T) {
	plugged := func(names ...string) (out []v1.Volume) {
		for _, name := range names {
			out = append(out, v1.Volume{
				Name: name,
				VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true},
				},
			})
		}
		return append(out, v1.Volume{Name: "root"})
	}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm"}}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{
		Spec: v1.VirtualMachineInstanceSpec{Volumes: plugged("kept")},
	}
	owned := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "vm",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)},
		},
		Spec: v1.VirtualMachineInstanceSpec{Volumes: plugged("kept", "lost")},
	}
	alone := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "alone"},
		Spec:       v1.VirtualMachineInstanceSpec{Volumes: plugged("own")},
	}
	var out bytes.Buffer
	w := metrics.NewWriter(&out)
	(&Cluster{
		Instances: []*v1.VirtualMachineInstance{owned, alone}, Machines: []*v1.VirtualMachine{vm},
	}).writeEphemeral(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	const want = `kubevirt_vmi_contains_ephemeral_hotplug_volume{namespace="ns",name="vm",volume_name="lost"} 1`
	if got := out.String(); strings.Count(got, "kubevirt_vmi_contains_ephemeral_hotplug_volume{") != 1 ||
		!strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
}
