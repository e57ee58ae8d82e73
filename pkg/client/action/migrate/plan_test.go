package migrate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

func read[T any](t *testing.T, text string) T {
	t.Helper()
	var out T
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

const demo = `
metadata: {namespace: default, name: demo, labels: {app: web}}
spec:
  domain: {memory: {guest: 1Gi}}
  volumes:
  - {name: root, containerDisk: {image: x}}
  - {name: data, persistentVolumeClaim: {claimName: d}}
  - {name: scratch, emptyDisk: {capacity: 2Gi}}
  - {name: seed, cloudInitNoCloud: {userData: x}}
status: {phase: Running, nodeName: node1}
`

func node(t *testing.T, name, rest string) corev1.Node {
	n := read[corev1.Node](t, rest)
	n.Name = name
	if n.Labels == nil {
		n.Labels = map[string]string{v1.NodeSchedulable: "true"}
	}
	return n
}

func TestPlan(t *testing.T) {
	nodes := []corev1.Node{
		node(t, "node1", "{}"),
		node(t, "node3", "spec: {unschedulable: true, taints: [{key: gpu, effect: NoSchedule}]}"),
		node(t, "node2", "{}"),
		node(t, "node4", "metadata: {labels: {a: b}}"),
	}
	p := NewPlan(Facts{
		VMI: new(read[v1.VirtualMachineInstance](t, demo)), Nodes: nodes,
		Policies: []v1alpha1.MigrationPolicy{
			read[v1alpha1.MigrationPolicy](t,
				"{metadata: {name: fast}, spec: {selectors: {virtualMachineInstanceSelector: {app: "+
					"web}}, allowPostCopy: true}}"),
		},
	})
	want := []Node{
		{Name: "node2", Fits: true, Reasons: []string{}},
		{Name: "node3", Reasons: []string{"it is cordoned", "the VM does not tolerate its taint gpu:NoSchedule"}},
		{
			Name:    "node4",
			Reasons: []string{"it takes no VMs: virt-handler does not run there, or has not said so (virtctl doctor)"},
		},
	}
	if diff := cmp.Diff(want, p.Nodes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Disk{
		{Volume: "root", How: Copied},
		{Volume: "data", How: Shared},
		{Volume: "scratch", How: Copied, Bytes: 2 << 30},
		{Volume: "seed", How: Copied},
	}, p.Disks); diff != "" {
		t.Error(diff)
	}
	if !p.Possible || p.Policy != "fast" || !*p.Configuration.AllowPostCopy || p.MemoryBytes != 1<<30 ||
		p.DiskBytes != 2<<30 {
		t.Errorf("%+v", p)
	}
	if diff := cmp.Diff(p, p.DeepCopyObject()); diff != "" {
		t.Error(diff)
	}
}

func TestPlanObstacles(t *testing.T) {
	running := func(name, vmi, phase string) v1.VirtualMachineInstanceMigration {
		return read[v1.VirtualMachineInstanceMigration](t,
			"{metadata: {namespace: default, name: "+name+"}, spec: {vmiName: "+vmi+"}, status: {phase: "+phase+"}}")
	}
	away := []v1.VirtualMachineInstance{
		read[v1.VirtualMachineInstance](t, "{metadata: {namespace: default, name: a}, status: {nodeName: node1}}"),
		read[v1.VirtualMachineInstance](t, "{metadata: {namespace: default, name: b}, status: {nodeName: node1}}"),
	}
	for name, tc := range map[string]struct {
		change func(*Facts)
		want   string
	}{
		"nothing":         {func(*Facts) {}, ""},
		"no other node":   {func(f *Facts) { f.Nodes = f.Nodes[:1] }, "no node can take it"},
		"nodes not read":  {func(f *Facts) { f.Nodes, f.Unread = nil, []string{"nodes"} }, ""},
		"to where it is":  {func(f *Facts) { f.To = "node1" }, "it is on node node1 already"},
		"to nowhere":      {func(f *Facts) { f.To = "node9" }, `nodes "node9" not found`},
		"a missing label": {func(f *Facts) { f.NodeSelector = map[string]string{"zone": "a"} }, "no node can take it"},
		"affinity": {
			func(f *Facts) { f.VMI.Spec.Affinity = affinity(t, "{key: kubernetes.io/hostname, operator: Exists}") },
			"no node can take it",
		},
		"affinity met": {func(f *Facts) {
			f.VMI.Spec.Affinity = affinity(t, "{key: kubernetes.io/hostname, operator: DoesNotExist}")
		}, ""},
		"not running": {func(f *Facts) { f.VMI.Status.Phase = v1.Scheduling }, "the guest does not run"},
		"not migratable": {func(f *Facts) {
			f.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{
				{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse, Message: "a claim"},
			}
		}, "a claim"},
		"its disks wait for a claim": {func(f *Facts) {
			f.VMI.Status.VolumeStatus = []v1.VolumeStatus{{
				Name: "data", Size: 1 << 20, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "was"},
			}}
			f.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{
				{
					Type: volumemigration.Condition, Status: corev1.ConditionTrue,
					Reason: volumemigration.ReasonWaiting, Message: "claim d is too small",
				},
				{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
			}
			if d := NewPlan(*f).Disks[1]; d.How != Copied || d.Bytes != 1<<20 {
				t.Errorf("the disk is %+v", d)
			}
		}, "claim d is too small"},
		"its own": {
			func(f *Facts) { f.Migrations = append(f.Migrations, running("m", "demo", "Pending")) },
			"wait: migration m of the same guest is under way",
		},
		"away": {func(f *Facts) {
			f.Instances = away
			f.Migrations = []v1.VirtualMachineInstanceMigration{
				running("m", "a", "Running"), running("n", "b", "Scheduling"), running("o", "c", "Pending"),
			}
		}, "wait: 2 migrations run away from node node1, of 2 at a time (parallelOutboundMigrationsPerNode)"},
		"over and to begin": {func(f *Facts) {
			f.Instances = away
			f.Migrations = []v1.VirtualMachineInstanceMigration{
				running("m", "a", "Succeeded"), running("n", "b", "Running"),
			}
		}, ""},
		"cluster": {func(f *Facts) {
			f.KubeVirt = new(read[v1.KubeVirt](t,
				"{spec: {configuration: {migrations: {parallelMigrationsPerCluster: 1}}}}"))
			f.Migrations = []v1.VirtualMachineInstanceMigration{running("m", "z", "Running")}
		}, "wait: 1 migrations run in the cluster, of 1 at a time (parallelMigrationsPerCluster)"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Facts{
				VMI:   new(read[v1.VirtualMachineInstance](t, demo)),
				Nodes: []corev1.Node{node(t, "node1", "{}"), node(t, "node2", "{}")},
			}
			tc.change(&f)
			p := NewPlan(f)
			got := strings.Join(p.Obstacles, "; ")
			if len(p.Waits) > 0 {
				got += "wait: " + strings.Join(p.Waits, "; ")
			}
			if got != tc.want || p.Possible != (len(p.Obstacles) == 0) {
				t.Errorf("got  %q (%v)\nwant %q", got, p.Possible, tc.want)
			}
		})
	}
}

