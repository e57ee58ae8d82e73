package vmi

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/virtkit/virtkit/pkg/names"
)

// fencing makes a pod's launcher end its guest 100 s after the last heartbeat.
func fencing(pod *corev1.Pod) {
	pod.Spec.Containers = []corev1.Container{{Name: names.ContainerCompute, Args: []string{"--name=x", "--fence-after=1m40s"}}}
}

func silentNode(name string, taints ...string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}},
	}
	for _, key := range taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return node
}

// A guest is given up when its launcher must have ended it, and not a moment before.
func TestExpiry(t *testing.T) {
	const needed = 111 * time.Second // 100 s, a hundredth, and the time to kill
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		node    *corev1.Node
		silence time.Duration
		want    v1.VirtualMachineInstancePhase
		again   time.Duration
	}{
		"just lost":             {testPod(running, fencing), silentNode("node01"), 0, v1.Unknown, needed / 4},
		"almost":                {testPod(running, fencing), silentNode("node01"), needed - time.Millisecond, v1.Unknown, time.Second},
		"for certain":           {testPod(running, fencing), silentNode("node01"), needed, v1.Failed, 0},
		"its launcher does not": {testPod(running), silentNode("node01"), time.Hour, v1.Unknown, 0},
		"another node":          {testPod(running, fencing), silentNode("node02"), time.Hour, v1.Unknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(View{VMI: testVMI(t, v1.Unknown), Pods: []*corev1.Pod{c.pod}, Node: c.node, Silence: c.silence, Now: now})
			if step.Status.Phase != c.want || step.RequeueAfter != c.again || len(step.RemovePods) > 0 {
				t.Errorf("phase %s, again after %s, removes %d pods", step.Status.Phase, step.RequeueAfter, len(step.RemovePods))
			}
		})
	}
	// A VMI that virt-handler writes is nobody's to give up.
	step := Next(View{VMI: testVMI(t, v1.Running), Pods: []*corev1.Pod{testPod(running, fencing)}, Node: silentNode("node01"), Silence: time.Hour, Now: now})
	if step.Status.Phase != v1.Running {
		t.Errorf("a guest that runs is %s", step.Status.Phase)
	}
	// The pod of the VMI that was given up makes room.
	for silence, want := range map[time.Duration]int{needed - 1: 0, needed: 1} {
		step := Next(View{VMI: testVMI(t, v1.Failed, deleted), Pods: []*corev1.Pod{testPod(running, going, fencing)}, Node: silentNode("node01"), Silence: silence, Now: now})
		if len(step.RemovePods) != want || step.RemoveFinalizer {
			t.Errorf("after %s: %+v", silence, step)
		}
	}
}

// Silence counts between two answers of the API server, from the end of the first to the beginning of the second.
func TestSilence(t *testing.T) {
	var s silences
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct {
		beat            string
		asked, answered int
		want            time.Duration
	}{
		{"1", 0, 5, 0},
		{"1", 20, 29, 15 * time.Second},
		{"2", 30, 30, 0},
		{"2", 29, 31, 0},
		{"2", 60, 60, 30 * time.Second},
	} {
		if got := s.observe("node01", c.beat, at(c.asked), at(c.answered)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := s.observe("node02", "2", at(70), at(70)); got != 0 {
		t.Errorf("another node: %s", got)
	}
}

// Only guests that somebody starts again are ended.
func TestFenceAfter(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	owned := func(kind string) *v1.VirtualMachineInstance {
		vmi := testVMI(t, v1.Pending)
		yes := true
		vmi.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "vm", Controller: &yes}}
		return vmi
	}
	for _, c := range []struct {
		strategy v1.VirtualMachineRunStrategy
		vmi      *v1.VirtualMachineInstance
		want     time.Duration
	}{
		{v1.RunStrategyAlways, owned("VirtualMachine"), time.Minute},
		{v1.RunStrategyRerunOnFailure, owned("VirtualMachine"), time.Minute},
		{v1.RunStrategyManual, owned("VirtualMachine"), 0},
		{v1.RunStrategyOnce, owned("VirtualMachine"), 0},
		{v1.RunStrategyAlways, owned("VirtualMachineInstanceReplicaSet"), time.Minute},
		{v1.RunStrategyAlways, testVMI(t, v1.Pending), 0},
	} {
		vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: c.vmi.Namespace, Name: "vm"}, Spec: v1.VirtualMachineSpec{RunStrategy: &c.strategy}}
		from := fake.NewClientBuilder().WithScheme(scheme).WithObjects([]client.Object{vm}...).Build()
		if got, err := FenceAfter(t.Context(), from, c.vmi, time.Minute); err != nil || got != c.want {
			t.Errorf("%s, %v: %s, %v", c.strategy, c.vmi.OwnerReferences, got, err)
		}
		if got, err := FenceAfter(t.Context(), from, c.vmi, 0); err != nil || got != 0 {
			t.Errorf("not asked for: %s, %v", got, err)
		}
	}
}

// What the pod is given is what is read from it.
func TestFenceAfterOfPod(t *testing.T) {
	for _, want := range []time.Duration{0, 90 * time.Second} {
		pod := Pod(testVMI(t, v1.Pending), Facts{FenceAfter: want})
		if got := fenceAfter(pod); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Node Health Check's remediations: a taint that keeps pods away, or evicts them, says that fencing has begun, and not that it
// has ended. That is said by the taint out-of-service, or by the removal of the pods, or of the node.
func TestRemediation(t *testing.T) {
	const medik8s = "medik8s.io/remediation"
	for name, c := range map[string]struct {
		node *corev1.Node
		pods []*corev1.Pod
		want v1.VirtualMachineInstancePhase
	}{
		"it has begun":          {silentNode("node01", corev1.TaintNodeUnreachable, medik8s), []*corev1.Pod{testPod(running)}, v1.Unknown},
		"its pods are evicted":  {silentNode("node01", corev1.TaintNodeUnreachable, medik8s), []*corev1.Pod{testPod(running, going)}, v1.Unknown},
		"strategy taint":        {silentNode("node01", medik8s, corev1.TaintNodeOutOfService), []*corev1.Pod{testPod(running, going)}, v1.Failed},
		"machine deletion":      {nil, nil, v1.Failed},
		"the node is back soon": {&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: medik8s}}}}, []*corev1.Pod{testPod(running)}, v1.Unknown},
	} {
		step := Next(View{VMI: testVMI(t, v1.Unknown), Pods: c.pods, Node: c.node, DeadSince: now.Add(-time.Minute), Now: now})
		if step.Status.Phase != c.want {
			t.Errorf("%s: %s", name, step.Status.Phase)
		}
	}
}
