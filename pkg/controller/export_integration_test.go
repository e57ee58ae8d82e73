//go:build integration

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

func (t *test) export(kind, name string, change ...func(*v1beta1.VirtualMachineExport)) *v1beta1.VirtualMachineExport {
	t.Helper()
	group := map[string]string{exports.KindVM: "kubevirt.io"}[kind]
	export := &v1beta1.VirtualMachineExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "e"},
		Spec: v1beta1.VirtualMachineExportSpec{
			Source: corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: name},
		},
	}
	for _, do := range change {
		do(export)
	}
	t.must(cluster.Client.Create(t.ctx, export))
	return export
}

// waitExport waits until an export says a phase and the reason of its condition Ready.
func (t *test) waitExport(
	export *v1beta1.VirtualMachineExport, phase v1beta1.VirtualMachineExportPhase, reason string,
) {
	t.Helper()
	t.eventually(fmt.Sprintf("export %s, %s", phase, reason), func() (bool, error) {
		err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(export), export)
		if err != nil || export.Status == nil {
			return false, err
		}
		ready := conditions.Find(export.Status.Conditions, v1beta1.ConditionReady)
		return export.Status.Phase == phase && ready != nil && ready.Reason == reason, nil
	})
}

// exportPod is the pod of export e, another than before, ready.
func (t *test) exportPod(before *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	t.eventually("the export's pod", func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key("virt-export-e"), pod)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return before == nil || pod.UID != before.UID, err
	})
	t.must(cluster.Bind(t.ctx, pod, "node01"))
	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodRunning
		status.Conditions = append(status.Conditions,
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}))
	return pod
}

// An export of a VM has a token, a Service and a pod; it ends the pod when the VM starts, makes another when the VM has
// stopped and one when a pod has failed, and its objects are its own.
func TestExport(tt *testing.T) {
	t := newTest(tt)
	t.boundClaim("a", "none")
	t.createVM(v1.RunStrategyHalted, "a")
	export := t.export(exports.KindVM, "demo")
	pod := t.exportPod(nil)
	t.waitExport(export, v1beta1.Ready, exports.ReasonPodReady)
	link := export.Status.Links.Internal
	var manifests []v1beta1.ExportManifestType
	for _, m := range link.Manifests {
		manifests = append(manifests, m.Type)
	}
	want := []v1beta1.ExportManifestType{v1beta1.AllManifests, v1beta1.AuthHeader, exports.ManifestOVA}
	if len(link.Volumes) != 1 || link.Volumes[0].Name != "a" || !slices.Equal(manifests, want) ||
		!strings.Contains(link.Cert, "BEGIN CERTIFICATE") || *export.Status.VirtualMachineName != "demo" ||
		export.Status.TTLExpirationTime.Sub(export.CreationTimestamp.Time) != 2*time.Hour {
		t.Errorf("%+v", export.Status)
	}
	var secrets corev1.SecretList
	t.must(cluster.Client.List(t.ctx, &secrets, client.InNamespace(t.namespace)))
	for i := range secrets.Items {
		if !metav1.IsControlledBy(&secrets.Items[i], export) {
			t.Errorf("Secret %s is nobody's", secrets.Items[i].Name)
		}
	}
	if len(secrets.Items) != 3 {
		t.Errorf("%d Secrets instead of the certificate's, the token's and the manifests'", len(secrets.Items))
	}
	for _, volume := range pod.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil && claim.ClaimName != "a" {
			t.Errorf("the pod has claim %s", claim.ClaimName)
		}
	}

	t.must(cluster.SetPodStatus(t.ctx, pod, func(status *corev1.PodStatus) {
		status.Phase, status.Reason, status.Conditions = corev1.PodFailed, "Evicted", nil
	}))
	t.endPod(pod)
	pod = t.exportPod(pod)
	t.waitExport(export, v1beta1.Ready, exports.ReasonPodReady)

	vm := &v1.VirtualMachine{}
	t.must(cluster.Client.Get(t.ctx, t.key("demo"), vm))
	before := vm.DeepCopy()
	vm.Spec.RunStrategy = new(v1.RunStrategyAlways)
	t.must(cluster.Client.Patch(t.ctx, vm, client.MergeFrom(before)))
	t.waitExport(export, v1beta1.Pending, exports.ReasonInUse)
	if export.Status.Links != nil {
		t.Error("it has addresses of a VM that runs")
	}
	t.endPod(pod)
}

// An export of a claim waits for a pod that uses it, takes a token that is given, and ends with its time.
func TestExportOfClaim(tt *testing.T) {
	t := newTest(tt)
	t.boundClaim("a", "none")
	user := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "user"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "registry.example/c"}},
			Volumes: []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"},
			}}},
		},
	}
	t.must(cluster.Client.Create(t.ctx, user))
	export := t.export(exports.KindClaim, "a", func(e *v1beta1.VirtualMachineExport) {
		e.Spec.TokenSecretRef, e.Spec.TTLDuration = new("mine"), &metav1.Duration{Duration: 30 * time.Second}
	})
	t.waitExport(export, v1beta1.Pending, exports.ReasonInUse)
	if ready := conditions.Find(export.Status.Conditions, v1beta1.ConditionReady); !strings.Contains(ready.Message,
		"in use by pod user") {
		t.Errorf("%+v", ready)
	}
	t.must(cluster.RemovePod(t.ctx, user))
	t.exportPod(nil)
	t.waitExport(export, v1beta1.Ready, exports.ReasonPodReady)
	if *export.Status.TokenSecretRef != "mine" || export.Status.Links.Internal.Manifests != nil {
		t.Errorf("%+v", export.Status)
	}
	t.waitGone(export)
}

// What another has under a name that the export needs is left alone, and the export says so.
func TestExportOfTakenName(tt *testing.T) {
	t := newTest(tt)
	t.boundClaim("a", "none")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "virt-export-e"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	t.must(cluster.Client.Create(t.ctx, service))
	export := t.export(exports.KindClaim, "a")
	t.waitExport(export, v1beta1.Pending, exports.ReasonRefused)
	t.must(cluster.Client.Delete(t.ctx, service))
	t.exportPod(nil)
	t.waitExport(export, v1beta1.Ready, exports.ReasonPodReady)
	if err := cluster.Client.Get(t.ctx, t.key("virt-export-e"), service); err != nil ||
		!metav1.IsControlledBy(service, export) {
		t.Errorf("%+v: %v", service.ObjectMeta, err)
	}
}
