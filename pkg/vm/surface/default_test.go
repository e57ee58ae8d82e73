package surface

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Each case is an instance's spec before and after.
func TestDefaultInstance(t *testing.T) {
	for name, tc := range map[string]struct {
		defaults     Defaults
		before, want string
	}{
		"nothing": {Defaults{}, `domain: {devices: {}}`, `
architecture: amd64
terminationGracePeriodSeconds: 30
domain:
  machine: {type: q35}
  cpu: {cores: 1, sockets: 1, threads: 1}
  features: {acpi: {enabled: true}}
  devices: {interfaces: [{name: default, masquerade: {}, model: virtio}]}
networks: [{name: default, pod: {}}]
`},
		"configuration": {
			Defaults{Architecture: "arm64", MachineType: "virt", CPUModel: "host-model", NewUUID: testDefaults.NewUUID},
			`domain: {devices: {autoattachPodInterface: false}}`, `
architecture: arm64
terminationGracePeriodSeconds: 30
domain:
  machine: {type: virt}
  firmware: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223}
  cpu: {cores: 1, sockets: 1, threads: 1, model: host-model}
  features: {acpi: {enabled: true}}
  devices: {autoattachPodInterface: false}
`,
		},
		"input device": {
			Defaults{},
			`domain: {devices: {autoattachInputDevice: true, autoattachPodInterface: false}}`,
			`
architecture: amd64
terminationGracePeriodSeconds: 30
domain:
  machine: {type: q35}
  cpu: {cores: 1, sockets: 1, threads: 1}
  features: {acpi: {enabled: true}}
  devices: {autoattachInputDevice: true, autoattachPodInterface: false, inputs: [{name: default-0, bus: usb, type: tablet}]}
`,
		},
		"what is said stays": {testDefaults, `
architecture: amd64
terminationGracePeriodSeconds: 0
domain:
  machine: {type: pc-q35-9.2}
  firmware: {uuid: "1", serial: s}
  cpu: {cores: 2, model: Nehalem}
  memory: {guest: 1Gi}
  resources: {requests: {memory: 2Gi, cpu: 8}}
  features: {acpi: {enabled: false}}
  devices:
    disks: [{name: a, disk: {bus: scsi}}, {name: b, cdrom: {bus: usb, tray: open}}]
    interfaces: [{name: nic, bridge: {}, model: e1000}]
    inputs: [{name: i, bus: virtio, type: keyboard}]
networks: [{name: nic, pod: {}}]
`, `
architecture: amd64
terminationGracePeriodSeconds: 0
domain:
  machine: {type: pc-q35-9.2}
  firmware: {uuid: "1", serial: s}
  cpu: {cores: 2, sockets: 1, threads: 1, model: Nehalem}
  memory: {guest: 1Gi}
  resources: {requests: {memory: 2Gi, cpu: 8}}
  features: {acpi: {enabled: false}}
  devices:
    disks: [{name: a, disk: {bus: scsi}}, {name: b, cdrom: {bus: usb, readonly: true, tray: open}}]
    interfaces: [{name: nic, bridge: {}, model: e1000}]
    inputs: [{name: i, bus: virtio, type: keyboard}]
networks: [{name: nic, pod: {}}]
`},
		"from resources and bare devices": {Defaults{}, `
domain:
  resources: {requests: {memory: 2Gi, cpu: 1}, limits: {cpu: 1500m}}
  devices:
    disks: [{name: a}, {name: b, cdrom: {}}]
    interfaces: [{name: nic, ports: [{port: 80}]}]
    inputs: [{name: i}]
networks: [{name: nic, pod: {}}]
`, `
architecture: amd64
terminationGracePeriodSeconds: 30
domain:
  machine: {type: q35}
  cpu: {cores: 1, sockets: 2, threads: 1}
  memory: {guest: 2Gi}
  resources: {requests: {memory: 2Gi, cpu: 1}, limits: {cpu: 1500m}}
  features: {acpi: {enabled: true}}
  devices:
    disks: [{name: a, disk: {bus: sata}}, {name: b, cdrom: {bus: sata, readonly: true, tray: closed}}]
    interfaces: [{name: nic, masquerade: {}, model: virtio, ports: [{port: 80, protocol: TCP}]}]
    inputs: [{name: i, bus: usb, type: tablet}]
networks: [{name: nic, pod: {}}]
`},
		"memory from the limit": {
			Defaults{},
			`domain: {resources: {limits: {memory: 3Gi}}, devices: {autoattachPodInterface: false}}`,
			`
architecture: amd64
terminationGracePeriodSeconds: 30
domain:
  machine: {type: q35}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 3Gi}
  resources: {limits: {memory: 3Gi}, requests: {memory: 3Gi}}
  features: {acpi: {enabled: true}}
  devices: {autoattachPodInterface: false}
`,
		},
		"request of the guest's memory": {
			Defaults{MemoryOvercommit: 100},
			`domain: {memory: {guest: 1Gi}, devices: {autoattachPodInterface: false}}`,
			`
architecture: amd64
terminationGracePeriodSeconds: 30
domain:
  machine: {type: q35}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 1Gi}
  resources: {requests: {memory: 1Gi}}
  features: {acpi: {enabled: true}}
  devices: {autoattachPodInterface: false}
`,
		},
		"the pod's plan overcommits": {
			Defaults{MemoryOvercommit: 200},
			`domain: {memory: {guest: 1Gi}, devices: {autoattachPodInterface: false}}`,
			`
architecture: amd64
terminationGracePeriodSeconds: 30
domain:
  machine: {type: q35}
  cpu: {cores: 1, sockets: 1, threads: 1}
  memory: {guest: 1Gi}
  features: {acpi: {enabled: true}}
  devices: {autoattachPodInterface: false}
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{Spec: *parse[v1.VirtualMachineInstanceSpec](t, tc.before)}
			DefaultVirtualMachineInstance(vmi, tc.defaults)
			want := parse[v1.VirtualMachineInstanceSpec](t, tc.want)
			if diff := cmp.Diff(show(t, want), show(t, vmi.Spec)); diff != "" {
				t.Error(diff)
			}
			if len(vmi.Finalizers) != 1 || vmi.Finalizers[0] != v1.VirtualMachineInstanceFinalizer {
				t.Errorf("finalizers %v", vmi.Finalizers)
			}
			again := vmi.DeepCopy()
			DefaultVirtualMachineInstance(again, tc.defaults)
			if diff := cmp.Diff(show(t, vmi), show(t, again)); diff != "" {
				t.Errorf("not idempotent: %s", diff)
			}
		})
	}
}

func show(t testing.TB, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDefaultVirtualMachine(t *testing.T) {
	vm := machine(t, `{runStrategy: Always, template: {spec: {domain: {devices: {}}}}}`)
	DefaultVirtualMachine(vm, nil, testDefaults)
	spec := vm.Spec.Template.Spec
	if spec.Architecture != "amd64" || spec.Domain.Machine.Type != "q35" || spec.Domain.Firmware.UUID == "" {
		t.Errorf("got %s", show(t, spec))
	}
	if spec.Domain.CPU != nil || spec.Networks != nil {
		t.Errorf("the template got more than its identity: %s", show(t, spec))
	}

	// A later installation with other defaults, and a manifest that does not say: what was, stays.
	replaced := machine(t, `{runStrategy: Always, template: {spec: {domain: {devices: {}}}}}`)
	DefaultVirtualMachine(replaced, vm, Defaults{MachineType: "pc-q35-11.0", NewUUID: func() string { return "other" }})
	if diff := cmp.Diff(show(t, vm.Spec), show(t, replaced.Spec)); diff != "" {
		t.Error(diff)
	}
	DefaultVirtualMachine(&v1.VirtualMachine{}, nil, testDefaults) // validation reports the missing template
}
