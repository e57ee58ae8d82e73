package vmicontroller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func TestConsoleLog(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	everywhere := func(f *Facts) { f.Config.SerialConsoleLog = true }
	for name, tc := range map[string]struct {
		devices string
		facts   func(*Facts)
		want    bool
	}{
		"not asked":             {"{}", nil, false},
		"asked":                 {"{logSerialConsole: true}", nil, true},
		"not wanted":            {"{logSerialConsole: false}", nil, false},
		"everywhere":            {"{}", everywhere, true},
		"everywhere but here":   {"{logSerialConsole: false}", everywhere, false},
		"no console":            {"{autoattachSerialConsole: false, logSerialConsole: true}", nil, false},
		"everywhere no console": {"{autoattachSerialConsole: false}", everywhere, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := plan(t, "spec: {domain: {devices: "+tc.devices+"}}", tc.facts)
			if got := len(pod.Spec.InitContainers) == 1; got != tc.want {
				t.Fatalf("init containers %+v", pod.Spec.InitContainers)
			}
			if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted,
				&pod.ObjectMeta, &pod.Spec)); !result.Allowed {
				t.Errorf("not restricted: %s", result.ForbiddenDetail())
			}
			if !tc.want {
				return
			}
			c := pod.Spec.InitContainers[0]
			if c.Name != "guest-console-log" || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways ||
				!c.VolumeMounts[0].ReadOnly ||
				c.Image != pod.Spec.Containers[0].Image || c.Resources.Limits != nil ||
				c.Resources.Requests.Memory().Value() > 10<<20 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// A pod that would be Guaranteed by its launcher is so with the log, too.
func TestConsoleLogIsGuaranteed(t *testing.T) {
	two := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	got := consoleLogResources(&corev1.ResourceRequirements{Requests: two, Limits: two})
	if !got.Limits.Cpu().Equal(*got.Requests.Cpu()) || !got.Limits.Memory().Equal(*got.Requests.Memory()) ||
		got.Limits.Cpu().IsZero() {
		t.Errorf("%+v", got)
	}
	limited := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	got = consoleLogResources(&corev1.ResourceRequirements{Requests: two, Limits: limited})
	if len(got.Limits) != 1 || got.Limits.Memory().IsZero() || got.Limits.Memory().Equal(*got.Requests.Memory()) {
		t.Errorf("beside a limit of memory alone %+v", got)
	}
}
