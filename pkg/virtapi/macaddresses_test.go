package virtapi

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

const (
	macMachine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm, namespace: default}
spec:
  runStrategy: Always
  template:
    spec:
      domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: red, bridge: {}, macAddress: 02-00-00-00-00-01}]}}
      networks: [{name: red, multus: {networkName: shop/net}}]
`
	macInstance = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: vmi, namespace: default}
spec:
  domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: red, bridge: {}, macAddress: "02:00:00:00:00:01"}]}}
  networks: [{name: red, multus: {networkName: shop/net}}]
`
	// recordedMachine has its address by its annotation.
	recordedMachine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: shop, annotations: {virtkit.io/mac-addresses: '{"vm":"shop/web","interfaces":{"nic":"02:00:00:00:00:01"}}'}}
spec: {template: {spec: {domain: {devices: {interfaces: [{name: nic, bridge: {}}]}}, networks: [{name: nic, multus: {networkName: net}}]}}}
`
)

// noMACs knows of no VM.
func noMACs() *addressHolders {
	h, err := newAddressHolders(nil, &machines{})
	if err != nil {
		panic(err)
	}
	return h
}

// holders has VMs and VMIs in the caches of their holders. What is now is what the API has, if that differs by a name:
// "" stands for one that is gone.
func holders(t *testing.T, now map[string]string, objects ...string) *addressHolders {
	t.Helper()
	h, vms, vmis := noMACs(), map[string]*v1.VirtualMachine{}, map[string]*v1.VirtualMachineInstance{}
	for _, text := range objects {
		informer := h.vms
		var object any = &v1.VirtualMachine{}
		if strings.Contains(text, "kind: VirtualMachineInstance") {
			informer, object = h.vmis, &v1.VirtualMachineInstance{}
		}
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			t.Fatal(err)
		}
		kept, err := onlyInterfaces(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := informer.GetIndexer().Add(kept); err != nil {
			t.Fatal(err)
		}
		switch object := object.(type) {
		case *v1.VirtualMachine:
			vms[object.Namespace+"/"+object.Name] = object
		case *v1.VirtualMachineInstance:
			vmis[object.Namespace+"/"+object.Name] = object
		}
	}
	h.vm = func(_ context.Context, namespace, name string) (*v1.VirtualMachine, error) {
		out := vms[namespace+"/"+name]
		if text, changed := now[name]; changed {
			if out = nil; text != "" {
				out = &v1.VirtualMachine{}
				if err := yaml.Unmarshal([]byte(text), out); err != nil {
					return nil, err
				}
			}
		}
		if out == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
		}
		return out, nil
	}
	h.vmi = func(_ context.Context, namespace, name string) (*v1.VirtualMachineInstance, error) {
		return vmis[namespace+"/"+name], nil
	}
	return h
}

// A MAC address that another VM has on the network is refused with the other's name, to users who begin to claim it.
func TestDuplicateMACs(t *testing.T) {
	const (
		machines   = "/validate/virtualmachines"
		instances  = "/validate/virtualmachineinstances"
		controller = "system:serviceaccount:kubevirt:virt-controller"
		taken      = "spec.template.spec.domain.devices.interfaces[0].macAddress: 02:00:00:00:00:01 is the MAC " +
			"address of VM shop/web, interface nic, on network shop/net; leave macAddress out to get " +
			"one that nobody has, or give another"
	)
	other := strings.NewReplacer("name: vm,", "name: web,", "namespace: default", "namespace: shop").Replace(macMachine)
	elsewhere := strings.Replace(recordedMachine, "networkName: net", "networkName: blue", 1)
	podded := `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm, namespace: default}
spec:
  runStrategy: Always
  template: {spec: {domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, masquerade: {}, macAddress: "02:00:00:00:00:01"}]}}, networks: [{name: default, pod: {}}]}}
