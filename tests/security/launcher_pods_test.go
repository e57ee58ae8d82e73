//go:build integration

package security

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const controllerOnly = "only virt-controller"

func pod(namespace string, change ...func(*corev1.Pod)) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "compute", Image: "none"}}},
	}
	for _, f := range change {
		f(out)
	}
	return out
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
}

func ownedBy(apiVersion, kind, name, uid string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{
			APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true),
		})
	}
}

var ofVMI = ownedBy("kubevirt.io/v1", "VirtualMachineInstance", "victim", "victim-uid")

// A tenant made the pod that a VMI with a missing claim waited for, and had the guest started in it. On aa6b5fa every
// one of these pods is made.
func TestTenantMakesNoLauncher(t *testing.T) {
	ns, user := tenant(t)
	for name, change := range map[string][]func(*corev1.Pod){
		"by name":             {func(p *corev1.Pod) { p.GenerateName, p.Name = "", "virt-launcher-victim-abcde" }},
		"by generated name":   {func(p *corev1.Pod) { p.GenerateName = "virt-launcher-victim-" }},
		"attachment by name":  {func(p *corev1.Pod) { p.GenerateName = "hp-volume-" }},
		"by label":            {labelled("kubevirt.io", "virt-launcher")},
		"attachment by label": {labelled("kubevirt.io", "hotplug-disk")},
		"provisioning":        {labelled("kubevirt.io", "virt-provisioning")},
		"created by":          {labelled("kubevirt.io/created-by", "victim-uid")},
		"migration's target":  {labelled("kubevirt.io/migrationJobUID", "migration-uid")},
		"by owner":            {ofVMI},
		"by owner, v1alpha3":  {ownedBy("kubevirt.io/v1alpha3", "VirtualMachineInstance", "victim", "victim-uid")},
		"attachment by owner": {ownedBy("v1", "Pod", "virt-launcher-victim-abcde", "launcher-uid")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			denied(t, controllerOnly, func() error { return user.Create(t.Context(), pod(ns, change...)) })
		})
	}
	// Not everything with our label's key is refused: virt-api's pods have it, too.
	allowed(t, func() error { return user.Create(t.Context(), pod(ns, labelled("kubevirt.io", "mine"))) })
}

// Controllers act for tenants: the template of a Deployment is as much theirs as a pod is.
func TestWorkloadMakesNoLauncher(t *testing.T) {
	ns, _ := tenant(t)
	controller := as(t, "system:serviceaccount:kube-system:replicaset-controller",
		[]string{"system:serviceaccounts", "system:masters"}, nil)
	denied(t, controllerOnly, func() error {
		return controller.Create(t.Context(), pod(ns, labelled("kubevirt.io", "virt-launcher")))
	})
}

// A tenant gave a pod the marks after it was made, took them from a launcher, or put a container of its own into one.
func TestTenantChangesNoMarks(t *testing.T) {
	ns, user := tenant(t)
	ctx := t.Context()
	own := pod(ns)
	allowed(t, func() error { return user.Create(ctx, own) })
	launcher := pod(ns, labelled("kubevirt.io", "virt-launcher"), labelled("kubevirt.io/created-by", "victim-uid"),
		ofVMI,
		func(p *corev1.Pod) { p.GenerateName = "virt-launcher-victim-" })
	controller := serviceAccount(t, "virt-controller", "node1")
	allowed(t, func() error { return controller.Create(ctx, launcher) })

	patch := func(p *corev1.Pod, change func(*corev1.Pod)) func() error {
		return func() error {
			changed := p.DeepCopy()
			change(changed)
			return user.Patch(ctx, changed, client.MergeFrom(p))
		}
	}
	denied(t, controllerOnly, patch(own, labelled("kubevirt.io", "virt-launcher")))
	denied(t, controllerOnly, patch(own, labelled("kubevirt.io/created-by", "victim-uid")))
	denied(t, controllerOnly, patch(own, labelled("kubevirt.io/migrationJobUID", "migration-uid")))
	denied(t, controllerOnly, patch(own, ofVMI))
	denied(t, controllerOnly, patch(launcher, labelled("kubevirt.io", "mine")))
	denied(t, controllerOnly, patch(launcher, func(p *corev1.Pod) { delete(p.Labels, v1.CreatedByLabel) }))
	denied(t, controllerOnly, patch(launcher, func(p *corev1.Pod) { p.OwnerReferences = nil }))
	denied(t, "ephemeral containers", func() error {
		changed := launcher.DeepCopy()
		changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "spy", Image: "none", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				ImagePullPolicy: corev1.PullAlways,
			},
		}}
		return environment.Client.SubResource("ephemeralcontainers").Update(ctx, changed)
	})
	// What is the tenant's to change stays so.
	allowed(t, patch(own, labelled("app", "mine")))
	allowed(t, patch(launcher, labelled("app", "mine")))
	allowed(t, func() error { return user.Delete(context.WithoutCancel(ctx), launcher) })
}

// The garbage collector lets go of launchers whose VMI was deleted with its dependents orphaned.
func TestGarbageCollectorTakesOwners(t *testing.T) {
	ns, _ := tenant(t)
	ctx := t.Context()
	launcher := pod(ns, labelled("kubevirt.io", "virt-launcher"), ofVMI)
	controller := serviceAccount(t, "virt-controller", "node1")
	allowed(t, func() error { return controller.Create(ctx, launcher) })
	collector := as(t, "system:serviceaccount:kube-system:generic-garbage-collector", []string{"system:masters"}, nil)
	allowed(t, func() error {
		changed := launcher.DeepCopy()
		changed.OwnerReferences = nil
		return collector.Patch(ctx, changed, client.MergeFrom(launcher))
	})
}
