package manifests_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// What kubectl shows of each kind is what KubeVirt has it show, in that order; those with a + in a wide table only. The
// CPUs and memory of instance types are ours: KubeVirt shows the age alone. So are short names and categories
// KubeVirt's.
func TestKubectlShows(t *testing.T) {
	want := map[string]string{
		"KubeVirt":                         "Age, Phase; kv kvs; all",
		"VirtualMachine":                   "Age, Status, Ready; vm vms; all",
		"VirtualMachineInstance":           "Age, Phase, IP, NodeName, Ready, +Live-Migratable, +Paused; vmi vmis; all",
		"VirtualMachineInstanceMigration":  "Phase, VMI; vmim vmims; all",
		"VirtualMachineInstancePreset":     "; vmipreset vmipresets; ",
		"VirtualMachineInstanceReplicaSet": "Desired, Current, Ready, Age; vmirs vmirss; all",
		"VirtualMachinePool":               "Desired, Current, Ready, Age; vmpool vmpools; all",
		"VirtualMachineInstancetype":       "CPU, Memory, Age; vminstancetype vminstancetypes vmf vmfs; all",
		"VirtualMachineClusterInstancetype": "CPU, Memory, Age; vmclusterinstancetype " +
			"vmclusterinstancetypes vmcf vmcfs; ",
		"VirtualMachinePreference":        "Age; vmpref vmprefs vmp vmps; all",
		"VirtualMachineClusterPreference": "Age; vmcp vmcps; ",
		"MigrationPolicy":                 "Age; ; ",
		"VirtualMachineSnapshot": "SourceKind, SourceName, Phase, ReadyToUse, CreationTime, Error; " +
			"vmsnapshot vmsnapshots; all",
		"VirtualMachineSnapshotContent": "ReadyToUse, CreationTime, Error; vmsnapshotcontent vmsnapshotcontents; all",
		"VirtualMachineRestore":         "TargetKind, TargetName, Complete, RestoreTime; vmrestore vmrestores; all",
		"VirtualMachineExport":          "SourceKind, SourceName, Phase; vmexport vmexports; all",
		"VirtualMachineClone":           "Phase, SourceVirtualMachine, TargetVirtualMachine; vmclone vmclones; all",
	}
	got := map[string]string{}
	for _, o := range decode(t, "crds/*.yaml") {
		crd := typed[apiextensionsv1.CustomResourceDefinition](t, o)
		for _, version := range crd.Spec.Versions {
			var columns []string
			for _, column := range version.AdditionalPrinterColumns {
				if column.Priority > 0 {
					column.Name = "+" + column.Name
				}
				columns = append(columns, column.Name)
			}
			shows := strings.Join(columns, ", ") + "; " + strings.Join(crd.Spec.Names.ShortNames, " ") + "; " +
				strings.Join(crd.Spec.Names.Categories, " ")
			if earlier, ok := got[crd.Spec.Names.Kind]; ok && earlier != shows {
				t.Errorf("%s: versions differ: %s and %s", crd.Spec.Names.Kind, earlier, shows)
			}
			got[crd.Spec.Names.Kind] = shows
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A column shows a field that the kind has: the API server takes any path, and the column of a wrong one stays empty.
func TestColumnsShowFields(t *testing.T) {
	for _, o := range decode(t, "crds/*.yaml") {
		crd := typed[apiextensionsv1.CustomResourceDefinition](t, o)
		for _, version := range crd.Spec.Versions {
			for _, column := range version.AdditionalPrinterColumns {
				at := *version.Schema.OpenAPIV3Schema
				path, _, _ := strings.Cut(strings.TrimPrefix(column.JSONPath, "."), "[") // of a list, what it is of
				if strings.HasPrefix(path, "metadata.") {
					continue
				}
				for name := range strings.SplitSeq(path, ".") {
					next, ok := at.Properties[name]
					if !ok {
						t.Errorf("%s %s: column %s shows %s, which it does not have", crd.Spec.Names.Kind, version.Name,
							column.Name, column.JSONPath)
						break
					}
					at = next
				}
			}
		}
	}
}

// Sets can be scaled, and say how many replicas they want, without which an autoscaler would leave them alone.
func TestScale(t *testing.T) {
	for _, o := range decode(t, "crds/*.yaml") {
		crd := typed[apiextensionsv1.CustomResourceDefinition](t, o)
		kind := crd.Spec.Names.Kind
		scaled := kind == "VirtualMachineInstanceReplicaSet" || kind == "VirtualMachinePool"
		stored := 0
		for _, version := range crd.Spec.Versions {
			if version.Storage {
				stored++
			}
			scale := version.Subresources != nil && version.Subresources.Scale != nil
			if scale != scaled {
				t.Errorf("%s %s: scale subresource: %t", kind, version.Name, scale)
			}
			if !scaled {
				continue
			}
			replicas := version.Schema.OpenAPIV3Schema.Properties["spec"].Properties["replicas"]
			if s := version.Subresources.Scale; s.SpecReplicasPath != ".spec.replicas" ||
				s.StatusReplicasPath != ".status.replicas" ||
				s.LabelSelectorPath == nil || *s.LabelSelectorPath != ".status.labelSelector" ||
				replicas.Default == nil || string(replicas.Default.Raw) != "1" {
				t.Errorf("%s %s: %+v, replicas %+v", kind, version.Name, s, replicas)
			}
		}
		if stored != 1 {
			t.Errorf("%s: %d versions are stored", kind, stored)
		}
	}
}