func affinity(t *testing.T, term string) *corev1.Affinity {
	return new(read[corev1.Affinity](t,
		"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: ["+term+
			"]}]}}"))
}

func TestTolerates(t *testing.T) {
	taint := corev1.Taint{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	numeric := func(key string, operator corev1.TolerationOperator, value string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: operator, Value: value}
	}
	for _, tc := range []struct {
		t    corev1.Toleration
		want bool
	}{
		{corev1.Toleration{}, false},
		{numeric("level", corev1.TolerationOpGt, "3"), false},
		{numeric("gpu", corev1.TolerationOpGt, "3"), false}, // of a taint that is no number
		{corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: "gpu", Value: "a"}, true},
		{corev1.Toleration{Key: "gpu", Value: "b"}, false},
		{corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}, false},
		{corev1.Toleration{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoExecute}, false},
	} {
		if got := tolerates(&tc.t, &taint); got != tc.want {
			t.Errorf("%+v: %v", tc.t, got)
		}
	}
	level := corev1.Taint{Key: "level", Value: "5", Effect: corev1.TaintEffectNoSchedule}
	for operator, want := range map[corev1.TolerationOperator]bool{
		corev1.TolerationOpLt: false, corev1.TolerationOpGt: true, corev1.TolerationOpEqual: false,
	} {
		if got := tolerates(new(numeric("level", operator, "3")), &level); got != want {
			t.Errorf("%s 3 of 5: %v", operator, got)
		}
	}
}

