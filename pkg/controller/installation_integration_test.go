//go:build integration

package controller

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/tests/env"
)

func TestCertificates(tt *testing.T) {
	t := newTest(tt)
	get := func(object client.Object, name string) error {
		return cluster.Client.Get(t.ctx, types.NamespacedName{Namespace: names.Namespace, Name: name}, object)
	}
	certificate := func() *certs.Material {
		var material *certs.Material
		t.eventually("certificate", func() (bool, error) {
			secret := &corev1.Secret{}
			if err := get(secret, names.APICertSecret); err != nil {
				return false, err
			}
			var err error
			material, err = certs.ParseMaterial(secret.Data)
			return err == nil, err
		})
		return material
	}
	old := certificate()
	t.must(cluster.Client.Delete(t.ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.APICertSecret}}))
	if fresh := certificate(); string(fresh.CertificatePEM) == string(old.CertificatePEM) ||
		string(fresh.BundlePEM) != string(old.BundlePEM) {
		t.Error("the certificate was not made anew by the same authority")
	}

	// What comes later gets the authorities as well.
	none := admissionv1.SideEffectClassNone
	webhooks := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: names.ValidatingWebhook},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "none.virtkit.io", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{
				Service: &admissionv1.ServiceReference{Namespace: names.Namespace, Name: names.VirtAPI},
			},
		}},
	}
	t.must(cluster.Client.Create(t.ctx, webhooks))
	t.eventually("authorities in the webhook", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(webhooks), webhooks)
		return string(webhooks.Webhooks[0].ClientConfig.CABundle) == string(old.BundlePEM), err
	})
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": apiServices()[0]},
		"spec": map[string]any{
			"group": v1.SubresourceGroupName, "version": v1.SubresourceGroupVersions[0].Version,
			"groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
			"service": map[string]any{"namespace": names.Namespace, "name": names.VirtAPI},
		},
	}}
	t.must(cluster.Client.Create(t.ctx, service))
	t.eventually("authorities in the APIService", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(service), service)
		got, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
		return got == base64.StdEncoding.EncodeToString(old.BundlePEM), err
	})
}

// TestInstallation runs alone, before TestWorkloadUpdate, which needs what it deploys.
func TestInstallation(tt *testing.T) {
	t := newSerialTest(tt)
	waitPhase := func(want v1.KubeVirtPhase) {
		kv := &v1.KubeVirt{}
		t.eventually("phase "+string(want), func() (bool, error) {
			err := cluster.Client.Get(t.ctx, types.NamespacedName{Namespace: names.Namespace, Name: names.KubeVirt}, kv)
			return kv.Status.Phase == want, err
		})
	}
	waitPhase(v1.KubeVirtPhaseDeploying)

	t.deployComponents()
	waitPhase(v1.KubeVirtPhaseDeployed)
}

// deployComponents plays the installation's Deployments and its DaemonSet, all of them ready; they stay.
func (t *test) deployComponents() {
	t.Helper()
	pods := func(name string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		labels := map[string]string{names.LabelComponent: name}
		return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "image"}}},
		}
	}
	for _, name := range []string{names.VirtAPI, names.VirtController} {
		selector, template := pods(name)
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: name},
			Spec:       appsv1.DeploymentSpec{Selector: selector, Template: template},
		}
		t.must(client.IgnoreAlreadyExists(cluster.Client.Create(t.ctx, deployment)))
		deployment.Status = appsv1.DeploymentStatus{
			ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		}
		t.must(cluster.Client.Status().Update(t.ctx, deployment))
	}
	selector, template := pods(names.VirtHandler)
	daemonSet := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.VirtHandler},
		Spec:       appsv1.DaemonSetSpec{Selector: selector, Template: template},
	}
	t.must(client.IgnoreAlreadyExists(cluster.Client.Create(t.ctx, daemonSet)))
	daemonSet.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: 1, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1, NumberAvailable: 1,
	}
	t.must(cluster.Client.Status().Update(t.ctx, daemonSet))
}

func TestNodeLost(tt *testing.T) {
	t := newTest(tt)
	node, err := cluster.CreateNode(t.ctx, "lost")
	t.must(err)
	t.createVM(v1.RunStrategyAlways)
	vmi, pod := t.run("lost")
	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.must(cluster.SetNodeReady(t.ctx, node, corev1.ConditionUnknown))
	t.waitPhase(v1.Unknown)
	t.waitPrintable(v1.VirtualMachineStatusUnknown)

	// virt-handler is back.
	t.must(cluster.SetNodeReady(t.ctx, node, corev1.ConditionTrue))
	t.must(cluster.SetVMIPhase(t.ctx, vmi, v1.Running))
	t.waitPrintable(v1.VirtualMachineStatusRunning)

	// The node goes for good, and Kubernetes takes its pods away.
	t.must(cluster.Client.Delete(t.ctx, node))
	t.waitPhase(v1.Unknown)
	t.must(cluster.RemovePod(t.ctx, pod))
	t.waitAnother(vmi.UID)
}

