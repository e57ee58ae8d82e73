package why

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// connected is a connection from pod shop/client to port 80 of a guest that runs well, with masquerade.
func connected() ConnectionFacts {
	f := ConnectionFacts{
		Facts: healthy(), Protocol: corev1.ProtocolTCP, Port: 80,
		Source: Source{Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "client",
				Labels: map[string]string{"app": "till", "pod-template-hash": "x"},
			},
			Spec: corev1.PodSpec{NodeName: "two"},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.2.2", PodIPs: ips("10.0.2.2", "fd00:2::2"),
			},
		}},
		Policies: map[string][]networkingv1.NetworkPolicy{"default": {}, "shop": {}},
		Namespaces: map[string]map[string]string{
			"default": {corev1.LabelMetadataName: "default"},
			"shop":    {corev1.LabelMetadataName: "shop", "team": "red"},
		},
	}
	spec := &f.VMI.Spec
	spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	spec.Domain.Devices.Interfaces = []v1.Interface{*v1.DefaultMasqueradeNetworkInterface()}
	f.VM.Spec.Template.Spec = *spec.DeepCopy()
	f.VMI.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{
		Name: "default", IP: "10.0.1.1", IPs: []string{"10.0.1.1", "fd00:1::1"}, LinkState: "up",
	}}
	pod := &f.Pods[0]
	pod.Namespace, pod.Status.HostIP = "default", "192.168.0.1"
	pod.Labels[v1.DeprecatedVirtualMachineNameLabel] = "demo"
	pod.Status.PodIP, pod.Status.PodIPs = "10.0.1.1", ips("10.0.1.1", "fd00:1::1")
	return f
}

func ips(all ...string) []corev1.PodIP {
	var out []corev1.PodIP
	for _, ip := range all {
		out = append(out, corev1.PodIP{IP: ip})
	}
	return out
}

// situationOf changes a connection that gets through.
type situationOf func(f *ConnectionFacts)

func both(all ...situationOf) situationOf {
	return func(f *ConnectionFacts) {
		for _, change := range all {
			change(f)
		}
	}
}

func of(change situation) situationOf { return func(f *ConnectionFacts) { change(&f.Facts) } }

// policy adds a NetworkPolicy with a spec.
func policy(namespace, name, spec string) situationOf {
	return func(f *ConnectionFacts) {
		p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			panic(err)
		}
		f.Policies[namespace] = append(f.Policies[namespace], p)
	}
}

// onRed puts both ends on network red, the source at an address, or at none that is known.
func onRed(address string) situationOf {
	return func(f *ConnectionFacts) {
		f.VMI.Spec.Networks = append(f.VMI.Spec.Networks, v1.Network{
			Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}},
		})
		f.VMI.Spec.Domain.Devices.Interfaces = append(f.VMI.Spec.Domain.Devices.Interfaces, v1.Interface{Name: "red"})
		f.VMI.Status.Interfaces = append(f.VMI.Status.Interfaces, v1.VirtualMachineInstanceNetworkInterface{
			Name: "red", IP: "192.0.2.9", IPs: []string{"fe80::9", "192.0.2.9"},
		})
		ips := ""
		if address != "" {
			ips = `"` + address + `"`
		}
		f.Source.Pod.Annotations = map[string]string{
			"k8s.v1.cni.cncf.io/networks":       "default/red",
			"k8s.v1.cni.cncf.io/network-status": `[{"name":"default/red","ips":[` + ips + `]}]`,
		}
		hold(f.VMI, multipolicy.Rules{"red": {Network: onRedNetwork}})
	}
}

const onRedNetwork = "default/red"

// hold has a VMI say what holds for its guest.
func hold(vmi *v1.VirtualMachineInstance, rules multipolicy.Rules) {
	metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, network.AnnotationPolicies, multipolicy.Encode(rules))
}

// asGuest makes the pod that connects one of a guest, which is on network red, too.
func asGuest(f *ConnectionFacts) {
	f.Source.Pod.Labels[v1.AppLabel] = "virt-launcher"
	metav1.SetMetaDataAnnotation(&f.Source.Pod.ObjectMeta, v1.DomainAnnotation, "till")
	f.SourceVMI = &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till"}}
	f.SourceVMI.Spec.Networks = []v1.Network{{
		Name: "far", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: onRedNetwork}},
	}}
	f.SourceVMI.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "far"}}
	f.SourceVMI.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "far", MAC: "02:00:00:00:00:0B"}}
	hold(f.SourceVMI, multipolicy.Rules{"far": {Network: onRedNetwork}})
}

