package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	json, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	// Integers as int64, as an API client reads them.
	if err := utiljson.Unmarshal(json, &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReadiness(t *testing.T) {
	for _, test := range []struct{ name, object, want string }{
		{
			"deployment without status", `{kind: Deployment, metadata: {generation: 1}, spec: {replicas: 2}}`,
			"0 of 2 ready",
		},
		{
			"deployment ready",
			`{kind: Deployment, metadata: {generation: 1}, spec: {replicas: 2}, status: {observedGeneration: 1, updatedReplicas: 2, availableReplicas: 2}}`,
			"",
		},
		{
			"deployment rolling over",
			`{kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 2, updatedReplicas: 1, availableReplicas: 2}}`,
			"1 of 2 ready",
		},
		{
			"deployment not seen yet",
			`{kind: Deployment, metadata: {generation: 2}, spec: {replicas: 2}, status: {observedGeneration: 1, updatedReplicas: 2, availableReplicas: 2}}`,
			"0 of 2 ready",
		},
		{
			"deployment's default",
			`{kind: Deployment, metadata: {generation: 1}, spec: {}, status: {observedGeneration: 1, updatedReplicas: 1, availableReplicas: 1}}`,
			"",
		},
		{
			"daemonset without node", `{kind: DaemonSet, metadata: {generation: 1}, status: {observedGeneration: 1}}`,
			"no node yet",
		},
		{
			"daemonset partly",
			`{kind: DaemonSet, metadata: {generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 2}}`,
			"2 of 3 ready",
		},
		{
			"daemonset ready",
			`{kind: DaemonSet, metadata: {generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3}}`,
			"",
		},
		{"api service new", `{kind: APIService}`, "not answering"},
		{
			"api service failing",
			`{kind: APIService, status: {conditions: [{type: Available, status: "False", reason: FailedDiscoveryCheck}]}}`,
			"FailedDiscoveryCheck",
		},
		{"api service ready", `{kind: APIService, status: {conditions: [{type: Available, status: "True"}]}}`, ""},
		{"kubevirt new", `{kind: KubeVirt}`, "no status yet"},
		{
			"kubevirt deploying",
			`{kind: KubeVirt, status: {conditions: [{type: Available, status: "False", reason: DeploymentInProgress}]}}`,
			"DeploymentInProgress",
		},
		{"kubevirt ready", `{kind: KubeVirt, status: {conditions: [{type: Available, status: "True"}]}}`, ""},
	} {
		o := object(t, test.object)
		if got := readiness[o.GetKind()](o); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestAilment(t *testing.T) {
	for _, test := range []struct{ name, pod, want string }{
		{
			"starting",
			`{metadata: {name: a}, status: {containerStatuses: [{state: {waiting: {reason: ContainerCreating}}}]}}`, "",
		},
		{
			"image",
			`{metadata: {name: a}, status: {containerStatuses: [{state: {waiting: {reason: ImagePullBackOff, message: no such image}}}]}}`,
			"pod a: ImagePullBackOff: no such image",
		},
		{
			"unschedulable",
			`{metadata: {name: a}, status: {conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/1 nodes"}]}}`,
			"pod a: Unschedulable: 0/1 nodes",
		},
		{
			"ended",
			`{metadata: {name: a}, status: {containerStatuses: [{state: {terminated: {exitCode: 1, reason: Error}}}]}}`,
			"pod a: its container ended: Error",
		},
		{
			"evicted",
			`{metadata: {name: a}, status: {phase: Failed, containerStatuses: [{state: {terminated: {exitCode: 137}}}]}}`,
			"",
		},
		{"running", `{metadata: {name: a}, status: {containerStatuses: [{state: {running: {}}}]}}`, ""},
	} {
		if got := ailment(object(t, test.pod)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for version, problem := range map[string]string{
		"v1.35.0":              "",
		"v1.37.1":              "",
		"v1.35.0-alpha.1":      "",
		"v1.36.2+k3s1":         "",
		"v1.40.3-gke.1":        "",
		"v1.34.9":              "needs 1.35 or newer",
		"v1.34.5-eks-ac2d5a0":  "needs 1.35 or newer",
		"some day":             "cannot be understood",
		"v2.0.0":               "",
		"v1.35.1-rc.0+abcdef0": "",
	} {
		err := checkVersion(version)
		switch {
		case problem == "" && err != nil:
			t.Errorf("%s: %v", version, err)
		case problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%s: %v, want %q", version, err, problem)
		}
	}
}

func TestGuestsError(t *testing.T) {
	err := &GuestsError{Names: []string{"vm a/1", "vm a/2", "vm a/3", "vm a/4", "vm a/5", "vm a/6", "vm a/7"}}
	if want := "there are virtual machines in this cluster: vm a/1, vm a/2, vm a/3, " +
		"vm a/4, vm a/5 and 2 more"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestNodePatch(t *testing.T) {
	node := object(t,
		`{metadata: {labels: {kubevirt.io/schedulable: "true", cpu-model.node.kubevirt.io/x: "1", keep: "1", notkubevirt.io/x: "1"}, annotations: {kubevirt.io/heartbeat: now}}}`)
	want := `{"metadata":{"annotations":{"kubevirt.io/heartbeat":null},"labels":{"cpu-model.node.kubevirt.io/x":null,"kubevirt.io/schedulable":null}}}`
	if got := string(nodePatch(node)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := nodePatch(object(t, `{metadata: {labels: {keep: "1"}}}`)); got != nil {
		t.Errorf("%s, want nothing", got)
	}
}
