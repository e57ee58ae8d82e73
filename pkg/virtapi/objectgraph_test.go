package virtapi

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// flat is a graph a line a node.
func flat(node v1.ObjectGraphNode, indent string) string {
	line := fmt.Sprintf("%s%s/%s in %q, %s", indent, node.ObjectReference.Kind, node.ObjectReference.Name,
		*node.ObjectReference.Namespace, node.Labels[dependencyLabel])
	if node.Optional != nil {
		line += ", optional"
	}
	for _, child := range node.Children {
		line += "\n" + flat(child, indent+"  ")
	}
	return line
}

func TestObjectGraph(t *testing.T) {
	vm := &v1.VirtualMachine{}
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {name: vm, namespace: ns}
spec:
  instancetype: {name: u1}
  preference: {name: p, kind: VirtualMachinePreference, revisionName: r}
  template:
    spec:
      domain: {devices: {}}
      accessCredentials:
      - {sshPublicKey: {source: {secret: {secretName: keys}}, propagationMethod: {noCloud: {}}}}
      - {userPassword: {source: {secret: {secretName: pws}}, propagationMethod: {qemuGuestAgent: {}}}}
      networks: [{name: a, pod: {}}, {name: b, multus: {networkName: other/net}}, {name: c, multus: {networkName: own}}]
      volumes:
      - {name: a, persistentVolumeClaim: {claimName: claim}}
      - {name: b, dataVolume: {name: dv}}
      - {name: c, cloudInitNoCloud: {secretRef: {name: seed}, networkDataSecretRef: {name: seed}}}
      - {name: d, cloudInitConfigDrive: {secretRef: {name: drive}}}
      - {name: e, sysprep: {configMap: {name: answers}}}
      - {name: f, sysprep: {secret: {name: secretanswers}}}
      - {name: g, containerDisk: {image: x, imagePullSecret: pull}}
      - {name: h, emptyDisk: {capacity: 1Gi}}
      - {name: i, configMap: {name: cm}}
      - {name: j, secret: {secretName: s}}
      - {name: k, serviceAccount: {serviceAccountName: sa}}
status:
  instancetypeRef: {name: u1, controllerRevisionRef: {name: vm-u1}}
`), vm); err != nil {
		t.Fatal(err)
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace = "vm", "ns"
	want := strings.TrimSpace(`
VirtualMachine/vm in "ns", compute
  VirtualMachineInstance/vm in "ns", compute
    Pod/virt-launcher-vm in "ns", compute
  VirtualMachineClusterInstancetype/u1 in "", config, optional
  ControllerRevision/vm-u1 in "ns", config
  VirtualMachinePreference/p in "ns", config, optional
  ControllerRevision/r in "ns", config
  Secret/keys in "ns", config
  Secret/pws in "ns", config
  PersistentVolumeClaim/claim in "ns", storage
  DataVolume/dv in "ns", storage
    PersistentVolumeClaim/dv in "ns", storage
  Secret/seed in "ns", config
  Secret/drive in "ns", config
  ConfigMap/answers in "ns", config
  Secret/secretanswers in "ns", config
  Secret/pull in "ns", config
  ConfigMap/cm in "ns", config
  Secret/s in "ns", config
  ServiceAccount/sa in "ns", network
  NetworkAttachmentDefinition/net in "other", network, optional
  NetworkAttachmentDefinition/own in "ns", network, optional`)
	graph := machineGraph(vm, vmi, []string{"virt-launcher-vm"})
	if got := flat(graph, ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	graph.Children = filtered(graph.Children, false, labels.SelectorFromSet(labels.Set{dependencyLabel: onStorage}))
	if got := flat(graph, ""); strings.Count(got, "\n") != 3 || !strings.Contains(got, "DataVolume/dv") {
		t.Errorf("storage alone:\n%s", got)
	}
	if got := flat(instanceGraph(vmi, []string{"p"}),
		""); got != "VirtualMachineInstance/vm in \"ns\", compute\n  Pod/p in \"ns\", compute" {
		t.Errorf("instance:\n%s", got)
	}
}