// elsewhere has a VMI say by now that its guest, which is on network red alone, is to move to another.
func elsewhere(f *ConnectionFacts) {
	f.Pods[0].Annotations = map[string]string{
		"k8s.v1.cni.cncf.io/networks": `[{"name":"red","namespace":"default","interface":"` +
			network.LinkOf(f.VMI.Spec.Networks[0]) + `"}]`,
	}
	f.VMI.Spec.Networks[0].Multus.NetworkName = "green"
}

func unplugged(f *ConnectionFacts) { f.VMI.Status.Interfaces[1].LinkState = "down" }

// unnumbered takes the guest's address on network red.
func unnumbered(f *ConnectionFacts) {
	f.VMI.Status.Interfaces[1].IP, f.VMI.Status.Interfaces[1].IPs = "", nil
}

// noPodNetwork takes the guest from the pod network.
func noPodNetwork(f *ConnectionFacts) {
	f.VMI.Spec.Networks, f.VMI.Spec.Domain.Devices.Interfaces = f.VMI.Spec.Networks[1:],
		f.VMI.Spec.Domain.Devices.Interfaces[1:]
}

// multi adds a MultiNetworkPolicy for a network with a spec, as virt-controller has it hold for the guest that it
// selects: the one of shop is that in the pod which connects. The other guest is known by its MAC.
func multi(namespace, name, on, spec string) situationOf {
	return func(f *ConnectionFacts) {
		text, err := yaml.YAMLToJSON([]byte(spec))
		if err != nil {
			panic(err)
		}
		vmi, nic := f.VMI, "red"
		if namespace == "shop" {
			vmi, nic = f.SourceVMI, "far"
		}
		if vmi == nil {
			return // no rule of virtkit's holds for other pods
		}
		rules, err := multipolicy.Decode(vmi.Annotations[network.AnnotationPolicies])
		if err != nil {
			panic(err)
		}
		here := rules[nic]
		added, _ := multipolicy.Compile(&multipolicy.Input{
			Namespace: namespace, Labels: map[string]string{"app": "web"},
			Interfaces: map[string][]string{nic: {onRedNetwork}},
			Policies: []multipolicy.MultiNetworkPolicy{{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: name, Annotations: map[string]string{multipolicy.AnnotationFor: on},
				},
				Spec: text,
			}},
			Peers: []multipolicy.Peer{{
				Namespace: "shop", Name: "client", Labels: map[string]string{"app": "till"},
				Ends: map[string]multipolicy.End{onRedNetwork: {MACs: []string{"02:00:00:00:00:0b"}}},
			}},
			Namespaces: f.Namespaces,
		})
		here.Policies = append(here.Policies, added[nic].Policies...)
		rules[nic] = here
		hold(vmi, rules)
	}
}

func nic(change func(n *v1.Interface)) situationOf {
	return func(f *ConnectionFacts) { change(&f.VMI.Spec.Domain.Devices.Interfaces[0]) }
}

func bridged(addresses ...string) situationOf {
	return func(f *ConnectionFacts) {
		f.VMI.Spec.Domain.Devices.Interfaces[0] = *v1.DefaultBridgeNetworkInterface()
		f.VMI.Status.Interfaces[0].IP, f.VMI.Status.Interfaces[0].IPs = "", addresses
	}
}

func from(address string) situationOf {
	return func(f *ConnectionFacts) { f.Source = Source{Address: netip.MustParseAddr(address)} }
}

func allPorts(f *ConnectionFacts) { f.Port = 0 }
func asUDP(f *ConnectionFacts)    { f.Protocol = corev1.ProtocolUDP }

func unread(namespace string) situationOf {
	return func(f *ConnectionFacts) {
		delete(f.Policies, namespace)
		f.Unreadable = append(f.Unreadable, "networkpolicies")
	}
}

func unreadNamespace(namespace string) situationOf {
	return func(f *ConnectionFacts) { delete(f.Namespaces, namespace) }
}

func ports(numbers ...int32) situationOf {
	return nic(func(n *v1.Interface) {
		for _, number := range numbers {
			n.Ports = append(n.Ports, v1.Port{Port: number})
		}
	})
}

const denyAll, denyEgress = "{podSelector: {}}", "{podSelector: {}, policyTypes: [Egress]}"
