//go:build integration

package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/cdi"
)

// TestDataVolumes runs alone: for the others there is no CDI.
func TestDataVolumes(tt *testing.T) {
	t := newSerialTest(tt)
	vm := t.createImported("disk", func(spec *cdiv1.DataVolumeSpec) {})

	// Without CDI the VM says what is missing, and does not start.
	t.waitVM("Failure that names CDI", func(vm *v1.VirtualMachine) bool {
		return strings.Contains(failureOf(vm, "CDINotInstalled"), `"disk" cannot be made`) && !vm.Status.Created
	})
	t.quiet()

	// With it, the VM waits until it is filled.
	t.must(cdi.Install(t.ctx, cluster.Client))
	tt.Cleanup(func() { t.must(cdi.Uninstall(context.Background(), cluster.Client)) })
	dv := t.dataVolume("disk")
	if !metav1.IsControlledBy(dv, vm) || dv.Labels[v1.CreatedByLabel] != string(vm.UID) ||
		dv.Annotations["cdi.kubevirt.io/allowClaimAdoption"] != "true" ||
		dv.Spec.Source == nil || dv.Spec.Source.HTTP == nil || dv.Spec.Source.HTTP.URL != "http://example/disk" {
		t.Errorf("DataVolume %+v", dv)
	}
	claim, err := cdi.Claim(t.ctx, cluster.Client, dv)
	t.must(err)
	t.must(cdi.SetPhase(t.ctx, cluster.Client, dv, cdiv1.ImportInProgress))
	t.waitVM("Provisioning", func(vm *v1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == v1.VirtualMachineStatusProvisioning && failureOf(vm, "") == "" &&
			!vm.Status.Created
	})
	t.quiet()

	// CDI's trouble is the VM's.
	t.must(cdi.SetPhase(t.ctx, cluster.Client, dv, cdiv1.Failed, cdiv1.DataVolumeCondition{
		Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error", Message: "404 Not Found",
	}))
	t.waitVM("DataVolumeError", func(vm *v1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == v1.VirtualMachineStatusDataVolumeError &&
			strings.Contains(failureOf(vm, "FailedDataVolumeImport"), "404 Not Found")
	})

	// One that waits for its first pod gets one that is not the guest's.
	t.must(cdi.SetPhase(t.ctx, cluster.Client, dv, cdiv1.WaitForFirstConsumer))
	vmi := t.waitVMI("provisioning", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == v1.Pending &&
			conditionOf(vmi, v1.VirtualMachineInstanceProvisioning) == corev1.ConditionTrue &&
			conditionOf(vmi, v1.VirtualMachineInstanceDataVolumesReady) == corev1.ConditionFalse
	})
	t.waitPrintable(v1.VirtualMachineStatusProvisioning)
	var pods corev1.PodList
	t.eventually("the pod before the launcher's", func() (bool, error) {
		err := cluster.Client.List(t.ctx, &pods, client.InNamespace(t.namespace),
			client.MatchingLabels{names.LabelComponent: names.ProvisioningPod})
		return len(pods.Items) == 1, err
	})
	first := &pods.Items[0]
	if !metav1.IsControlledBy(first, vmi) || len(first.Spec.Volumes) != 1 ||
		first.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "disk" {
		t.Errorf("first pod %+v", first.Spec)
	}
	t.must(cluster.Bind(t.ctx, first, "node01"))
	t.must(cluster.SetPodStatus(t.ctx, first, func(status *corev1.PodStatus) { status.Phase = corev1.PodSucceeded }))
	t.quiet()
	t.must(cdi.SetPhase(t.ctx, cluster.Client, dv, cdiv1.Succeeded))
	t.setBound(claim, nil)
	t.waitGone(first)

	// The guest's pod comes after it.
	vmi, pod := t.run("node01")
	if conditionOf(vmi, v1.VirtualMachineInstanceDataVolumesReady) != corev1.ConditionTrue ||
		conditionOf(vmi, v1.VirtualMachineInstanceProvisioning) != "" {
		t.Errorf("conditions %+v", vmi.Status.Conditions)
	}
	if info := vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo; info == nil || info.ClaimName != "disk" {
		t.Errorf("volume status %+v", vmi.Status.VolumeStatus)
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "disk"
	}) {
		t.Errorf("the launcher has volumes %+v", pod.Spec.Volumes)
	}
	t.waitPrintable(v1.VirtualMachineStatusRunning)
	t.quiet()
	t.must(cluster.Client.Delete(t.ctx, vm))
	t.endPod(pod)
	t.waitGone(vm)

	// What another namespace has is not this one's to clone, unless it says so.
	t.clones()

	// When CDI goes, so do its DataVolumes, and the VM says it again.
	t.must(cdi.Uninstall(t.ctx, cluster.Client))
	vm = t.createImported("late", func(*cdiv1.DataVolumeSpec) {})
	t.waitVM("Failure that names CDI", func(vm *v1.VirtualMachine) bool {
		return failureOf(vm, "CDINotInstalled") != ""
	})
	t.must(cluster.Client.Delete(t.ctx, vm))
	t.waitGone(vm)
}

