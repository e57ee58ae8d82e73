package kubevirtcontroller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestNext(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	view := View{
		KubeVirt: &v1.KubeVirt{}, Version: "v1", Now: now,
		Deployments: map[string]*appsv1.Deployment{
			names.VirtAPI:        deploymentOf(2, 2, 0),
			names.VirtController: deploymentOf(2, 2, 2),
		},
		DaemonSets: map[string]*appsv1.DaemonSet{names.VirtHandler: daemonSetOf(2, 2, 0)},
	}
	step := Next(view)
	if step.Status == nil || step.RequeueAfter != 0 {
		t.Fatalf("the first status: %+v", step)
	}
	view.KubeVirt.Status, view.Written = *step.Status, now.Add(-settle/2)
	if step := Next(view); step.Status != nil || step.RequeueAfter != 0 {
		t.Errorf("nothing new: %+v", step)
	}
	view.DaemonSets[names.VirtHandler] = daemonSetOf(3, 2, 0)
	if step := Next(view); step.Status != nil || step.RequeueAfter != settle/2 {
		t.Errorf("another message, a moment later: %+v", step)
	}
	view.Written = now.Add(-settle)
	if step := Next(view); step.Status == nil {
		t.Errorf("another message: %+v", step)
	}
	view.Written = now
	view.Deployments[names.VirtAPI], view.DaemonSets[names.VirtHandler] = deploymentOf(2, 2, 2), daemonSetOf(2, 2, 2)
	if step := Next(view); step.Status == nil {
		t.Errorf("available at last: %+v", step)
	}
}
