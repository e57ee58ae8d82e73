package createcmd

import (
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// TestClone has the manifests of clones, by the flags of KubeVirt's virtctl.
func TestClone(t *testing.T) {
	for name, line := range map[string]string{
		"clone.yaml": "--source-name demo",
		"clone-all.yaml": "--name c -n shop --source-name before --source-type vmsnapshot --target-name copy " +
			"--target-type VirtualMachine" +
			" --label-filter * --label-filter !app --annotation-filter a/* --new-smbios-serial s1" +
			" --template-label-filter b/* --template-label-filter !b/c --template-annotation-filter !d" +
			" --new-mac-address default:02-00-00-00-00-17 --new-mac-address other:02-00-00-00-00-18" +
			" --keep uuid,hostname --keep instance-id",
		"clone-across.yaml": "--name c -n team-a --source-name demo --target-name demo --target-namespace team-b",
	} {
		out, errOut, err := newCluster(t).create("", append([]string{"clone"}, strings.Fields(line)...)...)
		if err != nil || errOut != "" {
			t.Errorf("%s: %v, %s", name, err, errOut)
		}
		golden(t, name, out)
	}
}

// TestCloneTypes takes the kinds of source and target by all names that KubeVirt's virtctl takes.
func TestCloneTypes(t *testing.T) {
	for given, want := range map[string]string{
		"vm": "VirtualMachine", "VM": "VirtualMachine", "VirtualMachine": "VirtualMachine",
		"virtualmachine": "VirtualMachine",
		"snapshot":       "VirtualMachineSnapshot", "VirtualMachineSnapshot": "VirtualMachineSnapshot",
		"vmsnapshot": "VirtualMachineSnapshot",
		"VMSnapshot": "VirtualMachineSnapshot",
	} {
		c := newCluster(t)
		line := []string{"clone", "--source-name", "demo", "--source-type", given, "--apply"}
		if want == "VirtualMachine" {
			line = append(line, "--target-type", given)
		}
		if _, _, err := c.create("", line...); err != nil || c.sent("spec", "source", "kind") != want ||
			c.sent("spec", "target", "kind") != "VirtualMachine" {
			t.Errorf("%s: %v, %v", given, c.sent("spec"), err)
		}
	}
}

// TestCloneRefused names the flag, and what it takes.
func TestCloneRefused(t *testing.T) {
	c := newCluster(t)
	for line, want := range map[string]string{
		"":                                       `--source-name is missing; give the name of a VM or snapshot`,
		"--source-name=":                         `--source-name is missing; give the name of a VM or snapshot`,
		"--source-name a --source-type disk":     `--source-type: "disk" is not one of vm, snapshot`,
		"--source-name a --target-type snapshot": `--target-type: "snapshot" is not vm`,
		"--source-name a --keep mac,name": `--keep: "name" is not one of mac, uuid, serial, instance-id, ` +
			"hostname",
		"--source-name a --keep serial --new-smbios-serial " +
			"s": `--keep: the serial number is to be kept, and there is a new one`,
		"--source-name a --new-mac-address " +
			"02-00": `--new-mac-address: "02-00" is not INTERFACE:MAC, the MAC with dashes`,
		"--source-name a --new-mac-address " +
			"default:": `--new-mac-address: "default:" is not INTERFACE:MAC, the MAC with dashes`,
		"--source-name a --new-mac-address " +
			":02-00": `--new-mac-address: ":02-00" is not INTERFACE:MAC, the MAC with dashes`,
		"--source-name a --new-mac-address " +
			"d:02:00:00": `--new-mac-address: "d:02:00:00" is not INTERFACE:MAC, the MAC with dashes`,
	} {
		c.refused("clone "+line, want)
	}
}

// TestCloneAcross makes a clone for another namespace there, with the source's namespace in its annotation. The
// manifest says the same as what is sent.
func TestCloneAcross(t *testing.T) {
	for line, want := range map[string]struct {
		namespace string
		source    any // the annotation, if there is one
	}{
		"-n team-a --target-namespace team-b":                        {"team-b", "team-a"},
		"--target-namespace team-b":                                  {"team-b", "shop"}, // the context's
		"-n team-a --target-namespace team-b --source-type snapshot": {"team-b", "team-a"},
		"-n team-a --target-namespace team-b --target-name demo":     {"team-b", "team-a"},
		// the source's own is none other
		"-n team-a --target-namespace team-a":                            {"team-a", nil},
		"--target-namespace shop":                                        {"shop", nil},
		"-n team-a --target-namespace=":                                  {"team-a", nil},
		"-n team-a --target-namespace team-b --dry-run=server -o yaml":   {"team-b", "team-a"},
		"-n team-a --target-namespace team-b --new-smbios-serial serial": {"team-b", "team-a"},
	} {
		c := newCluster(t)
		args := append([]string{"clone", "--name", "c", "--source-name", "demo"}, strings.Fields(line)...)
		if out, _, err := c.create("", append(args, "--apply")...); err != nil || !strings.Contains(out, "c") {
			t.Errorf("%s: %q, %v", line, out, err)
		}
		path := "POST /apis/clone.kubevirt.io/v1beta1/namespaces/" + want.namespace + "/virtualmachineclones?"
		if asked := c.requests(); !strings.HasPrefix(asked, path) || strings.Contains(asked, "\n") {
			t.Errorf("%s: asked %s, want one %s", line, asked, path)
		}
		if c.sent("metadata", "namespace") != want.namespace || c.sent("spec", "source", "name") != "demo" ||
			c.sent("metadata", "annotations", clones.NamespaceAnnotation) != want.source {
			t.Errorf("%s: %v, want %+v", line, c.sent("metadata"), want)
		}
		manifest, _, err := c.create("", append(args, "--apply", "--dry-run=client",
			"-o", `jsonpath={.metadata.namespace}|{.metadata.annotations.virtkit\.io/source-namespace}`)...)
		source, _ := want.source.(string)
		if err != nil || manifest != want.namespace+"|"+source {
			t.Errorf("%s: the manifest has %q, want %+v; %v", line, manifest, want, err)
		}
	}
}

// TestCloneAcrossRefused has a namespace that can be none refused by its flag.
func TestCloneAcrossRefused(t *testing.T) {
	for _, namespace := range []string{"Team_B", "team-b/demo", "team.b", "-b", strings.Repeat("b", 64)} {
		c := newCluster(t)
		out, _, err := c.create("", "clone", "--source-name", "demo", "--apply", "--target-namespace="+namespace)
		if cli.ExitCode(err) != cli.ExitUsage || out != "" ||
			!strings.HasPrefix(err.Error(), `--target-namespace: "`+namespace+`" is not a namespace: `) {
			t.Errorf("%s: %q, %v", namespace, out, err)
		}
		if asked := c.requests(); asked != "" {
			t.Errorf("%s: asked %s", namespace, asked)
		}
	}
}
