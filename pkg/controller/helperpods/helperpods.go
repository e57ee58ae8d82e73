// Package helperpods builds the pods that virt-controller makes in tenants' namespaces beside launchers: those that
// take an upload and those that serve an export. It is pure.
package helperpods

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// Restricted returns a pod of one container that passes Pod Security `restricted`. It runs as the user of
// virt-launcher, to whom kubelet gives the files of its volumes, has a root file system that is only read and no
// service account's token, and goes to a node where a virt-handler runs, and so virt-server's and virt-launcher's
// images are; nodeSelectors restrict it further. grace is how long its process has to end, seconds.
func Restricted(
	meta metav1.ObjectMeta, container corev1.Container, volumes []corev1.Volume, nodeSelectors map[string]string,
	grace int64,
) *corev1.Pod {
	container.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		ReadOnlyRootFilesystem:   new(true),
	}
	selector := map[string]string{}
	maps.Copy(selector, nodeSelectors)
	selector[v1.NodeSchedulable] = "true"
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			NodeSelector:                  selector,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser:           new(int64(names.User)),
				RunAsGroup:          new(int64(names.Group)),
				RunAsNonRoot:        new(true),
				FSGroup:             new(int64(names.Group)),
				FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{container},
			Volumes:    volumes,
		},
	}
}
