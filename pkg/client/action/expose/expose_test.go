package expose

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestService(t *testing.T) {
	none := &v1.VirtualMachineInstanceSpec{}
	for name, test := range map[string]struct {
		o    Options
		want string // of the spec
	}{
		"port": {
			Options{Name: "s", Port: 80},
			"{ports: [{port: 80, protocol: TCP, targetPort: 0}], selector: {vmi.kubevirt.io/id: vm}, type: ClusterIP}",
		},
		"target number": {
			Options{Name: "s", Port: 80, TargetPort: "8080"},
			"{ports: [{port: 80, protocol: TCP, targetPort: 8080}], " +
				"selector: {vmi.kubevirt.io/id: vm}, type: ClusterIP}",
		},
		"target name": {
			Options{Name: "s", Port: 80, TargetPort: "http"},
			"{ports: [{port: 80, protocol: TCP, targetPort: http}], " +
				"selector: {vmi.kubevirt.io/id: vm}, type: ClusterIP}",
		},
		"everything": {
			Options{
				Name: "s", Port: 53, Protocol: "udp", Type: "loadbalancer", NodePort: 30053, PortName: "dns",
				ClusterIP: "10.0.0.1", ExternalIP: "192.0.2.1", LoadBalancerIP: "192.0.2.2", IPFamily: "ipv6",
				IPFamilyPolicy: "singlestack",
			},
			"{clusterIP: 10.0.0.1, externalIPs: [192.0.2.1], ipFamilies: [IPv6], ipFamilyPolicy: SingleStack, " +
				"loadBalancerIP: 192.0.2.2, ports: [{name: dns, nodePort: 30053, port: 53, protocol: UDP, " +
				"targetPort: 0}], selector: {vmi.kubevirt.io/id: vm}, type: LoadBalancer}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			service, err := Service(test.o, Selector("vm"), none)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(service.Spec)
			if err != nil {
				t.Fatal(err)
			}
			want, err := yaml.JSONToYAML([]byte(mustJSON(t, test.want)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
	for want, o := range map[string]Options{
		`name: "" is no name of a Service`:                     {Port: 80},
		`type: "ExternalName" is not one of ClusterIP`:         {Name: "s", Port: 80, Type: "ExternalName"},
		`protocol: "SCTP" is not one of TCP, UDP`:              {Name: "s", Port: 80, Protocol: "SCTP"},
		`port: 70000 is not a port`:                            {Name: "s", Port: 70000},
		`port: is missing`:                                     {Name: "s", TargetPort: "80"},
		`target-port: "99999" is no port`:                      {Name: "s", Port: 80, TargetPort: "99999"},
		`target-port: "a_b" is no port`:                        {Name: "s", Port: 80, TargetPort: "a_b"},
		`node-port: goes with`:                                 {Name: "s", Port: 80, NodePort: 30000},
		`ip-family: "IPv5" is not one of`:                      {Name: "s", Port: 80, IPFamily: "IPv5"},
		`ip-family-policy: "Both" is not one of SingleStack, `: {Name: "s", Port: 80, IPFamilyPolicy: "Both"},
		`there is no port`:                                     {Name: "s"},
	} {
		if _, err := Service(o, nil, none); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func mustJSON(t *testing.T, text string) string {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReplicaSetSelector(t *testing.T) {
	set := &v1.VirtualMachineInstanceReplicaSet{}
	if _, err := ReplicaSetSelector(set); err == nil {
		t.Error("no selector, no error")
	}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	if got, err := ReplicaSetSelector(set); err != nil || got["a"] != "b" {
		t.Error(got, err)
	}
	set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}
	if _, err := ReplicaSetSelector(set); err == nil || errors.Is(err, ErrNoPorts) {
		t.Errorf("match expressions: %v", err)
	}
}