func (t *test) clones() {
	t.Helper()
	const images = "images"
	t.must(cluster.CreateNamespace(t.ctx, images))
	t.must(cluster.Client.Create(t.ctx, &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: images, Name: "golden"},
		Spec: cdiv1.DataSourceSpec{
			Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: images, Name: "golden-1"}},
		},
	}))
	vm := t.createImported("cloned", func(spec *cdiv1.DataVolumeSpec) {
		spec.Source, spec.SourceRef = nil,
			&cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Namespace: new(images), Name: "golden"}
	})
	t.waitVM("Failure that names the right", func(vm *v1.VirtualMachine) bool {
		return strings.Contains(failureOf(vm, "UnauthorizedDataVolumeCreate"),
			`service account "`+t.namespace+`/default"`)
	})
	dv := &cdiv1.DataVolume{}
	if err := cluster.Client.Get(t.ctx, t.key("cloned"), dv); !apierrors.IsNotFound(err) {
		t.Errorf("the DataVolume is there all the same: %v", err)
	}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clone"}
	t.must(cluster.Client.Create(t.ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: images, Name: role.Name},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{"cdi.kubevirt.io"}, Resources: []string{"datavolumes/source"},
				Verbs: []string{"create"},
			},
		},
	}))
	t.must(cluster.Client.Create(t.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: images, Name: role.Name}, RoleRef: role,
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: t.namespace, Name: "default"}},
	}))
	dv = t.dataVolume("cloned")
	if source := dv.Spec.Source; dv.Spec.SourceRef != nil || source == nil || source.PVC == nil ||
		source.PVC.Namespace != images || source.PVC.Name != "golden-1" {
		t.Errorf("the DataVolume is filled from %+v, %+v", dv.Spec.Source, dv.Spec.SourceRef)
	}
	t.must(cluster.Client.Delete(t.ctx, vm))
	t.waitGone(vm)
}

// createImported makes a VM whose only disk is a DataVolume of its own.
func (t *test) createImported(name string, change func(*cdiv1.DataVolumeSpec)) *v1.VirtualMachine {
	t.Helper()
	template := v1.DataVolumeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: cdiv1.DataVolumeSpec{
		Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "http://example/disk"}},
		Storage: &cdiv1.StorageSpec{Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
		}},
	}}
	change(&template.Spec)
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: t.namespace},
		Spec: v1.VirtualMachineSpec{
			RunStrategy:         new(v1.RunStrategyAlways),
			DataVolumeTemplates: []v1.DataVolumeTemplateSpec{template},
			Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{
				Architecture: "amd64",
				Domain:       v1.DomainSpec{Memory: &v1.Memory{Guest: new(quantity("128Mi"))}},
				Volumes: []v1.Volume{
					{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: name}}},
				},
			}},
		},
	}
	t.must(cluster.Client.Create(t.ctx, vm))
	return vm
}

// dataVolume waits for one.
func (t *test) dataVolume(name string) *cdiv1.DataVolume {
	t.Helper()
	dv := &cdiv1.DataVolume{}
	t.eventually("DataVolume "+name, func() (bool, error) {
		err := cluster.Client.Get(t.ctx, t.key(name), dv)
		return err == nil, client.IgnoreNotFound(err)
	})
	return dv
}

// failureOf is the message of the VM's Failure, if it has the reason; an empty one is any.
func failureOf(vm *v1.VirtualMachine, reason string) string {
	for _, c := range vm.Status.Conditions {
		if c.Type == v1.VirtualMachineFailure && (reason == "" || c.Reason == reason) {
			return c.Message
		}
	}
	return ""
}

// conditionOf is the status of a VMI's condition; empty for none.
func conditionOf(vmi *v1.VirtualMachineInstance, conditionType v1.VirtualMachineInstanceConditionType,
) corev1.ConditionStatus {
	for _, c := range vmi.Status.Conditions {
		if c.Type == conditionType {
			return c.Status
		}
	}
	return ""
}
