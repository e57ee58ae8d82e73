package main

import (
	"fmt"
	"path"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// kind is what the Go types do not say about a resource.
type kind struct {
	path string // the Go package
	// older are the Go packages of versions that are served, too; objects are stored as path's.
	older []string
	// aliases are versions with the same fields as path's, for old manifests and clients: KubeVirt's.
	aliases     []string
	group, kind string
	shortNames  []string
	columns     []apiextensions.CustomResourceColumnDefinition
	scale       *apiextensions.CustomResourceSubresourceScale
	// cluster kinds have no namespace, and are not among what "kubectl get all" lists. plain kinds are only read: they
	// have no status.
	cluster, plain bool
	// refused is why no object of the kind can be made. It is there for clients that list it, and for this answer.
	refused string
}

// coreAliases are what KubeVirt serves beside v1 of its core group.
var coreAliases = []string{"v1alpha3"}

const (
	coreV1            = "kubevirt.io/api/core/v1"
	coreGroup         = "kubevirt.io"
	instancetypeV1    = "kubevirt.io/api/instancetype/v1beta1"
	instancetypeGroup = "instancetype.kubevirt.io"
	snapshotV1        = "kubevirt.io/api/snapshot/v1beta1"
	snapshotGroup     = "snapshot.kubevirt.io"
)

// kinds are the resources that virtkit installs, with KubeVirt's names and columns. A kind is added
// here together with the component that acts on it.
var kinds = []kind{
	{
		path: coreV1, aliases: coreAliases, group: coreGroup, kind: "KubeVirt", shortNames: []string{"kv", "kvs"},
		columns: columns(age, text("Phase", ".status.phase")),
	},
	{
		path: coreV1, aliases: coreAliases, group: coreGroup, kind: "VirtualMachine", shortNames: []string{"vm", "vms"},
		columns: columns(age,
			described(text("Status", ".status.printableStatus"), "Human Readable Status"),
			condition("Ready", "Ready")),
	},
	{
		path: coreV1, aliases: coreAliases, group: coreGroup, kind: "VirtualMachineInstance",
		shortNames: []string{"vmi", "vmis"},
		columns: columns(age,
			text("Phase", ".status.phase"),
			text("IP", ".status.interfaces[0].ipAddress"),
			text("NodeName", ".status.nodeName"),
			condition("Ready", "Ready"),
			wide(condition("Live-Migratable", "LiveMigratable")),
			wide(condition("Paused", "Paused"))),
	},
	{
		path: coreV1, aliases: coreAliases, group: coreGroup, kind: "VirtualMachineInstanceMigration",
		shortNames: []string{"vmim", "vmims"},
		columns: columns(
			described(text("Phase", ".status.phase"), "The current phase of VM instance migration"),
			described(text("VMI", ".spec.vmiName"), "The name of the VMI to perform the migration on")),
	},
	{
		path: coreV1, aliases: coreAliases, group: coreGroup, kind: "VirtualMachineInstanceReplicaSet",
		shortNames: []string{"vmirs", "vmirss"},
		columns: columns(
			described(number("Desired", ".spec.replicas"), "Number of desired VirtualMachineInstances"),
			described(number("Current", ".status.replicas"),
				"Number of managed and not final or deleted VirtualMachineInstances"),
			described(number("Ready", ".status.readyReplicas"),
				"Number of managed VirtualMachineInstances which are ready to receive traffic"),
			age),
		scale: replicas,
	},
	{
		path: coreV1, aliases: coreAliases, group: coreGroup, kind: "VirtualMachineInstancePreset",
		shortNames: []string{"vmipreset", "vmipresets"}, plain: true,
		refused: "virtkit does not have VirtualMachineInstancePresets, which KubeVirt has deprecated; use a " +
			"VirtualMachinePreference or a VirtualMachineInstancetype, and name it in the VirtualMachine",
	},
	{
		path: "kubevirt.io/api/pool/v1beta1", older: []string{"kubevirt.io/api/pool/v1alpha1"},
		group: "pool.kubevirt.io", kind: "VirtualMachinePool", shortNames: []string{"vmpool", "vmpools"},
		columns: columns(
			described(number("Desired", ".spec.replicas"), "Number of desired VirtualMachines"),
			described(number("Current", ".status.replicas"),
				"Number of managed and not final or deleted VirtualMachines"),
			described(number("Ready", ".status.readyReplicas"),
				"Number of managed VirtualMachines which are ready to receive traffic"),
			age),
		scale: replicas,
	},
	{
		path: instancetypeV1, group: instancetypeGroup, kind: "VirtualMachineInstancetype", plain: true,
		shortNames: []string{"vminstancetype", "vminstancetypes", "vmf", "vmfs"},
		columns:    columns(number("CPU", ".spec.cpu.guest"), text("Memory", ".spec.memory.guest"), age),
	},
	{
		path: instancetypeV1, group: instancetypeGroup, kind: "VirtualMachineClusterInstancetype", plain: true,
		cluster:    true,
		shortNames: []string{"vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"},
		columns:    columns(number("CPU", ".spec.cpu.guest"), text("Memory", ".spec.memory.guest"), age),
	},
	{
		path: instancetypeV1, group: instancetypeGroup, kind: "VirtualMachinePreference", plain: true,
		shortNames: []string{"vmpref", "vmprefs", "vmp", "vmps"}, columns: columns(age),
	},
	{
		path: instancetypeV1, group: instancetypeGroup, kind: "VirtualMachineClusterPreference", plain: true,
		cluster:    true,
		shortNames: []string{"vmcp", "vmcps"}, columns: columns(age),
	},
	{
		path: snapshotV1, older: []string{"kubevirt.io/api/snapshot/v1alpha1"}, group: snapshotGroup,
		kind: "VirtualMachineSnapshot", shortNames: []string{"vmsnapshot", "vmsnapshots"},
		columns: columns(text("SourceKind", ".spec.source.kind"), text("SourceName", ".spec.source.name"),
			text("Phase", ".status.phase"), boolean("ReadyToUse", ".status.readyToUse"),
			date("CreationTime", ".status.creationTime"), text("Error", ".status.error.message")),
	},
	{
		path: snapshotV1, older: []string{"kubevirt.io/api/snapshot/v1alpha1"}, group: snapshotGroup,
		kind: "VirtualMachineSnapshotContent", shortNames: []string{"vmsnapshotcontent", "vmsnapshotcontents"},
		columns: columns(boolean("ReadyToUse", ".status.readyToUse"), date("CreationTime", ".status.creationTime"),
			text("Error", ".status.error.message")),
	},
	{
		path: snapshotV1, older: []string{"kubevirt.io/api/snapshot/v1alpha1"}, group: snapshotGroup,
		kind: "VirtualMachineRestore", shortNames: []string{"vmrestore", "vmrestores"},
		columns: columns(text("TargetKind", ".spec.target.kind"), text("TargetName", ".spec.target.name"),
			boolean("Complete", ".status.complete"), date("RestoreTime", ".status.restoreTime")),
	},
	{
		path: "kubevirt.io/api/clone/v1beta1", older: []string{"kubevirt.io/api/clone/v1alpha1"},
		group: "clone.kubevirt.io", kind: "VirtualMachineClone", shortNames: []string{"vmclone", "vmclones"},
		columns: columns(text("Phase", ".status.phase"), text("SourceVirtualMachine", ".spec.source.name"),
			text("TargetVirtualMachine", ".spec.target.name")),
	},
	{
		path: "kubevirt.io/api/export/v1beta1", older: []string{"kubevirt.io/api/export/v1alpha1"},
		group: "export.kubevirt.io", kind: "VirtualMachineExport", shortNames: []string{"vmexport", "vmexports"},
		columns: columns(text("SourceKind", ".spec.source.kind"), text("SourceName", ".spec.source.name"),
			text("Phase", ".status.phase")),
	},
	{
		path: "kubevirt.io/api/migrations/v1alpha1", group: "migrations.kubevirt.io", kind: "MigrationPolicy",
		cluster: true, columns: columns(age),
	},
}

// dress adds to a definition what the table says.
func (k kind) dress(d *apiextensions.CustomResourceDefinition) {
	d.Spec.Names.ShortNames = k.shortNames
	if !k.cluster {
		d.Spec.Names.Categories = []string{"all"}
	}
	if k.cluster {
		d.Spec.Scope = apiextensions.ClusterScoped
	}
	d.Labels = map[string]string{"app.kubernetes.io/part-of": "virtkit"}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		v.Storage = v.Name == path.Base(k.path)
		if !v.Storage {
			withoutDescriptions(v.Schema.OpenAPIV3Schema)
		}
		spec := v.Schema.OpenAPIV3Schema.Properties["spec"]
		keepUnknown(&spec)
		v.Schema.OpenAPIV3Schema.Properties["spec"] = spec
		v.AdditionalPrinterColumns = k.columns
		if k.plain {
			continue
		}
		v.Subresources = &apiextensions.CustomResourceSubresources{
			Status: &apiextensions.CustomResourceSubresourceStatus{},
			Scale:  k.scale,
		}
		if k.scale != nil {
			defaultReplicas(v.Schema.OpenAPIV3Schema)
		}
	}
	if k.refused != "" {
		k.refuse(d)
	}
	for _, alias := range k.aliases {
		d.Spec.Versions = append(d.Spec.Versions, k.aliased(d.Spec.Versions, alias))
	}
}

