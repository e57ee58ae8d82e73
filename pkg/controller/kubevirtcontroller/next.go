// Package kubevirtcontroller keeps the status of the KubeVirt resource. Its inputs are the resource itself and
// the Deployments and the DaemonSet of virtkit's components; its output is the resource's status:
// the phase, the conditions Available, Created, Progressing and Degraded, and the versions.
package kubevirtcontroller

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
)

// View is the input of the status.
type View struct {
	KubeVirt *v1.KubeVirt
	// Deployments and DaemonSets are the components that exist, by name.
	Deployments map[string]*appsv1.Deployment
	DaemonSets  map[string]*appsv1.DaemonSet
	// Version is this virt-controller's.
	Version      string
	Architecture string
	// Written is the time of the last write of the status.
	Written time.Time
	Now     time.Time
}

// Step holds what to write; the zero Step writes nothing.
type Step struct {
	// Status is the status to write; nil leaves it.
	Status *v1.KubeVirtStatus
	frame.Requeue
}

// settle is the time for which the status waits for more news while the components come up one pod after the other.
// Becoming available at last, or unavailable, is written at once.
const settle = time.Second

// Next decides.
func Next(view View) Step {
	was, status := view.KubeVirt.Status, Status(view)
	if equality.Semantic.DeepEqual(was, status) {
		return Step{}
	}
	if left := settle - view.Now.Sub(view.Written); left > 0 && !urgent(was, status) {
		return Step{Requeue: frame.Requeue{RequeueAfter: left}}
	}
	return Step{Status: &status}
}

// urgent reports whether the phase or a condition changes, not only a message.
func urgent(old, status v1.KubeVirtStatus) bool {
	if old.Phase != status.Phase || len(old.Conditions) != len(status.Conditions) {
		return true
	}
	for i := range old.Conditions {
		if old.Conditions[i].Status != status.Conditions[i].Status {
			return true
		}
	}
	return false
}
