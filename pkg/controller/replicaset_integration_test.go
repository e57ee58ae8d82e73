//go:build integration

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// createSet makes a replica set; the API server has no webhooks here, so that its instances say what they need.
func (t *test) createSet(replicas int32) *v1.VirtualMachineInstanceReplicaSet {
	t.Helper()
	labels := map[string]string{"app": "web"}
	set := &v1.VirtualMachineInstanceReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: t.namespace},
		Spec: v1.VirtualMachineInstanceReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: &v1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: tinySpec(),
			},
		},
	}
	t.must(cluster.Client.Create(t.ctx, set))
	return set
}

func tinySpec() v1.VirtualMachineInstanceSpec {
	return v1.VirtualMachineInstanceSpec{
		Architecture: "amd64",
		Domain:       v1.DomainSpec{Memory: &v1.Memory{Guest: new(quantity("128Mi"))}},
		Volumes: []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{
			ContainerDisk: &v1.ContainerDiskSource{Image: "registry.example/tiny:1"},
		}}},
	}
}

// instances are the VMIs that there are, by name, without those that are being deleted.
func (t *test) instances() []v1.VirtualMachineInstance {
	t.Helper()
	var list v1.VirtualMachineInstanceList
	t.must(cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace)))
	return slices.DeleteFunc(list.Items, func(vmi v1.VirtualMachineInstance) bool {
		return vmi.DeletionTimestamp != nil
	})
}

// ready makes a VMI run and ready, as virt-handler would.
func (t *test) ready(vmi *v1.VirtualMachineInstance) {
	t.Helper()
	pod := t.waitPod(vmi)
	t.must(cluster.Bind(t.ctx, pod, "node01"))
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodRunning }))
	t.eventually("scheduled", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(vmi), vmi)
		return vmi.Status.Phase == v1.Scheduled, err
	})
	t.must(cluster.SetVMIPhase(t.ctx, vmi, v1.Running))
}

func (t *test) waitSet(what string, condition func(v1.VirtualMachineInstanceReplicaSetStatus) bool,
) *v1.VirtualMachineInstanceReplicaSet {
	t.Helper()
	set := &v1.VirtualMachineInstanceReplicaSet{}
	t.eventually("set: "+what, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("web"), set)
		return err == nil && condition(set.Status), err
	})
	return set
}

func (t *test) waitReplicas(replicas, ready int32) *v1.VirtualMachineInstanceReplicaSet {
	t.Helper()
	return t.waitSet(fmt.Sprintf("%d replicas, %d ready", replicas, ready),
		func(s v1.VirtualMachineInstanceReplicaSetStatus) bool {
			return s.Replicas == replicas && s.ReadyReplicas == ready
		})
}

// scale writes the scale subresource, as kubectl scale and autoscalers do: again when another wrote the object.
func (t *test) scale(object client.Object, replicas int32) *autoscalingv1.Scale {
	t.Helper()
	scale := &autoscalingv1.Scale{}
	t.must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := cluster.Client.SubResource("scale").Get(t.ctx, object, scale); err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		return cluster.Client.SubResource("scale").Update(t.ctx, object, client.WithSubResourceBody(scale))
	}))
	return scale
}

func TestReplicaSet(tt *testing.T) {
	t := newTest(tt)
	set := t.createSet(2)
	t.waitReplicas(2, 0)
	vmis := t.instances()
	if len(vmis) != 2 || !strings.HasPrefix(vmis[0].Name, "web-") || !metav1.IsControlledBy(&vmis[0], set) ||
		vmis[0].Labels["app"] != "web" {
		t.Fatalf("instances %+v", vmis)
	}
	t.ready(&vmis[0])
	t.waitReplicas(2, 1)
	t.quiet()

	if scale := t.scale(set, 4); scale.Status.Selector != "app=web" || scale.Status.Replicas != 2 {
		t.Errorf("scale %+v", scale)
	}
	t.waitReplicas(4, 1)
	if n := len(t.instances()); n != 4 {
		t.Errorf("%d instances", n)
	}
	// The one that runs is kept.
	t.scale(set, 1)
	t.waitReplicas(1, 1)
	t.eventually("one instance", func() (bool, error) { return len(t.instances()) == 1, nil })
	if got := t.instances()[0]; got.Name != vmis[0].Name {
		t.Errorf("%s was kept, %s ran", got.Name, vmis[0].Name)
	}
	t.quiet()

	// One that has ended is replaced. It ended early, so that it keeps its place for a while.
	pod := t.waitPod(&vmis[0])
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed }))
	t.must(cluster.SetVMIPhase(t.ctx, &vmis[0], v1.Failed))
	t.waitReplicas(0, 0)
	t.waitReplicas(1, 0)
	t.endPod(pod)
	t.waitGone(&vmis[0])
	t.quiet()

	t.eventually("events", func() (bool, error) {
		var events corev1.EventList
		err := cluster.Client.List(t.ctx, &events, client.InNamespace(t.namespace))
		counts := map[string]int32{}
		for _, event := range events.Items {
			if event.InvolvedObject.Kind == "VirtualMachineInstanceReplicaSet" {
				counts[event.Reason] += max(event.Count, 1)
			}
		}
		return counts["SuccessfulCreate"] == 5 && counts["SuccessfulDelete"] == 4, err
	})
}