`
	otherPodded := strings.Replace(podded, "name: vm,", "name: other,", 1)
	otherVMI := strings.Replace(macInstance, "name: vmi,", "name: lone,", 1)
	ended := otherVMI + "status: {phase: Succeeded}\n"
	renaming := strings.Replace(macMachine, "namespace: default",
		`namespace: shop, annotations: {virtkit.io/renaming-from: '{"name":"web"}'}`, 1)
	copied := strings.NewReplacer("name: web", "name: copy").Replace(recordedMachine)
	copied = strings.Replace(copied, "spec: {template", "spec: {runStrategy: Always, template", 1)
	copied = strings.Replace(copied, "domain: {", "domain: {memory: {guest: 1Gi}, ", 1)
	forged := strings.Replace(copied, `"vm":"shop/web"`, `"vm":"shop/copy"`, 1)
	for name, tc := range map[string]struct {
		path, user, object, old string
		now                     map[string]string
		there                   []string
		want                    string
	}{
		"nobody has it":      {path: machines, object: macMachine},
		"its own":            {path: machines, object: macMachine, there: []string{macMachine}},
		"another's record":   {path: machines, object: macMachine, there: []string{recordedMachine}, want: taken},
		"on another network": {path: machines, object: macMachine, there: []string{elsewhere}},
		"the pod network": {
			path: machines, object: podded, there: []string{otherPodded},
			want: "of VM default/other, interface default, on the pod network",
		},
		"another's spec": {
			path: machines, object: macMachine, there: []string{other}, want: "of VM shop/web, interface red, on",
		},
		"a VMI's": {
			path: machines, object: macMachine, there: []string{otherVMI},
			want: "of VirtualMachineInstance default/lone, interface red",
		},
		"a VMI's that has ended": {path: machines, object: macMachine, there: []string{ended}},
		"the cache is old, the other is gone": {
			path: machines, object: macMachine, there: []string{recordedMachine}, now: map[string]string{"web": ""},
		},
		"the cache is old, the other has another": {
			path: machines, object: macMachine, there: []string{recordedMachine},
			now: map[string]string{"web": elsewhere},
		},
		"had it before": {
			path: machines, object: strings.Replace(macMachine, "1Gi", "2Gi", 1), old: macMachine,
			there: []string{recordedMachine},
		},
		"changed to it": {
			path: machines, object: macMachine, old: strings.Replace(macMachine, "00-01", "00-02", 1),
			there: []string{recordedMachine}, want: taken,
		},
		"virt-controller's": {
			path: machines, user: controller, object: macMachine, there: []string{recordedMachine},
		},
		"takes its place":                  {path: machines, object: renaming, there: []string{recordedMachine}},
		"a copy has a record of no effect": {path: machines, object: copied, there: []string{recordedMachine}},
		"a record that claims it": {
			path: machines, object: forged, there: []string{recordedMachine},
			want: "metadata.annotations[virtkit.io/mac-addresses]: 02:00:00:00:00:01 is the MAC address of VM shop/web",
		},
		"a record of no sense": {
			path: machines, object: strings.Replace(forged, "02:00:00:00:00:01", "x", 1),
			want: `"x" is not an Ethernet address such as 02:12:34:56:78:9a; remove the annotation`,
		},
		"a VMI": {
			path: instances, object: macInstance, there: []string{recordedMachine},
			want: "spec.domain.devices.interfaces[0].macAddress: 02:00:00:00:00:01 is the MAC address of VM shop/web",
		},
		"a VMI that its VM's controller makes": {
			path: instances, user: controller, object: macInstance, there: []string{recordedMachine},
		},
		"a VMI's record of no sense": {
			path: instances, want: "is not {", object: strings.Replace(macInstance, "namespace: default",
				"namespace: default, annotations: {"+macaddress.Annotation+": x}", 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := hooks.holders
			hooks.holders = holders(t, tc.now, tc.there...)
			t.Cleanup(func() { hooks.holders = before })
			got := ask(t, tc.path, tc.user, tc.object, tc.old)
			if got.Allowed != (tc.want == "") || !got.Allowed && !strings.Contains(got.Result.Message, tc.want) {
				t.Errorf("%v %+v, want %q", got.Allowed, got.Result, tc.want)
			}
		})
	}
}

// Where the other VM cannot be read the request fails, and says why.
func TestDuplicateMACsUnknown(t *testing.T) {
	h := holders(t, nil, recordedMachine)
	h.vm = func(context.Context, string, string) (*v1.VirtualMachine, error) { return nil, errors.New("no answer") }
	vm := &v1.VirtualMachine{}
	if err := yaml.Unmarshal([]byte(macMachine), vm); err != nil {
		t.Fatal(err)
	}
	_, err := (&admission{holders: h}).validateMACs(t.Context(), vm, nil, surface.Actor{})
	if err == nil || !strings.Contains(err.Error(), "read who has the MAC address 02:00:00:00:00:01: no answer") {
		t.Error(err)
	}
}
