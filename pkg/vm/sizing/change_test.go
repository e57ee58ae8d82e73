package sizing

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const running = `
spec: {domain: {devices: {}, cpu: {sockets: 1, cores: 2, maxSockets: 4}, memory: {guest: 256Mi, maxGuest: 1Gi}, resources: {requests: {memory: 128Mi, cpu: 1}, limits: {memory: 512Mi}}}}
status: {currentCPUTopology: {sockets: 1, cores: 2, threads: 1}, memory: {guestAtBoot: 256Mi, guestCurrent: 256Mi, guestRequested: 256Mi}}
`

func TestChange(t *testing.T) {
	for name, tc := range map[string]struct {
		template, instance string
		staged             bool
		// domain is what of the instance's spec is to be from now on, as JSON; empty when nothing changes.
		domain, refused string
	}{
		"the same":     {template: `{cpu: {sockets: 1}, memory: {guest: 256Mi}}`},
		"nothing said": {template: `{cpu: {cores: 2}, memory: {maxGuest: 1Gi}}`},
		"more sockets": {
			template: `{cpu: {sockets: 3}}`,
			domain:   `{"resources":{"requests":{"cpu":"5","memory":"128Mi"},"limits":{"memory":"512Mi"}},"cpu":{"cores":2,"sockets":3,"maxSockets":4},"memory":{"guest":"256Mi","maxGuest":"1Gi"}}`,
		},
		"too many sockets": {
			template: `{cpu: {sockets: 5}}`,
			refused:  `{"domain.cpu.sockets":"5 is more than the 4 that the guest was started with room for, maxSockets"}`,
		},
		"more memory": {
			template: `{memory: {guest: 512Mi}}`,
			domain:   `{"resources":{"requests":{"cpu":"1","memory":"384Mi"},"limits":{"memory":"768Mi"}},"cpu":{"cores":2,"sockets":1,"maxSockets":4},"memory":{"guest":"512Mi","maxGuest":"1Gi"}}`,
		},
		"too much memory": {
			template: `{memory: {guest: 2Gi}}`,
			refused:  `{"domain.memory.guest":"2Gi is more than the 1Gi that the guest was started with room for, maxGuest"}`,
		},
		"less than at boot": {
			template: `{memory: {guest: 128Mi}}`,
			refused:  `{"domain.memory.guest":"128Mi is less than the 256Mi that the guest was started with"}`,
		},
		"odd memory": {
			template: `{memory: {guest: 300M}}`, refused: `{"domain.memory.guest":"300M is not a multiple of 2Mi"}`,
		},
		"staged": {
			template: `{cpu: {sockets: 2}, memory: {guest: 512Mi}}`, staged: true,
			refused: `{"domain.cpu.sockets":"vmRolloutStrategy is Stage","domain.memory.guest":"vmRolloutStrategy is Stage"}`,
		},
		"fewer sockets": {
			template: `{cpu: {sockets: 1}}`, refused: `{"domain.cpu.sockets":"a guest that runs keeps its 2 sockets"}`,
			instance: `{spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4}}}, status: {currentCPUTopology: {sockets: 2}}}`,
		},
		"sockets that never came": {
			template: `{cpu: {sockets: 1}}`, domain: `{"resources":{},"cpu":{"sockets":1,"maxSockets":4}}`,
			instance: `{spec: {domain: {devices: {}, cpu: {sockets: 2, maxSockets: 4}}}, status: {currentCPUTopology: {sockets: 1}}}`,
		},
		"memory without room": {
			template: `{memory: {guest: 2Gi}}`,
			refused:  `{"domain.memory.guest":"2Gi is more than the 1Gi that the guest was started with room for, maxGuest"}`,
			instance: `{spec: {domain: {devices: {}, memory: {guest: 1Gi}}}}`,
		},
		"memory back": {
			template: `{memory: {guest: 256Mi}}`,
			domain:   `{"resources":{},"memory":{"guest":"256Mi","maxGuest":"1Gi"}}`,
			instance: `{spec: {domain: {devices: {}, memory: {guest: 512Mi, maxGuest: 1Gi}}}, status: {memory: {guestAtBoot: 256Mi}}}`,
		},
	} {
		vmi := &v1.VirtualMachineInstance{}
		text := tc.instance
		if text == "" {
			text = running
		}
		if err := yaml.UnmarshalStrict([]byte(text), vmi); err != nil {
			t.Fatal(err)
		}
		change := Of(spec(t, tc.template[:1]+"devices: {}, "+tc.template[1:]), vmi, !tc.staged)
		refused := ""
		if len(change.Refused) > 0 {
			data, err := json.Marshal(change.Refused)
			if err != nil {
				t.Fatal(err)
			}
			refused = string(data)
		}
		if refused != tc.refused {
			t.Errorf("%s: refused %s, want %s", name, refused, tc.refused)
		}
		got := ""
		if change.Any() {
			change.Apply(&vmi.Spec.Domain)
			got = withoutDevices(t, &vmi.Spec.Domain)
		}
		if got != tc.domain {
			t.Errorf("%s: %s, want %s", name, got, tc.domain)
		}
	}
}

func withoutDevices(t *testing.T, domain *v1.DomainSpec) string {
	t.Helper()
	data, err := json.Marshal(domain)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(data), `,"devices":{}`, "", 1)
}

func TestFixed(t *testing.T) {
	of := func(text string) string {
		s := &v1.VirtualMachineInstanceSpec{Domain: *spec(t, text)}
		data, err := json.Marshal(Fixed(s))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	a := of(`{devices: {}, cpu: {sockets: 2, maxSockets: 4}, memory: {guest: 1Gi}}`)
	if b := of(`{devices: {}, cpu: {sockets: 3, maxSockets: 4}, memory: {guest: 2Gi}}`); a != b {
		t.Errorf("of other sizes: %s and %s", a, b)
	}
	if b := of(`{devices: {}, cpu: {sockets: 2, maxSockets: 5}, memory: {guest: 1Gi}}`); a == b {
		t.Errorf("other bounds are the same: %s", a)
	}
}

func TestPodObstacle(t *testing.T) {
	const fixed = "CPUs of its own and huge pages are given when a pod starts"
	dedicated, huge := &v1.CPU{DedicatedCPUPlacement: true}, &v1.Memory{Hugepages: &v1.Hugepages{}}
	for name, tc := range map[string]struct {
		domain       v1.DomainSpec
		cpus, memory string
	}{
		"nothing":         {v1.DomainSpec{}, "", ""},
		"shared CPUs":     {v1.DomainSpec{CPU: &v1.CPU{}, Memory: &v1.Memory{}}, "", ""},
		"CPUs of its own": {v1.DomainSpec{CPU: dedicated}, fixed, fixed},
		"huge pages":      {v1.DomainSpec{Memory: huge}, "", fixed},
		"both":            {v1.DomainSpec{CPU: dedicated, Memory: huge}, fixed, fixed},
	} {
		if got := PodObstacle(&tc.domain, false); got != tc.cpus {
			t.Errorf("%s, CPUs: %q", name, got)
		}
		if got := PodObstacle(&tc.domain, true); got != tc.memory {
			t.Errorf("%s, memory: %q", name, got)
		}
	}
}
