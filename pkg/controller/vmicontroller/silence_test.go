package vmicontroller

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/virtkit/virtkit/pkg/names"
)

// endsItself makes a pod's launcher end its guest 100 s after the last heartbeat.
func endsItself(pod *corev1.Pod) {
	pod.Spec.Containers = []corev1.Container{
		{Name: names.ContainerCompute, Args: []string{"--name=x", "--fence-after=1m40s"}},
	}
}

func silentNode(name string, taints ...string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}},
		},
	}
	for _, key := range taints {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return node
}

// A guest is given up when its launcher must have ended it, and not a moment before.
func TestExpiry(t *testing.T) {
	const (
		after  = 100 * time.Second
		needed = 111 * time.Second // a hundredth more, and the time to kill
		again  = after / 32        // half of the longest gap between two polls
	)
	silent := func(d time.Duration) map[time.Duration]time.Duration {
		return map[time.Duration]time.Duration{after: d, time.Hour: 2 * time.Hour}
	}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		node    *corev1.Node
		silence time.Duration
		want    v1.VirtualMachineInstancePhase
		again   time.Duration
	}{
		"just lost": {testPod(running, endsItself), silentNode("node01"), 0, v1.Unknown, again},
		"almost": {
			testPod(running, endsItself), silentNode("node01"), needed - time.Millisecond, v1.Unknown, again,
		},
		"for certain":           {testPod(running, endsItself), silentNode("node01"), needed, v1.Failed, 0},
		"its launcher does not": {testPod(running), silentNode("node01"), time.Hour, v1.Unknown, 0},
		"another node":          {testPod(running, endsItself), silentNode("node02"), time.Hour, v1.Unknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			step := Next(View{
				VMI: testVMI(t, v1.Unknown), Pods: []*corev1.Pod{c.pod}, Node: c.node, Silence: silent(c.silence),
				Now: now,
			})
			if step.Status.Phase != c.want || step.RequeueAfter != c.again || len(step.RemovePods) > 0 {
				t.Errorf("phase %s, again after %s, removes %d pods", step.Status.Phase, step.RequeueAfter,
					len(step.RemovePods))
			}
		})
	}
	// A VMI that virt-handler writes is nobody's to give up.
	step := Next(View{
		VMI: testVMI(t, v1.Running), Pods: []*corev1.Pod{testPod(running, endsItself)}, Node: silentNode("node01"),
		Silence: silent(time.Hour), Now: now,
	})
	if step.Status.Phase != v1.Running {
		t.Errorf("a guest that runs is %s", step.Status.Phase)
	}
	// The pod of the VMI that was given up makes room.
	for silence, want := range map[time.Duration]int{needed - 1: 0, needed: 1} {
		step := Next(View{
			VMI: testVMI(t, v1.Failed, deleted), Pods: []*corev1.Pod{testPod(running, going, endsItself)},
			Node: silentNode("node01"), Silence: silent(silence), Now: now,
		})
		if len(step.RemovePods) != want || step.RemoveFinalizer {
			t.Errorf("after %s: %+v", silence, step)
		}
	}
}

// silentCluster is a lost node, lost, and three that beat, behind an API server.
type silentCluster struct {
	t       *testing.T
	api     client.WithWatch
	fails   error
	gets    int
	s       silences
	clock   time.Duration
	members []string
}

func newSilentCluster(t *testing.T) *silentCluster {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &silentCluster{t: t, members: []string{"a", "b", "c"}}
	c.api = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, into client.Object,
			options ...client.GetOption,
		) error {
			c.gets++
			if c.fails != nil {
				return c.fails
			}
			return under.Get(ctx, key, into, options...)
		},
	})
	c.s.clock = func() time.Duration { return c.clock }
	for _, name := range append(c.members, "lost") {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		if err := c.api.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	c.annotate("lost", names.AnnotationFencingSet, "a,b,c,lost")
	return c
}