func TestReplicaSetAdoptsAndReleases(tt *testing.T) {
	t := newTest(tt)
	orphan := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "orphan", Namespace: t.namespace, Labels: map[string]string{"app": "web"}},
		Spec:       tinySpec(),
	}
	t.must(cluster.Client.Create(t.ctx, orphan))
	t.waitPod(orphan) // virt-controller knows of it; else it makes two others first
	set := t.createSet(2)
	t.waitReplicas(2, 0)
	t.eventually("adopted", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(orphan), orphan)
		return metav1.IsControlledBy(orphan, set), err
	})
	if n := len(t.instances()); n != 2 {
		t.Errorf("%d instances", n)
	}
	before := orphan.DeepCopy()
	orphan.Labels["app"] = "debugged"
	t.must(cluster.Client.Patch(t.ctx, orphan, client.MergeFrom(before)))
	t.eventually("released", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(orphan), orphan)
		return len(orphan.OwnerReferences) == 0, err
	})
	t.eventually("replaced", func() (bool, error) { return len(t.instances()) == 3, nil })

	// One that comes later is adopted as well, and is then one too many.
	late := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: t.namespace, Labels: map[string]string{"app": "web"}},
		Spec:       tinySpec(),
	}
	t.must(cluster.Client.Create(t.ctx, late))
	t.eventually("one deleted", func() (bool, error) {
		return len(writes.deletes(t.namespace)) == 1, nil
	})
	t.waitReplicas(2, 0)
	t.quiet()
}

func TestReplicaSetPaused(tt *testing.T) {
	t := newTest(tt)
	t.createSet(1)
	t.waitReplicas(1, 0)
	set := t.waitReplicas(1, 0)
	before := set.DeepCopy()
	set.Spec.Paused = true
	t.must(cluster.Client.Patch(t.ctx, set, client.MergeFrom(before)))
	has := func(of v1.VirtualMachineInstanceReplicaSetConditionType, want bool,
	) func(v1.VirtualMachineInstanceReplicaSetStatus) bool {
		return func(s v1.VirtualMachineInstanceReplicaSetStatus) bool {
			return want == slices.ContainsFunc(s.Conditions, func(c v1.VirtualMachineInstanceReplicaSetCondition) bool {
				return c.Type == of
			})
		}
	}
	t.waitSet("paused", has(v1.VirtualMachineInstanceReplicaSetReplicaPaused, true))
	t.scale(set, 3)
	t.quiet()
	if n := len(t.instances()); n != 1 {
		t.Errorf("%d instances while paused", n)
	}
	set = t.waitReplicas(1, 0)
	before = set.DeepCopy()
	set.Spec.Paused = false
	t.must(cluster.Client.Patch(t.ctx, set, client.MergeFrom(before)))
	t.waitReplicas(3, 0)
	t.waitSet("not paused", has(v1.VirtualMachineInstanceReplicaSetReplicaPaused, false))
}

// A quota that refuses more shows in the status, and goes from there once it is raised.
func TestReplicaSetQuota(tt *testing.T) {
	t := newTest(tt)
	// No one counts here, so that the test does.
	const of = "count/virtualmachineinstances.kubevirt.io"
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few", Namespace: t.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{of: quantity("10")}},
	}
	t.must(cluster.Client.Create(t.ctx, quota))
	t.allow(quota, of, "1", "0")
	t.createSet(3)
	failing := func(s v1.VirtualMachineInstanceReplicaSetStatus) bool {
		return slices.ContainsFunc(s.Conditions, func(c v1.VirtualMachineInstanceReplicaSetCondition) bool {
			return c.Type == v1.VirtualMachineInstanceReplicaSetReplicaFailure && c.Reason == "FailedCreate" &&
				strings.Contains(c.Message, "exceeded quota")
		})
	}
	t.waitSet("failing", failing)
	t.allow(quota, of, "3", "1")
	t.waitReplicas(3, 0)
	t.waitSet("well", func(s v1.VirtualMachineInstanceReplicaSetStatus) bool { return !failing(s) })
}

// A burst with a cache that trails makes as many as are asked for, and no more.
func TestReplicaSetBurst(tt *testing.T) {
	t := newTest(tt)
	set := t.createSet(40)
	t.waitReplicas(40, 0)
	for _, n := range []int32{25, 60, 10, 30} {
		t.scale(set, n)
		t.waitReplicas(n, 0)
	}
	if n := len(t.instances()); n != 30 {
		t.Errorf("%d instances", n)
	}
	created := 0
	for _, line := range writes.in(t.namespace) {
		if strings.HasPrefix(line, "POST ") && strings.HasSuffix(line, "/virtualmachineinstances 201") {
			created++
		}
	}
	if created != 40+35+20 {
		t.Errorf("%d instances were made", created)
	}
	t.must(cluster.Client.Delete(t.ctx, set))
	t.eventually("gone", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(set), set)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// deletes are the VMIs of a namespace that virt-controller deleted.
func (l *writeLog) deletes(namespace string) []string {
	var out []string
	for _, line := range l.in(namespace) {
		if strings.HasPrefix(line, "DELETE ") && strings.Contains(line, "/virtualmachineinstances/") &&
			strings.HasSuffix(line, " 200") {
			out = append(out, line)
		}
	}
	return out
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// allow says what a quota allows and what of it is used.
func (t *test) allow(quota *corev1.ResourceQuota, of corev1.ResourceName, hard, used string) {
	t.Helper()
	t.eventually("quota", func() (bool, error) {
		if err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return false, err
		}
		quota.Status = corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{of: quantity(hard)}, Used: corev1.ResourceList{of: quantity(used)},
		}
		err := cluster.Client.Status().Update(t.ctx, quota)
		return err == nil, ignoreConflict(err)
	})
}

func intstrOf(n int) intstr.IntOrString { return intstr.FromInt(n) }