// refuse leaves nothing of the schema but that no object can be made. One that another installation has left can
// still be changed, to lose its finalizers.
func (k kind) refuse(d *apiextensions.CustomResourceDefinition) {
	d.Spec.Names.Categories = nil // what "kubectl get all" lists would warn each time
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		v.Deprecated = true
		v.DeprecationWarning = pointer(k.group + "/" + v.Name + " " + k.kind + "s is now deprecated and will be " +
			"removed in v2.")
		v.Schema.OpenAPIV3Schema = &apiextensions.JSONSchemaProps{
			Description: k.refused + ".", Type: "object", XPreserveUnknownFields: pointer(true),
			XValidations: apiextensions.ValidationRules{{
				Rule: "oldSelf.hasValue()", OptionalOldSelf: pointer(true), Message: k.refused,
			}},
		}
	}
}

// aliased is the stored version under another name.
func (k kind) aliased(
	versions []apiextensions.CustomResourceDefinitionVersion, name string,
) apiextensions.CustomResourceDefinitionVersion {
	for i := range versions {
		if !versions[i].Storage {
			continue
		}
		v := *versions[i].DeepCopy()
		v.Name, v.Storage, v.Deprecated = name, false, true
		v.DeprecationWarning = pointer(fmt.Sprintf("%s/%s is now deprecated and will be removed in a future release.",
			k.group, name))
		withoutDescriptions(v.Schema.OpenAPIV3Schema)
		return v
	}
	panic("no version of " + k.kind + " is stored")
}

