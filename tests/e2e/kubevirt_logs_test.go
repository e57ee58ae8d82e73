//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Labels and an annotation make libvirt log for debugging; its lines and QEMU's are in the launcher's log, and without
// them nothing of what QEMU is asked is.
func TestDebugLogs(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	const asked, subcomponent = "QEMU_MONITOR_SEND_MSG", `"subcomponent":"libvirt"`
	for name, meta := range map[string]struct {
		labels, annotations map[string]string
		debugs              bool
	}{
		"label": {labels: map[string]string{"debugLogs": "true"}, debugs: true},
		"filters": {
			annotations: map[string]string{v1.CustomLibvirtLogFiltersAnnotation: "1:qemu.qemu_monitor 3:*"},
			debugs:      true,
		},
		"quiet": {labels: map[string]string{"logVerbosity": "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := c.create(t, newVM(ns, name, v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
				template := &vm.Spec.Template.ObjectMeta
				template.Labels, template.Annotations = meta.labels, meta.annotations
			}))
			g.waitPhase(t, bootTime, v1.Running)
			log := ""
			eventually(t, time.Minute, "the launcher's log has what it is to have", func() string {
				text, err := c.Kube.CoreV1().Pods(ns).GetLogs(g.pod(t).Name,
					&corev1.PodLogOptions{Container: "compute"}).DoRaw(t.Context())
				if err != nil {
					return err.Error()
				}
				log = string(text)
				switch {
				case !strings.Contains(log, `"component":"virt-launcher"`):
					return "no line is JSON"
				case !strings.Contains(log, `"subcomponent":"qemu"`):
					return "no line is QEMU's"
				case meta.debugs && (!strings.Contains(log, asked) || !strings.Contains(log, subcomponent)):
					return "no line is libvirt's for debugging"
				}
				return ""
			})
			if !meta.debugs && strings.Contains(log, asked) {
				t.Error("it has what QEMU was asked, and nobody wanted that")
			}
		})
	}
}