func (c *silentCluster) annotate(name, key, value string) string {
	c.t.Helper()
	var node corev1.Node
	if err := c.api.Get(c.t.Context(), types.NamespacedName{Name: name}, &node); err != nil {
		c.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
	if err := c.api.Update(c.t.Context(), &node); err != nil {
		c.t.Fatal(err)
	}
	return node.ResourceVersion
}

// pass lets time pass in which the members beat.
func (c *silentCluster) pass(d time.Duration, acknowledged map[string]string) {
	c.clock += d
	for _, name := range c.members {
		acknowledged[name] = c.annotate(name, names.AnnotationHeartbeatTaken, acknowledged[name])
	}
}

func (c *silentCluster) look() time.Duration {
	c.t.Helper()
	silence, err := c.s.look(c.t.Context(), c.api, "lost", 160*time.Second)
	if err != nil && c.fails == nil {
		c.t.Fatal(err)
	}
	return silence
}

// Silence counts what the API server says of the node and of those that vouch for it, and of nothing else.
func TestSilence(t *testing.T) {
	acknowledged := map[string]string{}
	begin := func(t *testing.T) *silentCluster {
		clear(acknowledged)
		c := newSilentCluster(t)
		for range 5 {
			c.pass(5*time.Second, acknowledged)
			c.look()
		}
		if got := c.look(); got < 5*time.Second {
			t.Fatalf("it has counted %s", got)
		}
		return c
	}
	for name, c := range map[string]struct {
		happens func(*silentCluster)
		counts  bool
	}{
		"nothing":      {func(*silentCluster) {}, true},
		"a heartbeat":  {func(c *silentCluster) { c.annotate("lost", v1.VirtHandlerHeartbeat, "now") }, false},
		"it is paused": {func(c *silentCluster) { c.annotate("lost", names.AnnotationHeartbeatPaused, "pod") }, false},
		"another set":  {func(c *silentCluster) { c.annotate("lost", names.AnnotationFencingSet, "a,b,lost") }, false},
		"two nodes":    {func(c *silentCluster) { c.annotate("lost", names.AnnotationFencingSet, "a,lost") }, false},
		"a poll is bad": {func(c *silentCluster) {
			c.fails = errors.New("not now")
			c.clock += 5 * time.Second
			c.look()
			c.fails = nil
		}, false},
		"most are gone": {func(c *silentCluster) { c.members = nil; c.clock += 71 * time.Second }, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := begin(t)
			before := cluster.look()
			c.happens(cluster)
			cluster.pass(5*time.Second, acknowledged)
			if got := cluster.look(); (got > before) != c.counts {
				t.Errorf("%s, then %s", before, got)
			}
		})
	}
	c := begin(t)
	gets := c.gets
	c.look()
	if c.gets != gets {
		t.Error("two guests of a node cost two polls")
	}
	if _, err := c.s.look(t.Context(), c.api, "nobody", time.Minute); !apierrors.IsNotFound(err) {
		t.Errorf("a node that is gone: %v", err)
	}
	c.clock += time.Hour
	c.look()
	if len(c.s.nodes) != 1 {
		t.Errorf("%d nodes are remembered", len(c.s.nodes))
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
		vm := &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.vmi.Namespace, Name: "vm"},
			Spec:       v1.VirtualMachineSpec{RunStrategy: &c.strategy},
		}
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

// Node Health Check's remediations: a taint that keeps pods away, or evicts them, says that fencing has begun, and not
// that it has ended. That is said by the taint out-of-service, or by the removal of the pods, or of the node.
func TestRemediation(t *testing.T) {
	const medik8s = "medik8s.io/remediation"
	for name, c := range map[string]struct {
		node *corev1.Node
		pods []*corev1.Pod
		want v1.VirtualMachineInstancePhase
	}{
		"it has begun": {
			silentNode("node01", corev1.TaintNodeUnreachable, medik8s), []*corev1.Pod{testPod(running)}, v1.Unknown,
		},
		"its pods are evicted": {
			silentNode("node01", corev1.TaintNodeUnreachable, medik8s),
			[]*corev1.Pod{testPod(running, going)},
			v1.Unknown,
		},
		"strategy taint": {
			silentNode("node01", medik8s, corev1.TaintNodeOutOfService),
			[]*corev1.Pod{testPod(running, going)},
			v1.Failed,
		},
		"machine deletion": {nil, nil, v1.Failed},
		"the node is back soon": {
			&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: medik8s}}}},
			[]*corev1.Pod{testPod(running)},
			v1.Unknown,
		},
	} {
		step := Next(View{
			VMI: testVMI(t, v1.Unknown), Pods: c.pods, Node: c.node, DeadSince: now.Add(-time.Minute), Now: now,
		})
		if step.Status.Phase != c.want {
			t.Errorf("%s: %s", name, step.Status.Phase)
		}
	}
}