func TestExcluded(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "one", Labels: map[string]string{"zone": "a", "cores": "8"},
	}}
	const no = "the VM's node affinity excludes it"
	for terms, want := range map[string]string{
		"{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}":                                       "",
		"{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}":                                       no,
		"{matchExpressions: [{key: cores, operator: Gt, values: [\"4\"]}]}":                                     "",
		"{matchExpressions: [{key: cores, operator: Lt, values: [\"4\"]}]}":                                     no,
		"{matchExpressions: [{key: zone, operator: DoesNotExist}]}, {matchExpressions: []}":                     no,
		"{matchExpressions: [{key: x, operator: Exists}]}, {matchExpressions: [{key: zone, operator: Exists}]}": "",
		"{matchFields: [{key: metadata.name, operator: In, values: [one]}]}":                                    "",
		"{matchFields: [{key: metadata.name, operator: NotIn, values: [one]}]}":                                 no,
		"{matchExpressions: [{key: zone, operator: Like, values: [a]}]}": "the VM's node affinity cannot be read: " +
			`nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Like": supported values: ` +
			`"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`,
	} {
		of := read[corev1.Affinity](t,
			"nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: ["+terms+"]}}")
		if got := excluded(&of, node); got != want {
			t.Errorf("%s: %q, want %q", terms, got, want)
		}
	}
}

// With its disks a guest can move that they keep; the plan says what is made.
func TestPlanWithDisks(t *testing.T) {
	vmi := read[v1.VirtualMachineInstance](t, demo)
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "vm"}}
	vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, v1.VirtualMachineGroupVersionKind)}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", Size: 1 << 20, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "d", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}}
	claim := read[corev1.PersistentVolumeClaim](t, "{metadata: {name: d}, spec: {volumeMode: Block, storageClassName: "+
		"fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
	f := Facts{VMI: &vmi, Nodes: []corev1.Node{node(t, "node1", "{}"), node(t, "node2", "{}")}}
	if p := NewPlan(f); p.Possible || !p.WithDisksHelps {
		t.Errorf("without: %+v", p)
	}
	f.WithDisks = true
	f.Claims = map[string]*corev1.PersistentVolumeClaim{"d": &claim}
	p := NewPlan(f)
	want := Disk{Volume: "data", How: ToNewClaim, Bytes: 1 << 20, Claim: "d-m1", StorageClass: "fast", Size: "1Gi"}
	if !p.Possible || p.WithDisksHelps || p.Disks[1] != want ||
		p.Disks[1].Becomes() != "copied to new claim d-m1 of 1Gi, class fast" {
		t.Errorf("with: %+v", p)
	}
	f.Claims = nil
	if p := NewPlan(f); !p.Possible || p.Disks[1].Becomes() != "copied to a new claim" {
		t.Errorf("who may not read claims sees %+v", p.Disks)
	}
	vmi.OwnerReferences = nil
	if p := NewPlan(f); p.Possible || len(p.Obstacles) != 1 {
		t.Errorf("of no VM: %+v", p.Obstacles)
	}
}
