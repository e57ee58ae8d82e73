package surface

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestValidatePlacement(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"the user guide's": {
			`{imagePullPolicy: IfNotPresent, imagePullSecrets: [{name: registry}], infra: {replicas: 3, nodePlacement: {
			nodeSelector: {node-role.kubernetes.io/control-plane: ""}, tolerations: [{key: CriticalAddonsOnly, operator: Exists}, {key: x, value: y, effect: NoSchedule}],
			affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}}},
			workloads: {nodePlacement: {nodeSelector: {vms: "yes"}}}}`,
			``,
		},
		"none":     {`{infra: {replicas: 0}}`, `spec.infra.replicas: must be 1 or more`},
		"handlers": {`{workloads: {replicas: 2}}`, `spec.workloads.replicas: not supported by virtkit`},
		"a selector": {
			`{workloads: {nodePlacement: {nodeSelector: {a: "b c"}}}}`, `spec.workloads.nodePlacement.nodeSelector`,
		},
		"an affinity": {
			`{infra: {nodePlacement: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}}}`,
			`spec.infra.nodePlacement.affinity.nodeAffinity.`,
		},
		"any taint": {
			`{infra: {nodePlacement: {tolerations: [{value: x}]}}}`,
			`spec.infra.nodePlacement.tolerations[0].key: is not set`,
		},
		"a value": {
			`{infra: {nodePlacement: {tolerations: [{key: a, operator: Exists, value: x}]}}}`,
			`spec.infra.nodePlacement.tolerations[0].value: cannot be set`,
		},
		"an operator": {
			`{infra: {nodePlacement: {tolerations: [{key: a, operator: Like}]}}}`,
			`spec.infra.nodePlacement.tolerations[0].operator`,
		},
		"an effect": {
			`{infra: {nodePlacement: {tolerations: [{key: a, value: b, effect: Never}]}}}`,
			`spec.infra.nodePlacement.tolerations[0].effect`,
		},
		"a secret": {`{imagePullSecrets: [{name: "My Secret"}]}`, `spec.imagePullSecrets[0].name`},
		"a policy": {`{imagePullPolicy: Sometimes}`, `spec.imagePullPolicy: "Sometimes" is not supported`},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &v1.KubeVirt{
				ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"},
				Spec:       *parse[v1.KubeVirtSpec](t, tc.spec),
			}
			got := Message(ValidateKubeVirt(kv, nil))
			if tc.want == "" && got != "" || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
