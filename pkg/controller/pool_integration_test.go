//go:build integration

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/poolcontroller"
)

func (t *test) createPool(replicas int32, change ...func(*v1beta1.VirtualMachinePoolSpec)) *v1beta1.VirtualMachinePool {
	t.Helper()
	labels := map[string]string{"app": "web"}
	p := &v1beta1.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: t.namespace},
		Spec: v1beta1.VirtualMachinePoolSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			VirtualMachineTemplate: &v1beta1.VirtualMachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.VirtualMachineSpec{
					RunStrategy: new(v1.RunStrategyAlways),
					Template:    &v1.VirtualMachineInstanceTemplateSpec{Spec: tinySpec()},
				},
			},
		},
	}
	for _, f := range change {
		f(&p.Spec)
	}
	t.must(cluster.Client.Create(t.ctx, p))
	return p
}

// pooled are the names of the VMs that there are, in order.
func (t *test) pooled() []string {
	t.Helper()
	var list v1.VirtualMachineList
	t.must(cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace)))
	var out []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}

func (t *test) waitPool(replicas, ready int32) *v1beta1.VirtualMachinePool {
	t.Helper()
	p := &v1beta1.VirtualMachinePool{}
	t.eventually(fmt.Sprintf("%d VMs, %d ready", replicas, ready), func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("web"), p)
		return err == nil && p.Status.Replicas == replicas && p.Status.ReadyReplicas == ready, err
	})
	return p
}

// readyGuest has the guest of a VM run, as soon as the VM has one that is not one of those given.
func (t *test) readyGuest(name string, not ...v1.VirtualMachineInstance) v1.VirtualMachineInstance {
	t.Helper()
	var vmi v1.VirtualMachineInstance
	t.eventually("guest of "+name, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key(name), &vmi)
		other := !slices.ContainsFunc(not, func(o v1.VirtualMachineInstance) bool { return o.UID == vmi.UID })
		return err == nil && other && vmi.DeletionTimestamp == nil, client.IgnoreNotFound(err)
	})
	t.ready(&vmi)
	return vmi
}

func (t *test) changePool(change func(*v1beta1.VirtualMachinePoolSpec)) {
	t.Helper()
	p := &v1beta1.VirtualMachinePool{}
	t.must(cluster.Client.Get(t.ctx, t.key("web"), p))
	before := p.DeepCopy()
	change(&p.Spec)
	t.must(cluster.Client.Patch(t.ctx, p, client.MergeFrom(before)))
}

func (t *test) revisions() []string {
	t.Helper()
	var list appsv1.ControllerRevisionList
	t.must(cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace),
		client.HasLabels{poolcontroller.RevisionLabel}))
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

// orphanable checks that a revision takes such a patch as the garbage collector makes to orphan it: the API server
// refuses one that changes the revision's data, be it only the order of its keys.
func (t *test) orphanable(name string) {
	t.Helper()
	revision := &appsv1.ControllerRevision{}
	t.must(cluster.Client.Get(t.ctx, t.key(name), revision))
	before := revision.DeepCopy()
	metav1.SetMetaDataLabel(&revision.ObjectMeta, "test", "patched")
	t.must(cluster.Client.Patch(t.ctx, revision, client.StrategicMergeFrom(before)))
}

