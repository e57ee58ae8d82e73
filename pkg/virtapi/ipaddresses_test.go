package virtapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

const (
	ipMachine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm, namespace: default}
spec:
  runStrategy: Always
  template:
    metadata: {annotations: {network.kubevirt.io/addresses: '{"red":["192.0.2.12"]}'}}
    spec:
      domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: red, bridge: {}}]}}
      networks: [{name: red, multus: {networkName: shop/local}}]
`
	ipInstance = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: vmi, namespace: default, annotations: {network.kubevirt.io/addresses: '{"red":["192.0.2.12"]}'}}
spec:
  domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: red, bridge: {}}]}}
  networks: [{name: red, multus: {networkName: shop/local}}]
`
	// gotMachine has the address by its annotation.
	gotMachine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: shop, annotations: {virtkit.io/ip-addresses: '{"vm":"shop/web","interfaces":{"nic":{"network":"shop/local","addresses":["192.0.2.12"]}}}'}}
spec: {template: {spec: {domain: {devices: {interfaces: [{name: nic, bridge: {}}]}}, networks: [{name: nic, multus: {networkName: local}}]}}}
`
)

// someNetworks are the networks that there are.
func someNetworks(_ context.Context, namespace, name string) (*ipaddress.Definition, error) {
	text, ok := map[string]string{
		"shop/local":       `{"type":"bridge","ipam":{"type":"host-local","subnet":"192.0.2.0/24","rangeStart":"192.0.2.10","rangeEnd":"192.0.2.20"}}`,
		"shop/whereabouts": `{"type":"macvlan","ipam":{"type":"whereabouts"}}`,
		"shop/plain":       `{"type":"bridge","ipam":{}}`,
	}[namespace+"/"+name]
	if !ok {
		return nil, nil
	}
	return ipaddress.ParseDefinition(text)
}

// An address that another VM has on the network is refused with the other's name, and so is one that the network does
// not give; of interfaces that keep no address the answer warns.
func TestIPs(t *testing.T) {
	const (
		machines   = "/validate/virtualmachines"
		instances  = "/validate/virtualmachineinstances"
		controller = "system:serviceaccount:kubevirt:virt-controller"
		at         = "spec.template.metadata.annotations[network.kubevirt.io/addresses]: "
		taken      = at + "192.0.2.12 is the IP address of VM shop/web, interface nic, on network shop/local; leave " +
			"it out of the annotation network.kubevirt.io/addresses to get one that is free, or give another"
		nic = "spec.template.spec.domain.devices.interfaces[0] (red) "
	)
	on := func(network string) string { return strings.Replace(ipMachine, "shop/local", network, 1) }
	silent := func(text string) string { return strings.Replace(text, `{"red":["192.0.2.12"]}`, "{}", 1) }
	wish := func(addresses string) string { return strings.Replace(ipMachine, `"192.0.2.12"`, addresses, 1) }
	recorded := strings.Replace(silent(ipMachine), "namespace: default", "namespace: default, annotations: "+
		`{virtkit.io/ip-addresses: '{"vm":"default/vm"}'}`, 1)
	bridged := strings.Replace(silent(ipMachine), "multus: {networkName: shop/local}", "pod: {}", 1)
	forged := strings.NewReplacer("name: web", "name: copy", "shop/web", "shop/copy", "spec: {template",
		"spec: {runStrategy: Always, template", "domain: {", "domain: {memory: {guest: 1Gi}, ").Replace(gotMachine)
	for name, tc := range map[string]struct {
		path, user, object, old string
		there                   []string
		want, warning           string
	}{
		"nobody has it":    {path: machines, object: ipMachine},
		"its own":          {path: machines, object: ipMachine, there: []string{ipMachine}},
		"another's record": {path: machines, object: ipMachine, there: []string{gotMachine}, want: taken},
		"on another network": {
			path: machines, object: on("shop/other"), there: []string{gotMachine}, warning: "there is no",
		},
		"virt-controller's": {path: machines, user: controller, object: ipMachine, there: []string{gotMachine}},
		"had it before": {
			path: machines, object: strings.Replace(ipMachine, "1Gi", "2Gi", 1), old: ipMachine,
			there: []string{gotMachine},
		},
		"changed to it": {
			path: machines, object: ipMachine, old: wish("\"192.0.2.13\""), there: []string{gotMachine}, want: taken,
		},
		"its record is removed": {path: machines, object: silent(ipMachine), old: recorded},
		"a VMI's": {
			path: machines, object: ipMachine,
			there: []string{strings.Replace(ipInstance, "name: vmi", "name: lone", 1)},
			want:  "of VirtualMachineInstance default/lone, interface red",
		},
		"a VMI": {
			path: instances, object: ipInstance, there: []string{gotMachine},
			want: "metadata.annotations[network.kubevirt.io/addresses]: 192.0.2.12 is the IP address of VM shop/web",
		},
		"a VMI, nobody has it": {path: instances, object: ipInstance},
		"a VMI, out of range": {
			path: instances, object: strings.Replace(ipInstance, "2.12", "2.99", 1), want: "192.0.2.99 is not among",
		},
		"a VMI's record of no sense": {
			path:   instances,
			object: strings.Replace(ipInstance, "annotations: {", "annotations: {virtkit.io/ip-addresses: x, ", 1),
			want:   "metadata.annotations[virtkit.io/ip-addresses]: is not {",
		},
		"out of range": {
			path: machines, object: wish(`"192.0.2.99"`), want: at + "interface red: 192.0.2.99 is not among the " +
				"addresses that network shop/local gives, 192.0.2.10-192.0.2.20",
		},
		"no address": {path: machines, object: wish(`"x"`), want: at + `interface red: "x" is not an IP address`},
		"of no interface": {
			path: machines, object: strings.Replace(ipMachine, `{"red"`, `{"blue"`, 1),
			want: at + `no interface is named "blue"`,
		},
		"a network that takes none":  {path: machines, object: on("shop/whereabouts"), want: "whereabouts"},
		"a network that gives none":  {path: machines, object: on("shop/plain"), want: "gives no addresses"},
		"a network that keeps it":    {path: machines, object: silent(ipMachine)},
		"a network without, no wish": {path: machines, object: silent(on("shop/plain"))},
		"a network that keeps none": {
			path: machines, object: silent(on("shop/whereabouts")),
			warning: nic + "does not keep its IP address over starts: the IPAM plugin whereabouts",
		},
		"it kept none before": {
			path: machines, object: strings.Replace(silent(on("shop/whereabouts")), "1Gi", "2Gi", 1),
			old: silent(on("shop/whereabouts")),
		},
		"moves to a network that keeps none": {
			path: machines, object: silent(on("shop/whereabouts")), old: silent(ipMachine), warning: "whereabouts",
		},
		"a bridge on the pod network": {
			path: machines, object: bridged, warning: nic + "does not keep its MAC address: the pod network gives",
		},
		"a record that claims it": {
			path: machines, object: forged, there: []string{gotMachine},
			want: "metadata.annotations[virtkit.io/ip-addresses]: 192.0.2.12 is the IP address of VM shop/web",
		},
		"a record of no sense": {
			path: machines, object: strings.Replace(forged, `"192.0.2.12"`, `"x"`, 1),
			want: `"x" is not an IP address such as 192.0.2.7 or 2001:db8::7/64; remove the annotation`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := *hooks
			hooks.holders, hooks.definition = holders(t, nil, tc.there...), someNetworks
			t.Cleanup(func() { *hooks = before })
			got := ask(t, tc.path, tc.user, tc.object, tc.old)
			if got.Allowed != (tc.want == "") || !got.Allowed && !strings.Contains(got.Result.Message, tc.want) {
				t.Errorf("%v %+v, want %q", got.Allowed, got.Result, tc.want)
			}
			warned := slices.ContainsFunc(got.Warnings, func(w string) bool {
				return tc.warning != "" && strings.Contains(w, tc.warning)
			})
			if warned != (tc.warning != "") || tc.warning == "" && got.Allowed && len(got.Warnings) > 0 {
				t.Errorf("warnings %q, want %q", got.Warnings, tc.warning)
			}
		})
	}
}

// Where the definition cannot be read the request fails, and says why.
func TestIPsUnknown(t *testing.T) {
	a := &admission{holders: noMACs()}
	a.definition = func(context.Context, string, string) (*ipaddress.Definition, error) {
		return nil, errors.New("no answer")
	}
	vm := &v1.VirtualMachine{}
	if err := yaml.Unmarshal([]byte(ipMachine), vm); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.validateIPs(t.Context(), vm, nil, surface.Actor{}); err == nil || err.Error() != "no answer" {
		t.Error(err)
	}
}

// A definition is read from the API; one that there is not, or that says nothing of sense, counts as none.
func TestReadDefinition(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const path = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions/"
		switch r.URL.Path {
		case path + "local":
			_, _ = w.Write([]byte(`{"spec":{"config":"{\"ipam\":{\"type\":\"host-local\"}}"}}`))
		case path + "odd":
			_, _ = w.Write([]byte(`{"spec":{"config":"{"}}`))
		case path + "odder":
			_, _ = w.Write([]byte(`{"spec":[]}`))
		case path + "secret":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	client, err := config.KubeVirtClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	m := &machines{kubevirt: client}
	for name, want := range map[string]string{
		"local": "host-local", "odd": "none", "odder": "none", "missing": "none", "secret": "read NetworkAttachment",
	} {
		found, err := m.definition(t.Context(), "shop", name)
		switch {
		case err != nil && !strings.HasPrefix(err.Error(), want), err == nil && found == nil && want != "none",
			found != nil && found.IPAM != want:
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
}
