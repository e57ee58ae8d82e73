package vmicontroller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

func TestProbes(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	for name, tc := range map[string]struct{ probe, want string }{
		"http": {
			"{httpGet: {port: web, path: /ok, scheme: HTTPS, httpHeaders: [{name: A, value: b}]}, " +
				"initialDelaySeconds: 5, periodSeconds: 3}",
			"{httpGet: {port: web, path: /ok, scheme: HTTPS, httpHeaders: [{name: A, value: b}]}, " +
				"initialDelaySeconds: 5, periodSeconds: 3, timeoutSeconds: 1}",
		},
		"tcp": {
			"{tcpSocket: {port: 22}, timeoutSeconds: 4, failureThreshold: 9, successThreshold: 2}",
			"{tcpSocket: {port: 22}, timeoutSeconds: 4, failureThreshold: 9, successThreshold: 2}",
		},
		"exec": {
			"{exec: {command: [cat, --, /tmp/ok]}, timeoutSeconds: 4}",
			"{exec: {command: [/usr/bin/virt-launcher, probe, --timeout=4s, --, cat, --, /tmp/ok]}, timeoutSeconds: 5}",
		},
		"ping": {
			"{guestAgentPing: {}}",
			"{exec: {command: [/usr/bin/virt-launcher, probe, --timeout=1s]}, timeoutSeconds: 2}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := &corev1.Probe{}
			if err := yaml.UnmarshalStrict([]byte(tc.want), want); err != nil {
				t.Fatal(err)
			}
			pod := plan(t, "spec: {readinessProbe: "+tc.probe+", livenessProbe: "+tc.probe+"}", nil)
			for kind, got := range map[string]*corev1.Probe{
				"readiness": pod.Spec.Containers[0].ReadinessProbe,
				"liveness":  pod.Spec.Containers[0].LivenessProbe,
			} {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s:\n%s", kind, diff)
				}
			}
			if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted,
				&pod.ObjectMeta, &pod.Spec)); !result.Allowed {
				t.Errorf("not restricted: %s", result.ForbiddenDetail())
			}
		})
	}
}

func TestContainerPorts(t *testing.T) {
	pod := plan(t,
		"spec: {domain: {devices: {interfaces: [{name: default, masquerade: {}, ports: [{name: web, port: 80}, "+
			"{port: 53, protocol: UDP}]}]}}}", nil)
	want := []corev1.ContainerPort{
		{Name: "web", ContainerPort: 80, Protocol: corev1.ProtocolTCP},
		{ContainerPort: 53, Protocol: corev1.ProtocolUDP},
	}
	if diff := cmp.Diff(want, pod.Spec.Containers[0].Ports); diff != "" {
		t.Error(diff)
	}
}

func TestTargetProbe(t *testing.T) {
	if p := TargetProbe(parseVMI(t, "")); p != nil {
		t.Errorf("nothing is to be held back: %+v", p)
	}
	p := TargetProbe(parseVMI(t, "spec: {livenessProbe: {guestAgentPing: {}}}"))
	want := []string{"/usr/bin/virt-launcher", "probe", "--arrived", "--timeout=600s"}
	if p == nil || !cmp.Equal(p.Exec.Command, want) || p.TimeoutSeconds != 601 ||
		p.FailureThreshold*p.TimeoutSeconds < 24*60*60 {
		t.Errorf("%+v", p)
	}
}
