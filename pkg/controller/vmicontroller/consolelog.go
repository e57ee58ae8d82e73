package vmicontroller

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/peripherals"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// consoleLog returns the container whose log is the guest's serial console, or none. It is a sidecar: an init container
// with restartPolicy Always, which Kubernetes starts before the launcher and ends after it. So it logs the guest's last
// words, and keeps no pod alive. It costs a VM that has it two passes of the kubelet, one at each end, and some
// megabytes; `virtctl logs` shows the same without it. So it exists only when asked for.
func consoleLog(vmi *v1.VirtualMachineInstance, facts Facts, compute *corev1.Container) []corev1.Container {
	devices := &vmi.Spec.Domain.Devices
	if !peripherals.SerialConsole(devices) {
		return nil
	}
	wanted := facts.Config.SerialConsoleLog
	if devices.LogSerialConsole != nil {
		wanted = *devices.LogSerialConsole
	}
	if !wanted {
		return nil
	}
	resources := consoleLogResources(&compute.Resources)
	if given := facts.Config.Support.ConsoleLog; given != nil && !sizing.Dedicated(&vmi.Spec.Domain) {
		resources = *given.DeepCopy()
	}
	return []corev1.Container{{
		Name:            names.ContainerConsoleLog,
		Image:           compute.Image,
		ImagePullPolicy: compute.ImagePullPolicy,
		Command:         []string{launcherBinary, "console-log"},
		RestartPolicy:   new(corev1.ContainerRestartPolicyAlways),
		Resources:       resources,
		VolumeMounts:    []corev1.VolumeMount{{Name: names.VolumeRun, MountPath: names.RunDir, ReadOnly: true}},
		SecurityContext: compute.SecurityContext.DeepCopy(),
	}}
}

// consoleLogResources returns its requests: little, with a limit on what the guest's container has a limit on, as a
// quota asks it of all containers. In a pod of QoS class Guaranteed it requests its limits, as all containers of such a
// pod must.
func consoleLogResources(compute *corev1.ResourceRequirements) corev1.ResourceRequirements {
	most := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("20m"),
		corev1.ResourceMemory: resource.MustParse("32Mi"),
	}
	if guaranteed(compute) {
		return corev1.ResourceRequirements{Requests: most, Limits: most.DeepCopy()}
	}
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("10Mi"),
	}}
	for name, limit := range most {
		if _, limited := compute.Limits[name]; limited {
			if out.Limits == nil {
				out.Limits = corev1.ResourceList{}
			}
			out.Limits[name] = limit
		}
	}
	return out
}
