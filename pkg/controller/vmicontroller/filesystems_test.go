package vmicontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

func init() {
	for name, volumes := range map[string]string{
		"shared config map":      `configMap: {name: settings, optional: true}`,
		"shared service account": `serviceAccount: {serviceAccountName: robot}`,
		"shared claim":           `persistentVolumeClaim: {claimName: fs}`,
		"shared read-only claim": `persistentVolumeClaim: {claimName: fs, readOnly: true}`,
	} {
		addPodCase(name,
			`spec: {domain: {devices: {filesystems: [{name: data, virtiofs: {}}]}}, volumes: [{name: data, `+volumes+
				`}]}`)
	}
	addPodCase("shared volumes and log", `
spec:
  domain: {devices: {logSerialConsole: true, filesystems: [{name: run, virtiofs: {}}, {name: filesystems, virtiofs: {}}]}}
  volumes: [{name: run, secret: {secretName: keys}}, {name: filesystems, dataVolume: {name: fs}}]`)
}

func TestVirtiofsdResources(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				out[name] = resource.MustParse(text)
			}
		}
		return out
	}
	for name, tc := range map[string]struct{ requests, limits, wantRequests, wantLimits corev1.ResourceList }{
		"nothing":    {nil, nil, list("10m", "16Mi"), nil},
		"burstable":  {list("1", "1Gi"), nil, list("10m", "16Mi"), nil},
		"limited":    {list("1", "1Gi"), list("2", "2Gi"), list("10m", "16Mi"), list("1", "80M")},
		"by memory":  {list("1", "1Gi"), list("", "1Gi"), list("10m", "16Mi"), list("", "80M")},
		"guaranteed": {list("1", "1Gi"), list("1", "1Gi"), list("100m", "80M"), list("100m", "80M")},
	} {
		t.Run(name, func(t *testing.T) {
			got := virtiofsdResources(&corev1.ResourceRequirements{Requests: tc.requests, Limits: tc.limits})
			for what, pair := range map[string][2]corev1.ResourceList{
				"requests": {got.Requests, tc.wantRequests},
				"limits":   {got.Limits, tc.wantLimits},
			} {
				for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
					have, has := pair[0][resource]
					want, wants := pair[1][resource]
					if has != wants || have.Cmp(want) != 0 {
						t.Errorf("%s of %s: %s, want %s", what, resource, have.String(), want.String())
					}
				}
			}
		})
	}
}

// A claim without a file system is said to have none, before a pod would wait for it in vain.
func TestDeviceAsFilesystem(t *testing.T) {
	shares := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes = parseClaimVolume()
		vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{
			{Name: vmi.Spec.Volumes[0].Name, Virtiofs: &v1.FilesystemVirtiofs{}},
		}
	}
	for mode, waits := range map[corev1.PersistentVolumeMode]bool{"Block": true, "Filesystem": false} {
		view := View{
			VMI:    testVMI(t, "", shares),
			Claims: map[string]*corev1.PersistentVolumeClaim{"data": claimOf("data", mode)}, Now: now,
		}
		step := Next(view)
		condition := conditions.Find(step.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
		if step.CreatePod == waits || (condition != nil) != waits {
			t.Errorf("%s: create %v, condition %+v", mode, step.CreatePod, condition)
		}
		if waits && !strings.Contains(condition.Message, "PersistentVolumeClaim data has volumeMode Block") {
			t.Errorf("%s: %s", mode, condition.Message)
		}
	}
}