// keepUnknown has the API server keep fields that the schema does not have, for virt-api to refuse: it drops them by
// default, without a word to clients that do not ask for one (fieldValidation).
func keepUnknown(schema *apiextensions.JSONSchemaProps) {
	if schema.Type == "object" && len(schema.Properties) > 0 {
		schema.XPreserveUnknownFields = pointer(true)
	}
	below(schema, keepUnknown)
}

// below does something with each schema that a schema has directly below it.
func below(schema *apiextensions.JSONSchemaProps, do func(*apiextensions.JSONSchemaProps)) {
	for name, property := range schema.Properties {
		do(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		do(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		do(schema.AdditionalProperties.Schema)
	}
}

// defaultReplicas writes the number of replicas out where it is left to the default, since an autoscaler takes a
// target that says none for one that is switched off.
func defaultReplicas(schema *apiextensions.JSONSchemaProps) {
	spec := schema.Properties["spec"]
	replicas := spec.Properties["replicas"]
	replicas.Default = &apiextensions.JSON{Raw: []byte("1")}
	replicas.Minimum = pointer(0.0)
	spec.Properties["replicas"] = replicas
}

// withoutDescriptions makes the schema of an older version smaller: the same fields are described in the newer.
func withoutDescriptions(schema *apiextensions.JSONSchemaProps) {
	schema.Description = ""
	below(schema, withoutDescriptions)
}

type column = apiextensions.CustomResourceColumnDefinition

var age = column{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}

func columns(c ...column) []column { return c }

func text(name, at string) column { return column{Name: name, Type: "string", JSONPath: at} }

func boolean(name, at string) column { return column{Name: name, Type: "boolean", JSONPath: at} }

func date(name, at string) column { return column{Name: name, Type: "date", JSONPath: at} }

func number(name, at string) column { return column{Name: name, Type: "integer", JSONPath: at} }

func condition(name, conditionType string) column {
	return text(name, ".status.conditions[?(@.type=='"+conditionType+"')].status")
}

func described(c column, description string) column {
	c.Description = description
	return c
}

// wide columns are shown by `kubectl get -o wide` only.
func wide(c column) column {
	c.Priority = 1
	return c
}

func pointer[T any](v T) *T { return &v }

// replicas is the scale of a set: its fields are where those of Kubernetes' own sets are.
var replicas = &apiextensions.CustomResourceSubresourceScale{
	SpecReplicasPath:   ".spec.replicas",
	StatusReplicasPath: ".status.replicas",
	LabelSelectorPath:  pointer(".status.labelSelector"),
}