func TestPool(tt *testing.T) {
	t := newTest(tt)
	p := t.createPool(2, func(s *v1beta1.VirtualMachinePoolSpec) { s.MaxUnavailable = new(intstrOf(1)) })
	t.waitPool(2, 0)
	if names := t.pooled(); !slices.Equal(names, []string{"web-0", "web-1"}) {
		t.Fatalf("VMs %v", names)
	}
	guests := []v1.VirtualMachineInstance{t.readyGuest("web-0"), t.readyGuest("web-1")}
	t.waitPool(2, 2)
	t.quiet()
	if !slices.Equal(t.revisions(), []string{"web-1"}) {
		t.Errorf("revisions %v", t.revisions())
	}
	t.orphanable("web-1")

	// One that is deleted comes again, under its name.
	vm := &v1.VirtualMachine{}
	t.must(cluster.Client.Get(t.ctx, t.key("web-0"), vm))
	first := vm.UID
	t.must(cluster.Client.Delete(t.ctx, vm))
	t.endPod(t.waitPod(&guests[0]))
	t.eventually("web-0 again", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("web-0"), vm)
		return err == nil && vm.UID != first, client.IgnoreNotFound(err)
	})
	guests[0] = t.readyGuest("web-0", guests[0])
	t.waitPool(2, 2)

	// Another template: both VMs are changed at once, and their guests restarted one after the other.
	t.changePool(func(s *v1beta1.VirtualMachinePoolSpec) {
		s.VirtualMachineTemplate.Spec.Template.Spec.Domain.CPU = &v1.CPU{Cores: 2}
	})
	machines := func(so func(v1.VirtualMachine) bool) int {
		var list v1.VirtualMachineList
		t.must(cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace)))
		return len(slices.DeleteFunc(list.Items, func(vm v1.VirtualMachine) bool { return !so(vm) }))
	}
	changed := func(vm v1.VirtualMachine) bool {
		return vm.Spec.Template.Spec.Domain.CPU != nil && vm.Spec.Template.Spec.Domain.CPU.Cores == 2
	}
	t.eventually("both are changed", func() (bool, error) { return machines(changed) == 2, nil })
	stopping := func() (out []int) {
		for i := range guests {
			vmi := &v1.VirtualMachineInstance{}
			err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(&guests[i]), vmi)
			if err != nil || vmi.UID != guests[i].UID || vmi.DeletionTimestamp != nil {
				out = append(out, i)
			}
		}
		return out
	}
	t.eventually("one is restarted", func() (bool, error) { return len(stopping()) == 1, nil })
	t.quiet()
	away := stopping()
	if len(away) != 1 {
		t.Fatalf("%d are restarted at a time", len(away))
	}
	one, other := away[0], 1-away[0]
	t.endPod(t.waitPod(&guests[one]))
	guests[one] = t.readyGuest(guests[one].Name, guests[one])
	t.eventually("the other is restarted", func() (bool, error) { return slices.Contains(stopping(), other), nil })
	t.endPod(t.waitPod(&guests[other]))
	guests[other] = t.readyGuest(guests[other].Name, guests[other])
	t.waitPool(2, 2)
	t.eventually("old revisions are gone", func() (bool, error) { return len(t.revisions()) == 1, nil })
	t.quiet()

	// A label of the VMs only disturbs no guest.
	t.changePool(func(s *v1beta1.VirtualMachinePoolSpec) {
		s.VirtualMachineTemplate.ObjectMeta.Labels["stage"] = "two"
	})
	t.eventually("both are labelled", func() (bool, error) {
		return machines(func(vm v1.VirtualMachine) bool { return vm.Labels["stage"] == "two" }) == 2, nil
	})
	t.eventually("their guests are of the new revision", func() (bool, error) {
		var list v1.VirtualMachineInstanceList
		err := cluster.Client.List(t.ctx, &list, client.InNamespace(t.namespace))
		return !slices.ContainsFunc(list.Items, func(vmi v1.VirtualMachineInstance) bool {
			return vmi.Labels[v1.VirtualMachinePoolRevisionName] != t.revisions()[0]
		}), err
	})
	if len(stopping()) != 0 {
		t.Error("a guest was restarted for a label of its VM")
	}
	t.quiet()

	// One that is taken out stays, and another comes in its place.
	t.must(cluster.Client.Get(t.ctx, t.key("web-1"), vm))
	before := vm.DeepCopy()
	vm.OwnerReferences = nil
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	t.eventually("web-2", func() (bool, error) {
		return slices.Equal(t.pooled(), []string{"web-0", "web-1", "web-2"}), nil
	})
	t.must(cluster.Client.Get(t.ctx, t.key("web-0"), vm))
	before = vm.DeepCopy()
	vm.Labels["app"] = "debugged"
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	t.eventually("web-3", func() (bool, error) { return slices.Contains(t.pooled(), "web-3"), nil })
	t.eventually("web-0 is nobody's", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("web-0"), vm)
		return len(vm.OwnerReferences) == 0, err
	})

	t.scale(p, 1)
	t.eventually("one is left", func() (bool, error) { return len(t.pooled()) == 3, nil }) // and the two that left
	t.eventually("events", func() (bool, error) {
		var events corev1.EventList
		err := cluster.Client.List(t.ctx, &events, client.InNamespace(t.namespace))
		counts := map[string]int32{}
		for _, event := range events.Items {
			if event.InvolvedObject.Kind == "VirtualMachinePool" {
				counts[event.Reason] += max(event.Count, 1)
			}
		}
		return counts["SuccessfulCreate"] == 5 && counts["SuccessfulDelete"] == 1 && counts["SuccessfulUpdate"] == 6,
			err
	})
}

