package surface

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
)

const goodSet = `
replicas: 2
selector: {matchLabels: {app: web}}
template:
  metadata: {labels: {app: web}}
  spec: {domain: {memory: {guest: 1Gi}, devices: {}}}
`

const goodPool = `
replicas: 2
selector: {matchLabels: {app: web}}
virtualMachineTemplate:
  metadata: {labels: {app: web}}
  spec: {runStrategy: Always, template: {spec: {domain: {memory: {guest: 1Gi}, devices: {}}}}}
`

// edited is a YAML document with one text in place of another.
func edited[T any](t *testing.T, text, old, with string) *T {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("there is no %q", old)
	}
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(text, old, with, 1)), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestValidateReplicaSet(t *testing.T) {
	for name, tc := range map[string]struct {
		old, with string
		want      string
	}{
		"good":        {"", "", ""},
		"named":       {"metadata: {", "metadata: {name: test, ", ""},
		"expressions": {"matchLabels: {app: web}", "matchExpressions: [{key: app, operator: In, values: [web]}]", ""},
		"negative": {
			"replicas: 2", "replicas: -1", "spec.replicas: must not be negative; 0 keeps the set without members",
		},
		"none": {"replicas: 2", "replicas: 0", ""},
		"no template": {
			goodSet, "selector: {matchLabels: {app: web}}", "spec.template: is not set; it describes the guests",
		},
		"no selector": {
			"selector: {matchLabels: {app: web}}", "",
			"spec.selector: is not set; give it matchLabels that spec.template.metadata.labels has too",
		},
		"empty selector": {
			"{matchLabels: {app: web}}", "{}",
			"spec.selector: is empty, which would select everything in the namespace",
		},
		"selector elsewhere": {
			"{matchLabels: {app: web}}", "{matchLabels: {app: db}}",
			`spec.selector: "app=db" does not match spec.template.metadata.labels ("app=web")`,
		},
		"bad operator": {
			"matchLabels: {app: web}", "matchExpressions: [{key: app, operator: Near}]",
			"spec.selector.matchExpressions[0].operator: not a valid selector operator",
		},
		"bad label": {"labels: {app: web}", `labels: {app: web, "a b": c}`, "spec.template.metadata.labels"},
		"reserved label": {
			"labels: {app: web}", "labels: {app: web, kubevirt.io/nodeName: n}",
			"spec.template.metadata.labels[kubevirt.io/nodeName]: is set by virtkit itself",
		},
		"annotation that no VMI may have": {
			"metadata: {", `metadata: {annotations: {hooks.kubevirt.io/hookSidecars: "[]"}, `,
			"spec.template.metadata.annotations[hooks.kubevirt.io/hookSidecars]: not supported by virtkit",
		},
		"limit of a disk that is not there": {
			"metadata: {", `metadata: {annotations: {disk.virtkit.io/root: bps=50Mi}, `,
			`spec.template.metadata.annotations[disk.virtkit.io/root]: no disk is named "root"; remove the annotation`,
		},
		"bad name": {
			"metadata: {", "metadata: {name: A_, ", `spec.template.metadata.name: "A_" cannot begin a name`,
		},
		"what is made is checked": {"guest: 1Gi", "guest: 0", "spec.template.spec.domain.memory.guest"},
		"unsupported": {
			"devices: {}", "devices: {}, launchSecurity: {tdx: {}}",
			"spec.template.spec.domain.launchSecurity.tdx: not supported by virtkit",
		},
		"unsupported, its own": {
			"metadata: {", "metadata: {namespace: x, ", "spec.template.metadata.namespace: not supported by virtkit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1.VirtualMachineInstanceReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			set.Spec = *edited[v1.VirtualMachineInstanceReplicaSetSpec](t, goodSet, tc.old, tc.with)
			got := Message(ValidateVirtualMachineInstanceReplicaSet(set, Defaults{}))
			if (tc.want == "") != (got == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	set := &v1.VirtualMachineInstanceReplicaSet{
		Spec: *edited[v1.VirtualMachineInstanceReplicaSetSpec](t, goodSet, "", ""),
	}
	old := set.DeepCopy()
	old.Spec.Paused = true
	if !ReplicaSetSettled(set, set.DeepCopy()) || ReplicaSetSettled(set, old) || ReplicaSetSettled(set, nil) {
		t.Error("settled is wrong")
	}
}

func TestValidatePool(t *testing.T) {
	long := strings.Repeat("p", 53)
	for name, tc := range map[string]struct {
		name      string
		old, with string
		want      string
	}{
		"good": {},
		"long name": {
			name: long,
			want: "metadata.name: has 53 characters; 52 is the most, since the names of its VMs have " +
				"a dash and a number more",
		},
		"negative": {old: "replicas: 2", with: "replicas: -1", want: "spec.replicas: must not be negative"},
		"no template": {
			old: goodPool, with: "selector: {matchLabels: {app: web}}",
			want: "spec.virtualMachineTemplate: is not set; it describes the VMs",
		},
		"no selector": {old: "selector: {matchLabels: {app: web}}", want: "spec.selector: is not set"},
		"selector elsewhere": {
			old: "{matchLabels: {app: web}}", with: "{matchLabels: {app: db}}",
			want: `spec.selector: "app=db" does not match spec.virtualMachineTemplate.metadata.labels ("app=web")`,
		},
		"one at a time":    {old: "replicas: 2", with: "maxUnavailable: 1", want: ""},
		"a half at a time": {old: "replicas: 2", with: "maxUnavailable: 50%", want: ""},
		"none at a time": {
			old: "replicas: 2", with: "maxUnavailable: 0", want: "spec.maxUnavailable: must be 1 or more",
		},
		"no percent at a time": {
			old: "replicas: 2", with: "maxUnavailable: 0%",
			want: `spec.maxUnavailable: "0%" is neither a number nor a percentage from 1% to 100%`,
		},
		"too many at a time": {
			old: "replicas: 2", with: "maxUnavailable: 101%", want: `spec.maxUnavailable: "101%" is neither`,
		},
		"a number in quotes": {
			old: "replicas: 2", with: "maxUnavailable: '5'", want: `spec.maxUnavailable: "5" is neither`,
		},
		"words at a time": {
			old: "replicas: 2", with: "maxUnavailable: some%", want: `spec.maxUnavailable: "some%" is neither`,
		},
		"two ways in": {
			old: "replicas: 2", with: "scaleInStrategy: {unmanaged: {}, proactive: {}}",
			want: "spec.scaleInStrategy: has several strategies; keep one of unmanaged, opportunistic and proactive",
		},
		"two ways to update": {
			old: "replicas: 2", with: "updateStrategy: {opportunistic: {}, proactive: {}}",
			want: "spec.updateStrategy: has several strategies",
		},
		"the oldest first": {
			old: "replicas: 2", with: "scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: Oldest}}}", want: "",
		},
		"any first": {
			old: "replicas: 2", with: "scaleInStrategy: {proactive: {selectionPolicy: {sortPolicy: Any}}}",
			want: `spec.scaleInStrategy.proactive.selectionPolicy.sortPolicy: "Any" is not supported; use AscendingOrder, DescendingOrder, Newest, Oldest or Random`,
		},
		"state is kept": {
			old: "replicas: 2", with: "scaleInStrategy: {proactive: {statePreservation: Offline}}", want: "",
		},
		"memory is kept": {old: "replicas: 2", with: "scaleInStrategy: {proactive: {statePreservation: Online}}"},
		"state is kept for whom somebody deletes": {
			old: "replicas: 2", with: "scaleInStrategy: {opportunistic: {statePreservation: Offline}}",
			want: `spec.scaleInStrategy.opportunistic.statePreservation: "Offline" is not supported; use Disabled`,
		},
		"bad labels": {
			old: "replicas: 2",
			with: "updateStrategy: {proactive: {selectionPolicy: {selectors: {labelSelector: {matchExpressions: " +
				"[{key: a, operator: x}]}}}}}",
			want: "spec.updateStrategy.proactive.selectionPolicy.selectors.labelSelector.matchExpressions[0].operator",
		},
		"bad nodes": {
			old: "replicas: 2",
			with: "updateStrategy: {proactive: {selectionPolicy: {selectors: {nodeSelectorRequirementMatcher: " +
				"[{key: a, operator: x}]}}}}",
			want: `spec.updateStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher[0]: operator "x" is none of In`,
		},
		"nodes without values": {
			old: "replicas: 2",
			with: "scaleInStrategy: {proactive: {selectionPolicy: {selectors: {nodeSelectorRequirementMatcher: " +
				"[{key: a, operator: In}]}}}}",
			want: "spec.scaleInStrategy.proactive.selectionPolicy.selectors.nodeSelectorRequirementMatcher[0]",
		},
		"heals": {
			old: "replicas: 2", with: "autohealing: {startUpFailureThreshold: 2, minFailingToStartDuration: 1m}",
			want: "",
		},
		"heals at once": {
			old: "replicas: 2", with: "autohealing: {startUpFailureThreshold: 0}",
			want: "spec.autohealing.startUpFailureThreshold: must be 1 or more; leave it out for 3",
		},
		"heals before": {
			old: "replicas: 2", with: "autohealing: {minFailingToStartDuration: -1m}",
			want: "spec.autohealing.minFailingToStartDuration: must not be negative",
		},
		"unsupported": {
			old: "devices: {}", with: "devices: {}, launchSecurity: {tdx: {}}",
			want: "spec.virtualMachineTemplate.spec.template.spec.domain.launchSecurity.tdx: not supported by virtkit",
		},
		"unsupported, its own": {
			old: "metadata: {", with: "metadata: {name: x, ",
			want: "spec.virtualMachineTemplate.metadata.name: not supported by virtkit",
		},
		"what it makes is not it": {old: "runStrategy: Always, ", want: ""}, // InPool has that
	} {
		t.Run(name, func(t *testing.T) {
			pool := &v1beta1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}}
			if tc.name != "" {
				pool.Name = tc.name
			}
			pool.Spec = *edited[v1beta1.VirtualMachinePoolSpec](t, goodPool, tc.old, tc.with)
			got := Message(ValidateVirtualMachinePool(pool, nil))
			if (tc.want == "") != (got == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	t.Run("changed selector", func(t *testing.T) {
		pool := &v1beta1.VirtualMachinePool{Spec: *edited[v1beta1.VirtualMachinePoolSpec](t, goodPool, "", "")}
		old := pool.DeepCopy()
		old.Spec.Selector.MatchLabels = map[string]string{"app": "db"}
		const fixed = "spec.selector: cannot be changed, since it says which VMs are the pool's; make another pool"
		if got := Message(ValidateVirtualMachinePool(pool, old)); got != fixed {
			t.Error(got)
		}
		if !PoolSettled(pool, pool.DeepCopy()) || PoolSettled(pool, old) || PoolSettled(pool, nil) {
			t.Error("settled is wrong")
		}
	})
}

func TestInPool(t *testing.T) {
	vm := machine(t, `{template: {spec: {domain: {memory: {guest: 1Gi}, launchSecurity: {tdx: {}}}}}}`)
	vm.Name = ""
	got := Message(InPool(ValidateVirtualMachine(vm, Defaults{})))
	if want := "spec.virtualMachineTemplate.spec.runStrategy: is not set; use Always, " +
		"RerunOnFailure, Manual, Halted or Once"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPoolWarnings(t *testing.T) {
	template := func(interfaces string) string {
		return `{virtualMachineTemplate: {spec: {template: {spec: {domain: {devices: {interfaces: [` + interfaces +
			`]}}, networks: [{name: a, multus: {networkName: red}}, {name: b, pod: {}}]}}}}}`
	}
	const (
		at   = "spec.virtualMachineTemplate.spec.template.spec.domain.devices.interfaces"
		macs = " is given to every VM of the pool, and only one of them runs: the others wait, and say " +
			"MACAddressInUse; leave macAddress out, and each VM gets an address of its own"
		one = `{name: a, bridge: {}, macAddress: "02:00:00:00:00:0A"}`
	)
	for spec, want := range map[string]string{
		`{}`: "", `{scaleInStrategy: {proactive: {statePreservation: Offline}}}`: "",
		`{scaleInStrategy: {proactive: {statePreservation: Online}}}`: "spec.scaleInStrategy.proactive." +
			"statePreservation: Online keeps the disks of VMs that are scaled in, as Offline does, and not their " +
			"memory",
		template(`{name: a, bridge: {}}`):                                      "",
		template(`{name: b, masquerade: {}, macAddress: "02:00:00:00:00:01"}`): "",
		template(`{name: b, masquerade: {}}, ` + one): at +
			"[1].macAddress: 02:00:00:00:00:0a" + macs,
		template(`{name: b, bridge: {}, macAddress: "02:00:00:00:00:01"}, ` + one): at +
			"[0].macAddress: 02:00:00:00:00:01 and 02:00:00:00:00:0a" + macs,
	} {
		pool := &v1beta1.VirtualMachinePool{Spec: *parse[v1beta1.VirtualMachinePoolSpec](t, spec)}
		if got := strings.Join(PoolWarnings(pool), "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", spec, got, want)
		}
	}
}

func TestReplicaSetWarnings(t *testing.T) {
	for nic, want := range map[string]string{
		`{name: a, bridge: {}}`: "",
		`{name: a, bridge: {}, macAddress: "02:00:00:00:00:01"}`: "spec.template.spec.domain.devices.interfaces[0]." +
			"macAddress: 02:00:00:00:00:01 is given to every instance of the set, and two of them on one network " +
			"take each other's frames; leave macAddress out, and each instance gets an address of its own",
	} {
		set := &v1.VirtualMachineInstanceReplicaSet{Spec: *parse[v1.VirtualMachineInstanceReplicaSetSpec](t,
			`{template: {spec: {domain: {devices: {interfaces: [`+nic+
				`]}}, networks: [{name: a, multus: {networkName: red}}]}}}`)}
		if got := strings.Join(ReplicaSetWarnings(set), "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", nic, got, want)
		}
	}
	set := &v1.VirtualMachineInstanceReplicaSet{Spec: *parse[v1.VirtualMachineInstanceReplicaSetSpec](t,
		`{template: {metadata: {annotations: {network.kubevirt.io/addresses: '{"a":["192.0.2.7/24"],"b":["192.0.2.8"]}'}},
spec: {domain: {devices: {interfaces: [{name: a, bridge: {}}, {name: b, masquerade: {}}]}},
networks: [{name: a, multus: {networkName: red}}, {name: b, pod: {}}]}}}`)}
	got, want := strings.Join(ReplicaSetWarnings(set), "\n"), "spec.template.metadata.annotations["+
		"network.kubevirt.io/addresses]: 192.0.2.7 is given to every instance of the set, and two of them on one "+
		"network are taken for each other; remove the annotation, and each instance gets an address of its own"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	pool := &v1beta1.VirtualMachinePool{}
	pool.Spec.VirtualMachineTemplate = &v1beta1.VirtualMachineTemplateSpec{}
	pool.Spec.VirtualMachineTemplate.Spec.Template = set.Spec.Template
	if got := strings.Join(PoolWarnings(pool), "\n"); !strings.HasPrefix(got, "spec.virtualMachineTemplate.spec."+
		"template.metadata.annotations[network.kubevirt.io/addresses]: 192.0.2.7 is given to every VM of the pool") {
		t.Error(got)
	}
	if got := ReplicaSetWarnings(&v1.VirtualMachineInstanceReplicaSet{}); got != nil {
		t.Errorf("without a template: %q", got)
	}
}
