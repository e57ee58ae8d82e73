package vmicontroller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

func hasHostPath(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
}

func init() {
	for name, volumes := range map[string]string{
		"config map":          `configMap: {name: settings, volumeLabel: OEMDRV}`,
		"config map optional": `configMap: {name: settings, optional: true}`,
		"secret volume":       `secret: {secretName: keys}`,
		"service account":     `serviceAccount: {serviceAccountName: robot}`,
		"downward " +
			"api": `downwardAPI: {fields: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: sub/memory, resourceFieldRef: {resource: requests.memory}}]}`,
		"ephemeral claim":       `ephemeral: {persistentVolumeClaim: {claimName: fs}}`,
		"ephemeral block claim": `ephemeral: {persistentVolumeClaim: {claimName: block, readOnly: true}}`,
		"downward metrics":      `downwardMetrics: {}`,
		"host disk":             `hostDisk: {path: /data/disks/a.img, type: Disk}`,
		"host disk made":        `hostDisk: {path: /data/disks/a.img, type: DiskOrCreate, capacity: 1Gi}`,
	} {
		addPodCase(name, `spec: {volumes: [{name: data, `+volumes+`}]}`)
	}
	addPodCase("kernel boot", `
spec:
  domain:
    firmware: {kernelBoot: {kernelArgs: quiet, container: {image: "registry.example/kernel:1", imagePullSecret: one, imagePullPolicy: Always, kernelPath: /boot/vmlinuz}}}`)
}

func addPodCase(name, vmi string) {
	podCases = append(podCases, struct {
		name  string
		vmi   string
		facts func(*Facts)
	}{name: name, vmi: vmi})
}
