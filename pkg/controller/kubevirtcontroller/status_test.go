package kubevirtcontroller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

func deploymentOf(want, updated, available int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: &want},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: 2, Replicas: want, UpdatedReplicas: updated, AvailableReplicas: available,
		},
	}
}

func daemonSetOf(want, updated, available int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Generation: 1},
		Status: appsv1.DaemonSetStatus{
			ObservedGeneration: 1, DesiredNumberScheduled: want, UpdatedNumberScheduled: updated,
			NumberAvailable: available,
		},
	}
}

func TestStatus(t *testing.T) {
	all := deploymentOf(2, 2, 2)
	cases := []struct {
		name            string
		was             v1.KubeVirtPhase
		api, controller *appsv1.Deployment
		handler         *appsv1.DaemonSet
		phase           v1.KubeVirtPhase
		// conditions are Created, Available, Progressing, Degraded.
		conditions string
		observed   string
	}{
		{"nothing yet", "", nil, all, nil, v1.KubeVirtPhaseDeploying, "False False True False", ""},
		{
			"coming up", "", deploymentOf(2, 2, 0), all, daemonSetOf(2, 2, 0), v1.KubeVirtPhaseDeploying,
			"True False True False", "",
		},
		{
			"daemon set not observed", "", all, all, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 1}},
			v1.KubeVirtPhaseDeploying, "True False True False", "",
		},
		{
			"enough", "", deploymentOf(2, 2, 1), all, daemonSetOf(2, 2, 2), v1.KubeVirtPhaseDeployed,
			"True True True False", "",
		},
		{"all", "", all, all, daemonSetOf(2, 2, 2), v1.KubeVirtPhaseDeployed, "True True False False", "v1"},
		{"no node yet", "", all, all, daemonSetOf(0, 0, 0), v1.KubeVirtPhaseDeployed, "True True False False", "v1"},
		{
			"one node of three down", v1.KubeVirtPhaseDeployed, all, all, daemonSetOf(3, 3, 2),
			v1.KubeVirtPhaseDeployed, "True True True False", "",
		},
		{
			"one node of two down", v1.KubeVirtPhaseDeployed, all, all, daemonSetOf(2, 2, 1), v1.KubeVirtPhaseDeployed,
			"True False True True", "",
		},
		{
			"virt-api broken", v1.KubeVirtPhaseDeployed, deploymentOf(2, 2, 0), all, daemonSetOf(2, 2, 2),
			v1.KubeVirtPhaseDeployed, "True False True True", "",
		},
		{
			"upgrading", v1.KubeVirtPhaseDeployed, deploymentOf(2, 1, 2), all, daemonSetOf(2, 1, 2),
			v1.KubeVirtPhaseDeployed, "True True True False", "",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			view := View{
				KubeVirt: &v1.KubeVirt{
					ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Generation: 7},
					Status:     v1.KubeVirtStatus{Phase: c.was},
				},
				Deployments: map[string]*appsv1.Deployment{names.VirtController: c.controller},
				DaemonSets:  map[string]*appsv1.DaemonSet{},
				Version:     "v1", Architecture: "amd64", Now: time.Now(),
			}
			if c.api != nil {
				view.Deployments[names.VirtAPI] = c.api
			}
			if c.handler != nil {
				view.DaemonSets[names.VirtHandler] = c.handler
			}
			got := Status(view)
			conditions := ""
			for i, want := range []v1.KubeVirtConditionType{
				v1.KubeVirtConditionCreated, v1.KubeVirtConditionAvailable, v1.KubeVirtConditionProgressing,
				v1.KubeVirtConditionDegraded,
			} {
				if got.Conditions[i].Type != want {
					t.Fatalf("condition %d is %s", i, got.Conditions[i].Type)
				}
				conditions += string(got.Conditions[i].Status) + " "
			}
			if got.Phase != c.phase || conditions != c.conditions+" " || got.ObservedKubeVirtVersion != c.observed {
				t.Errorf("phase %s, conditions %s, observed %q", got.Phase, conditions, got.ObservedKubeVirtVersion)
			}
			if got.TargetKubeVirtVersion != "v1" || got.DefaultArchitecture != "amd64" || *got.ObservedGeneration != 7 {
				t.Errorf("%+v", got)
			}
			view.KubeVirt.Status, view.Now = got, view.Now.Add(time.Minute)
			if diff := cmp.Diff(got, Status(view)); diff != "" {
				t.Errorf("not stable\n%s", diff)
			}
		})
	}
}
