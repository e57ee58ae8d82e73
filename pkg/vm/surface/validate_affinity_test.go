package surface

import (
	"strings"
	"testing"
)

// Each case is what of a pod's scheduling a spec sets; want is the start of the only message, or nothing.
func TestValidateScheduling(t *testing.T) {
	node := func(terms string) string {
		return "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" +
			terms + "]}}}"
	}
	expression := func(text string) string { return node("{matchExpressions: [" + text + "]}") }
	fields := func(text string) string { return node("{matchFields: [" + text + "]}") }
	pods := func(term string) string {
		return "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [" + term + "]}}"
	}
	liked := func(text string) string {
		return "affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [" + text + "]}}"
	}
	spread := func(text string) string {
		return "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, " + text +
			"}]"
	}
	const (
		atNode  = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
		atExpr  = atNode + "[0].matchExpressions[0]"
		atField = atNode + "[0].matchFields[0]"
		atPods  = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
		atLiked = "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
		atOne   = "spec.topologySpreadConstraints[0]"
	)
	for name, tc := range map[string]struct{ spec, want string }{
		"node": {expression("{key: a, operator: In, values: [b]}"), ``},
		"node with all": {
			expression("{key: a, operator: Exists}, {key: b, operator: DoesNotExist}, {key: c, operator: Gt, " +
				"values: ['3']}, {key: d, operator: NotIn, values: [e, f]}"),
			``,
		},
		"no term": {node(""), atNode + ": has no term"},
		"no key":  {expression("{operator: Exists}"), atExpr + ".key: is not set"},
		"operator": {
			expression("{key: a, operator: Is, values: [b]}"),
			atExpr + `.operator: "Is" is not an operator; use In, NotIn, Exists, DoesNotExist, Gt or Lt`,
		},
		"in nothing": {
			expression("{key: a, operator: In}"), atExpr + ".values: are not set; operator In needs at least one",
		},
		"exists with a value": {
			expression("{key: a, operator: Exists, values: [b]}"),
			atExpr + ".values: cannot be set with operator Exists",
		},
		"more than two": {
			expression("{key: a, operator: Gt, values: ['1', '2']}"),
			atExpr + ".values: are 2; operator Gt needs exactly one",
		},
		"more than text": {
			expression("{key: a, operator: Lt, values: [many]}"), atExpr + `.values[0]: "many" is not a whole number`,
		},
		"field": {fields("{key: metadata.name, operator: In, values: [one]}"), ``},
		"field of another": {
			fields("{key: spec.x, operator: In, values: [one]}"), atField + `.key: "spec.x" is not a field`,
		},
		"field's operator": {
			fields("{key: metadata.name, operator: Exists}"),
			atField + `.operator: "Exists" is not an operator for fields`,
		},
		"field's values": {
			fields("{key: metadata.name, operator: In, values: [a, b]}"), atField + ".values: has 2 values",
		},
		"preferred node": {
			"affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, " +
				"preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}",
			"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: 0 is " +
				"not a weight; use 1 to 100",
		},
		"pods": {pods("{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}"), ``},
		"pods without key": {
			pods("{labelSelector: {matchLabels: {a: b}}}"),
			atPods + ".topologyKey: is not set; kubernetes.io/hostname makes each node one",
		},
		"pods' selector": {
			pods("{topologyKey: a, labelSelector: {matchExpressions: [{key: a, operator: In}]}}"),
			atPods + ".labelSelector.matchExpressions[0].values",
		},
		"pods' namespaces": {
			pods("{topologyKey: a, namespaces: [A_b]}"),
			atPods + `.namespaces[0]: "A_b" is not the name of a namespace`,
		},
		"pods' label keys": {
			pods("{topologyKey: a, matchLabelKeys: [a]}"),
			atPods + ".matchLabelKeys: cannot be set without labelSelector",
		},
		"liked pods": {liked("{weight: 100, podAffinityTerm: {topologyKey: a}}"), ``},
		"liked too much": {
			liked("{weight: 101, podAffinityTerm: {topologyKey: a}}"), atLiked + ".weight: 101 is not a weight",
		},
		"liked nowhere": {
			liked("{weight: 1, podAffinityTerm: {}}"), atLiked + ".podAffinityTerm.topologyKey: is not set",
		},
		"spread": {
			spread("minDomains: 2, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [c], nodeTaintsPolicy: Honor"),
			``,
		},
		"spread without doing": {
			"topologySpreadConstraints: [{maxSkew: 1, topologyKey: a}]",
			atOne + `.whenUnsatisfiable: "" does not say what to do; use DoNotSchedule or ScheduleAnyway`,
		},
		"spread twice": {
			"topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, " +
				"{maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
			"spec.topologySpreadConstraints[1]: there is another constraint",
		},
		"spread domains": {spread("minDomains: 0"), atOne + ".minDomains: must be 1 or more"},
		"spread's domains": {
			"topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, " +
				"whenUnsatisfiable: ScheduleAnyway, minDomains: 2}]",
			atOne + ".minDomains: is for whenUnsatisfiable: DoNotSchedule",
		},
		"spread's policy": {
			spread("nodeAffinityPolicy: Maybe"),
			atOne + `.nodeAffinityPolicy: "Maybe" is not a policy; use Honor or Ignore`,
		},
		"spread's selector": {spread("labelSelector: {matchLabels: {a/b/c: d}}"), atOne + ".labelSelector.matchLabels"},
		"toleration":        {"tolerations: [{key: a, value: b, effect: NoExecute, tolerationSeconds: 3}]", ``},
		"toleration's key": {
			"tolerations: [{key: 'a b', operator: Exists}]",
			"spec.tolerations[0].key: \"a b\" is not the key of a label or taint",
		},
		"toleration operator": {
			"tolerations: [{key: a, operator: In}]",
			`spec.tolerations[0].operator: "In" is not an operator; use Equal or Exists`,
		},
		"toleration effect": {
			"tolerations: [{key: a, operator: Exists, effect: Stay}]",
			`spec.tolerations[0].effect: "Stay" is not an effect`,
		},
		"toleration seconds": {
			"tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 3}]",
			"spec.tolerations[0].tolerationSeconds: is for effect NoExecute",
		},
		"toleration's value": {
			"tolerations: [{key: a, value: 'b c'}]", `spec.tolerations[0].value: "b c" is not the value of a taint`,
		},
		"searches": {"dnsConfig: {searches: [a.b, c_d.e., .]}", ``},
		"search": {
			"dnsConfig: {searches: ['a b']}", `spec.dnsConfig.searches[0]: "a b" is not a domain to search in`,
		},
		"many searches": {
			"dnsConfig: {searches: [" + strings.Repeat("a,", 33) + "]}", "spec.dnsConfig.searches: are more than 32",
		},
		"option": {"dnsConfig: {options: [{value: '2'}]}", "spec.dnsConfig.options[0].name: is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, tc.spec)
			DefaultVirtualMachineInstance(vmi, testDefaults)
			errs := ValidateVirtualMachineInstance(vmi, Actor{})
			got := Message(errs)
			if tc.want == "" && got != "" || tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
