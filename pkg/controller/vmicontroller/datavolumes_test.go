package vmicontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
)

func withDataVolume(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Volumes = append(vmi.Spec.Volumes,
		v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv"}}})
}

func dataVolume(phase cdiv1.DataVolumePhase, conditions ...cdiv1.DataVolumeCondition) map[string]*cdiv1.DataVolume {
	return map[string]*cdiv1.DataVolume{"dv": {
		ObjectMeta: metav1.ObjectMeta{Name: "dv", Namespace: "default"},
		Status:     cdiv1.DataVolumeStatus{Phase: phase, Conditions: conditions},
	}}
}

// ownedClaim is a claim that a DataVolume of its name fills.
func ownedClaim() map[string]*corev1.PersistentVolumeClaim {
	claim := claimOf("dv", corev1.PersistentVolumeFilesystem)
	claim.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: "dv", Controller: new(true)},
	}
	return map[string]*corev1.PersistentVolumeClaim{"dv": claim}
}

func helper(phase corev1.PodPhase, change ...func(*corev1.Pod)) []*corev1.Pod {
	pod := testPod(func(pod *corev1.Pod) { pod.Name, pod.UID, pod.Status.Phase = pod.Name+"-volumes", "helper", phase })
	for _, change := range change {
		change(pod)
	}
	return []*corev1.Pod{pod}
}

// What a VMI does before its pod when its disk is a DataVolume.
func TestDataVolumes(t *testing.T) {
	const notReady, provisioning = "DataVolumesReady=False", "Provisioning=True"
	failed := cdiv1.DataVolumeCondition{
		Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error", Message: "404",
	}
	foreign := map[string]*corev1.PersistentVolumeClaim{"dv": claimOf("dv", corev1.PersistentVolumeFilesystem)}
	for name, test := range map[string]struct {
		view                View
		pod, helper, delete bool
		conditions          string // prefixes, separated by spaces
		message             string // somewhere in the conditions
	}{
		"no CDI":              {view: View{}, conditions: "Synchronized=False", message: "install CDI"},
		"no CDI, but a claim": {view: View{Claims: foreign}, pod: true},
		"no CDI any more":     {view: View{Claims: ownedClaim()}, pod: true},
		"nothing": {
			view: View{CDI: true}, conditions: "Synchronized=False", message: `DataVolume "dv" does not exist`,
		},
		"no claim yet": {
			view: View{CDI: true, DataVolumes: dataVolume("")}, conditions: notReady,
			message: `DataVolume "dv" is Pending`,
		},
		"a claim that is nobody's": {view: View{CDI: true, Claims: foreign}, pod: true},
		"DataVolume not seen yet":  {view: View{CDI: true, Claims: ownedClaim()}, conditions: notReady},
		"import": {
			view:       View{CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.ImportInProgress)},
			conditions: notReady, message: "is ImportInProgress",
		},
		"trouble": {
			view:       View{CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.ImportInProgress, failed)},
			conditions: notReady, message: `"dv": 404`,
		},
		"failed": {
			view:       View{CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.Failed, failed)},
			conditions: "Synchronized=False " + notReady, message: `"dv": 404`,
		},
		"failed without a claim": {
			view: View{CDI: true, DataVolumes: dataVolume(cdiv1.Failed)}, conditions: "Synchronized=False " + notReady,
		},
		"filled": {view: View{CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.Succeeded)}, pod: true},
		"filled once there is a pod": {
			view: View{CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.PendingPopulation)}, pod: true,
		},
		"waits for a pod": {
			view:   View{CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.WaitForFirstConsumer)},
			helper: true, conditions: notReady + " " + provisioning,
		},
		"has it": {
			view: View{
				CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.WaitForFirstConsumer),
				Pods: helper(corev1.PodPending),
			},
			conditions: notReady + " " + provisioning,
		},
		"had it": {
			view: View{
				CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.WaitForFirstConsumer),
				Pods: helper(corev1.PodSucceeded),
			},
			conditions: notReady + " " + provisioning,
		},
		"it failed": {
			view: View{
				CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.WaitForFirstConsumer),
				Pods: helper(corev1.PodFailed),
			},
			delete: true, conditions: notReady + " " + provisioning,
		},
		"import begins": {
			view: View{
				CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.ImportScheduled),
				Pods: helper(corev1.PodRunning),
			},
			delete: true, conditions: notReady,
		},
		"filled, its pod there": {
			view: View{
				CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.Succeeded),
				Pods: helper(corev1.PodSucceeded),
			},
			delete: true, conditions: provisioning,
		},
		"filled, its pod going": {
			view: View{
				CDI: true, Claims: ownedClaim(), DataVolumes: dataVolume(cdiv1.Succeeded),
				Pods: helper(corev1.PodSucceeded, going),
			},
			conditions: provisioning,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.view.VMI, test.view.Now = testVMI(t, v1.Pending, withDataVolume), now
			step := Next(test.view)
			if step.CreatePod != test.pod || step.CreateProvisioning != test.helper ||
				(len(step.DeletePods) > 0) != test.delete {
				t.Errorf("pod %v, provisioning pod %v, deleted %v", step.CreatePod, step.CreateProvisioning,
					step.DeletePods)
			}
			var all strings.Builder
			for _, c := range step.Status.Conditions {
				all.WriteString(string(c.Type) + "=" + string(c.Status) + " " + c.Message + "\n")
			}
			for _, want := range strings.Fields(test.conditions) {
				if !strings.Contains(all.String(), want) {
					t.Errorf("no %s in\n%s", want, all.String())
				}
			}
			if !strings.Contains(all.String(), test.message) {
				t.Errorf("no %q in\n%s", test.message, all.String())
			}
			again := test.view
			again.VMI = test.view.VMI.DeepCopy()
			again.VMI.Status = step.Status
			if second := Next(again); len(second.Events) > 0 {
				t.Errorf("said twice: %+v", second.Events)
			}
		})
	}
}

// The pod before the launcher's is scheduled like it and has only its claims.
func TestProvisioning(t *testing.T) {
	vmi := testVMI(t, v1.Pending, withDataVolume)
	vmi.Labels = map[string]string{"app": "web"}
	pod, launcher := Provisioning(vmi, baseFacts()), Pod(vmi, baseFacts())
	if pod.Name != launcher.Name+"-volumes" || pod.Labels["app"] != "" ||
		pod.Labels[v1.AppLabel] != names.ProvisioningPod || !OwnedBy(pod, vmi.UID) {
		t.Errorf("pod %+v", pod.ObjectMeta)
	}
	if len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "dv" ||
		len(pod.Spec.Containers[0].VolumeMounts) != 1 {
		t.Errorf("volumes %+v, mounts %+v", pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts)
	}
	got, want := pod.Spec.Containers[0].Resources, launcher.Spec.Containers[0].Resources
	if got.Requests.Memory().Cmp(*want.Requests.Memory()) != 0 {
		t.Errorf("it asks for %v, the launcher for %v", got.Requests, want.Requests)
	}
	pod.UID = "provisioning"
	if len(own(View{
		VMI: vmi, Pods: []*corev1.Pod{pod}, Created: map[types.UID]string{pod.UID: purposeProvisioning},
	})) != 0 {
		t.Error("it is taken for the launcher's")
	}
}