// What the disks of a pool's VMs are made from changes: the VMs are made anew, and their names are free only when the
// old disks are gone. Disks that are to be kept outlive a VM that is one too many.
func TestPoolDisks(tt *testing.T) {
	t := newTest(tt)
	claim := func(vm string, owned bool) *corev1.PersistentVolumeClaim {
		owner := &v1.VirtualMachine{}
		t.must(cluster.Client.Get(t.ctx, t.key(vm), owner))
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "root-" + strings.TrimPrefix(vm, "web-"), Namespace: t.namespace},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
				},
			},
		}
		if owned {
			claim.OwnerReferences = []metav1.OwnerReference{
				*metav1.NewControllerRef(owner, v1.VirtualMachineGroupVersionKind),
			}
		}
		t.must(cluster.Client.Create(t.ctx, claim))
		return claim
	}
	p := t.createPool(2, func(s *v1beta1.VirtualMachinePoolSpec) {
		offline := v1beta1.StatePreservationOffline
		s.ScaleInStrategy = &v1beta1.VirtualMachinePoolScaleInStrategy{
			Proactive: &v1beta1.VirtualMachinePoolProactiveScaleInStrategy{
				SelectionPolicy: &v1beta1.VirtualMachinePoolSelectionPolicy{
					SortPolicy: new(v1beta1.VirtualMachinePoolSortPolicyDescendingOrder),
				}, StatePreservation: &offline,
			},
		}
		s.VirtualMachineTemplate.Spec.RunStrategy = new(v1.RunStrategyHalted)
		template := v1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: "root"}}
		s.VirtualMachineTemplate.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{template}
		s.VirtualMachineTemplate.Spec.Template.Spec.Volumes[0].VolumeSource = v1.VolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: "root"},
		}
	})
	t.waitPool(2, 0)
	kept := claim("web-1", true)
	t.scale(p, 1)
	t.eventually("web-1 is gone", func() (bool, error) { return slices.Equal(t.pooled(), []string{"web-0"}), nil })
	t.must(cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(kept), kept))
	if len(kept.OwnerReferences) != 0 {
		t.Errorf("the claim of web-1 belongs to %v", kept.OwnerReferences)
	}

	vm := &v1.VirtualMachine{}
	t.must(cluster.Client.Get(t.ctx, t.key("web-0"), vm))
	old := vm.UID
	t.changePool(func(s *v1beta1.VirtualMachinePoolSpec) {
		s.VirtualMachineTemplate.Spec.DataVolumeTemplates[0].Annotations = map[string]string{"another": "disk"}
	})
	t.eventually("web-0 waits for its disks to go", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("web-0"), vm)
		return vm.DeletionTimestamp != nil && slices.Equal(vm.Finalizers, []string{metav1.FinalizerDeleteDependents}),
			err
	})
	t.quiet()
	before := vm.DeepCopy()
	vm.Finalizers = nil // as the garbage collector does then
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	t.eventually("web-0 is made anew", func() (bool, error) {
		vm = &v1.VirtualMachine{}
		err := cluster.Client.Get(t.ctx, t.key("web-0"), vm)
		return err == nil && vm.UID != old && vm.Spec.DataVolumeTemplates[0].Annotations["another"] == "disk" &&
			vm.Spec.DataVolumeTemplates[0].Name == "root-0", client.IgnoreNotFound(err)
	})
}

// What cannot be made is told, and tried again.
func TestPoolFails(tt *testing.T) {
	t := newTest(tt)
	const of = "count/virtualmachines.kubevirt.io"
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few", Namespace: t.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{of: quantity("10")}},
	}
	t.must(cluster.Client.Create(t.ctx, quota))
	t.allow(quota, of, "1", "0")
	p := t.createPool(3, func(s *v1beta1.VirtualMachinePoolSpec) {
		s.VirtualMachineTemplate.Spec.RunStrategy = new(v1.RunStrategyHalted)
	})
	failing := func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("web"), p)
		return slices.ContainsFunc(p.Status.Conditions, func(c v1beta1.VirtualMachinePoolCondition) bool {
			return c.Type == v1beta1.VirtualMachinePoolReplicaFailure && c.Reason == "FailedScaleOut" &&
				strings.Contains(c.Message, "exceeded quota")
		}), err
	}
	t.eventually("failing", failing)
	t.allow(quota, of, "5", "1")
	t.waitPool(3, 0)
	t.eventually("well", func() (bool, error) {
		is, err := failing()
		return !is, err
	})
	t.changePool(func(s *v1beta1.VirtualMachinePoolSpec) { s.Paused = true })
	t.eventually("paused", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("web"), p)
		return slices.ContainsFunc(p.Status.Conditions, func(c v1beta1.VirtualMachinePoolCondition) bool {
			return c.Type == v1beta1.VirtualMachinePoolReplicaPaused
		}), err
	})
	t.scale(p, 0)
	t.quiet()
	if n := len(t.pooled()); n != 3 {
		t.Errorf("%d VMs while paused", n)
	}
}
