package surface

import (
	"strings"
	"testing"
)

func TestValidateProbes(t *testing.T) {
	const listed = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}], " +
		"interfaces: [{name: default, masquerade: {}, ports: [{name: web, port: 80}, {name: dns, port: 53, " +
		"protocol: UDP}]}]}}\nnetworks: [{name: default, pod: {}}]\n"
	const bridged = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}], " +
		"interfaces: [{name: default, bridge: {}}]}}\nnetworks: [{name: default, pod: {}}]\n"
	const apart = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}], " +
		"interfaces: [{name: a, bridge: {}}]}}\nnetworks: [{name: a, multus: {networkName: a}}]\n"
	for name, tc := range map[string]struct{ spec, want string }{
		"http": {
			"readinessProbe: {httpGet: {port: 80, path: /}, initialDelaySeconds: 1, timeoutSeconds: 2, " +
				"periodSeconds: 3, successThreshold: 4, failureThreshold: 5}",
			``,
		},
		"tcp":        {"livenessProbe: {tcpSocket: {port: 22}}", ``},
		"exec":       {"livenessProbe: {exec: {command: [cat, /tmp/ok]}}", ``},
		"ping":       {"readinessProbe: {guestAgentPing: {}}\nlivenessProbe: {guestAgentPing: {}}", ``},
		"of nothing": {"readinessProbe: {periodSeconds: 3}", `spec.readinessProbe: asks nothing; use httpGet`},
		"of two kinds": {
			"livenessProbe: {guestAgentPing: {}, exec: {command: [a]}}", `spec.livenessProbe: is more than one of`,
		},
		"of no command": {"livenessProbe: {exec: {}}", `spec.livenessProbe.exec.command: is not set`},
		"of an empty command": {
			"livenessProbe: {exec: {command: ['', x]}}", `spec.livenessProbe.exec.command: is not set`,
		},
		"of a long command": {
			"livenessProbe: {exec: {command: ['" + strings.Repeat("x", 49<<10) + "']}}",
			`spec.livenessProbe.exec.command: may not be more than 49152 bytes`,
		},
		"negative": {
			"readinessProbe: {guestAgentPing: {}, periodSeconds: -1}",
			`spec.readinessProbe.periodSeconds: must be between 0 and`,
		},
		"huge": {
			"readinessProbe: {guestAgentPing: {}, timeoutSeconds: 2147483647}",
			`spec.readinessProbe.timeoutSeconds: must be between 0 and`,
		},
		"liveness twice": {
			"livenessProbe: {guestAgentPing: {}, successThreshold: 2}",
			`spec.livenessProbe.successThreshold: "2" is not supported; use 0 or 1`,
		},
		"no port": {
			"readinessProbe: {tcpSocket: {}}", `spec.readinessProbe.tcpSocket.port: must be between 1 and 65535`,
		},
		"a strange port": {
			"readinessProbe: {httpGet: {port: 70000}}", `spec.readinessProbe.httpGet.port: must be between 1 and 65535`,
		},
		"an unknown name": {
			"readinessProbe: {httpGet: {port: web}}",
			`spec.readinessProbe.httpGet.port: "web" is not the name of a TCP port of interface default`,
		},
		"a name":        {listed + "readinessProbe: {httpGet: {port: web}}", ``},
		"a listed port": {listed + "readinessProbe: {httpGet: {port: 80}}", ``},
		"a port not listed": {
			listed + "readinessProbe: {httpGet: {port: 81}}",
			`spec.readinessProbe.httpGet.port: does not reach the guest: interface default lists ports and 81`,
		},
		"a port of UDP": {
			listed + "readinessProbe: {tcpSocket: {port: dns}}", `spec.readinessProbe.tcpSocket.port: "dns" is not`,
		},
		"bridged": {bridged + "readinessProbe: {tcpSocket: {port: 81}}", ``},
		"bridged, not listed": {
			strings.Replace(listed, "masquerade", "bridge", 1) + "readinessProbe: {tcpSocket: {port: 81}}", ``,
		},
		"not on the pod's": {
			apart + "livenessProbe: {tcpSocket: {port: 81}}",
			`spec.livenessProbe.tcpSocket: needs an interface on the pod network`,
		},
		"ping without network": {apart + "livenessProbe: {guestAgentPing: {}}", ``},
		"a header": {
			"readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: 'a b', value: c}]}}",
			`spec.readinessProbe.httpGet.httpHeaders[0].name:`,
		},
		"a scheme": {
			"readinessProbe: {httpGet: {port: 80, scheme: FTP}}",
			`spec.readinessProbe.httpGet.scheme: "FTP" is not supported; use HTTP or HTTPS`,
		},
		"another host": {
			"readinessProbe: {httpGet: {port: 80, host: 10.0.0.1}}", `spec.readinessProbe.httpGet.host: not supported`,
		},
		"alive though paused": {
			"startStrategy: Paused\nlivenessProbe: {guestAgentPing: {}}",
			`spec.livenessProbe: would end the guest that startStrategy Paused keeps waiting`,
		},
		"ready though it waits": {"startStrategy: Paused\nreadinessProbe: {guestAgentPing: {}}", ``},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, tc.spec)
			DefaultVirtualMachineInstance(vmi, testDefaults)
			got := Message(ValidateVirtualMachineInstance(vmi, Actor{}))
			if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestDefaultProbes(t *testing.T) {
	vmi := instance(t, "readinessProbe: {guestAgentPing: {}}\nlivenessProbe: {guestAgentPing: {}, timeoutSeconds: 7}")
	DefaultVirtualMachineInstance(vmi, testDefaults)
	r, l := vmi.Spec.ReadinessProbe, vmi.Spec.LivenessProbe
	if r.TimeoutSeconds != 1 || r.PeriodSeconds != 10 || r.SuccessThreshold != 1 || r.FailureThreshold != 3 ||
		r.InitialDelaySeconds != 0 || l.TimeoutSeconds != 7 {
		t.Errorf("%+v, %+v", r, l)
	}
}
