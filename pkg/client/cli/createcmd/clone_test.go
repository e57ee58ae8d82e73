package createcmd

import (
	"strings"
	"testing"
)

// TestClone has the manifests of clones, by the flags of KubeVirt's virtctl.
func TestClone(t *testing.T) {
	for name, line := range map[string]string{
		"clone.yaml": "--source-name demo",
		"clone-all.yaml": "--name c -n shop --source-name before --source-type vmsnapshot --target-name copy --target-type VirtualMachine" +
			" --label-filter * --label-filter !app --annotation-filter a/* --new-smbios-serial s1" +
			" --new-mac-address default:02-00-00-00-00-17 --new-mac-address other:02-00-00-00-00-18",
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
		"vm": "VirtualMachine", "VM": "VirtualMachine", "VirtualMachine": "VirtualMachine", "virtualmachine": "VirtualMachine",
		"snapshot": "VirtualMachineSnapshot", "VirtualMachineSnapshot": "VirtualMachineSnapshot", "vmsnapshot": "VirtualMachineSnapshot",
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
		"--source-name a --new-mac-address 02-00":      `--new-mac-address: "02-00" is not INTERFACE:MAC, the MAC with dashes`,
		"--source-name a --new-mac-address default:":   `--new-mac-address: "default:" is not INTERFACE:MAC, the MAC with dashes`,
		"--source-name a --new-mac-address :02-00":     `--new-mac-address: ":02-00" is not INTERFACE:MAC, the MAC with dashes`,
		"--source-name a --new-mac-address d:02:00:00": `--new-mac-address: "d:02:00:00" is not INTERFACE:MAC, the MAC with dashes`,
	} {
		c.refused("clone "+line, want)
	}
}