func TestHandlerSilent(tt *testing.T) {
	t := newTest(tt)
	node, err := cluster.CreateNode(t.ctx, "silent")
	t.must(err)
	t.createVM(v1.RunStrategyAlways)
	t.run("silent")
	before := node.DeepCopy()
	node.Annotations[v1.VirtHandlerHeartbeat] = env.Heartbeat(time.Now().Add(-time.Hour))
	t.must(cluster.Client.Patch(t.ctx, node, client.MergeFrom(before)))
	t.waitPhase(v1.Unknown)
	t.eventually("node unschedulable", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(node), node)
		return node.Labels[v1.NodeSchedulable] == "false", err
	})
}

// TestPodGoneUnreported is a guest whose end nobody reports, because virt-handler is down.
func TestPodGoneUnreported(tt *testing.T) {
	t := newTest(tt)
	t.createVM(v1.RunStrategyManual)
	t.waitPrintable(v1.VirtualMachineStatusStopped)
	t.request(v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest})
	vmi, pod := t.run("node01")
	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.must(cluster.RemovePod(t.ctx, pod))
	if failed := t.waitPhase(v1.Failed); failed.UID != vmi.UID || failed.Status.Reason != v1.PodNotExistsReason {
		t.Errorf("status %+v", failed.Status)
	}
	t.waitPrintable(v1.VirtualMachineStatusStopped)
}

// TestPodDeletedWithForce is a guest whose pod is removed while its node goes on with it, because virt-handler is down.
// Neither its VM nor another one starts from its claim before virt-handler has said that it ended.
func TestPodDeletedWithForce(tt *testing.T) {
	t := newTest(tt)
	_, err := cluster.CreateNode(t.ctx, "forced")
	t.must(err)
	t.createVM(v1.RunStrategyAlways)
	vmi, pod := t.run("forced")
	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.must(cluster.Client.Delete(t.ctx, pod, client.GracePeriodSeconds(0)))
	held := t.waitVMI("held", func(vmi *v1.VirtualMachineInstance) bool {
		return slices.ContainsFunc(vmi.Status.Conditions, func(c v1.VirtualMachineInstanceCondition) bool {
			return c.Type == v1.VirtualMachineInstanceReady && c.Reason == "EndNotConfirmed"
		})
	})
	if held.UID != vmi.UID || held.IsFinal() {
		t.Fatalf("it was let go: %+v", held.Status)
	}
	t.must(cluster.Client.Delete(t.ctx, vmi)) // as virtctl restart does
	held = t.waitVMI("deleted", func(vmi *v1.VirtualMachineInstance) bool { return vmi.DeletionTimestamp != nil })
	if held.UID != vmi.UID {
		t.Fatal("a second guest")
	}
	t.must(cluster.SetVMIPhase(t.ctx, vmi, v1.Succeeded))
	t.waitAnother(vmi.UID)
}

// TestQuota is a pod that may not be made, until it may.
func TestQuota(tt *testing.T) {
	t := newTest(tt)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: quantity("0")}},
	}
	t.must(cluster.Client.Create(t.ctx, quota))
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{corev1.ResourcePods: quantity("0")}
	t.must(cluster.Client.Status().Update(t.ctx, quota))
	t.createVM(v1.RunStrategyAlways)
	t.waitVM("failure told", func(vm *v1.VirtualMachine) bool {
		for _, c := range vm.Status.Conditions {
			if c.Type == v1.VirtualMachineFailure {
				return c.Reason == "FailedCreate" && strings.Contains(c.Message, "exceeded quota")
			}
		}
		return false
	})
	t.must(cluster.Client.Delete(t.ctx, quota))
	t.run("node01")
	t.waitPrintable(v1.VirtualMachineStatusRunning)
}

// TestTakeover restarts virt-controller, which must find nothing to do, and at once.
func TestTakeover(tt *testing.T) {
	t := newSerialTest(tt)
	t.createVM(v1.RunStrategyAlways)
	vmi, pod := t.run("node01")
	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.quiet()
	before := len(writes.in(t.namespace))
	t.must(stopController())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.VirtController},
	}
	t.must(cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(lease), lease))
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("%s has ended and still holds the lease", *holder)
	}
	stopController = startController(context.WithoutCancel(t.ctx))
	t.quiet()
	if after := len(writes.in(t.namespace)); after != before {
		t.Errorf("%d writes by the new leader", after-before)
	}
	t.must(cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(pod), pod))
	if again := t.waitPhase(v1.Running); again.UID != vmi.UID {
		t.Error("the instance was replaced")
	}
	// And it does lead.
	t.must(cluster.Client.Delete(t.ctx, vmi))
	t.endPod(pod)
	t.waitAnother(vmi.UID)
}
