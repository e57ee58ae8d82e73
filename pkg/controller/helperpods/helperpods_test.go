package helperpods

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	v1 "kubevirt.io/api/core/v1"
)

// The pod passes Pod Security restricted, has no token, and goes where a virt-handler is, whatever a configuration
// says.
func TestRestricted(t *testing.T) {
	config := map[string]string{"zone": "a", v1.NodeSchedulable: "false"}
	pod := Restricted(metav1.ObjectMeta{Name: "p"}, corev1.Container{Name: "c"}, nil, config, 5)
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
	if !result.Allowed {
		t.Errorf("not restricted: %s", result.ForbiddenDetail())
	}
	if *pod.Spec.AutomountServiceAccountToken || *pod.Spec.TerminationGracePeriodSeconds != 5 {
		t.Errorf("spec %+v", pod.Spec)
	}
	want := map[string]string{"zone": "a", v1.NodeSchedulable: "true"}
	if diff := cmp.Diff(want, pod.Spec.NodeSelector); diff != "" {
		t.Error(diff)
	}
	if config[v1.NodeSchedulable] != "false" {
		t.Error("the configuration's selectors were changed")
	}
}
