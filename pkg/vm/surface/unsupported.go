package surface

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// node is one element of the table's paths.
type node struct {
	entry    *Field // nil for an element that is only on the way
	children map[string]*node
}

func tree(fields []Field) *node {
	root := &node{}
	for i := range fields {
		at := root
		for name := range strings.SplitSeq(fields[i].Path, ".") {
			if at.children == nil {
				at.children = map[string]*node{}
			}
			if at.children[name] == nil {
				at.children[name] = &node{}
			}
			at = at.children[name]
		}
		at.entry = &fields[i]
	}
	return root
}

var (
	machineTree  = sync.OnceValue(func() *node { return tree(virtualMachineFields()) })
	instanceTree = sync.OnceValue(func() *node { return tree(instanceFields) })
	kubeVirtTree = sync.OnceValue(func() *node { return tree(kubeVirtFields) })
	// migrationTree is the tree of VirtualMachineInstanceMigration.
	migrationTree  = sync.OnceValue(func() *node { return tree(migrationFields) })
	replicaSetTree = sync.OnceValue(
		func() *node { return tree(below(replicaSetFields, "template.spec.", instanceFields)) },
	)
	poolTree = sync.OnceValue(
		func() *node { return tree(below(poolFields, "virtualMachineTemplate.spec.", virtualMachineFields())) },
	)
	policyTree = sync.OnceValue(func() *node { return tree(policyFields) })
)

// remedies say what to do instead, for fields outside the table that many manifests have.
var remedies = map[string]string{
	"slirp": " (use masquerade: {})",
	"containerPath": " (use a file system of the volume itself, such as serviceAccount or secret: " +
		"docs/volumes.md)",
	"utilityVolumes": " (they are made for memory dumps and backups as these need them; leave it out)",
	"memoryDump":     " (ask for one with `virtctl memory-dump get`: docs/volumes.md)",
	"macvtap":        " (use bridge: {}, or the macvtap of a NetworkAttachmentDefinition with it)",
	"passt":          " (use masquerade: {})",
	"passtBinding":   " (use masquerade: {})",
	"sidecarImage": " (nothing but the launcher makes the domain; use a plugin with domainAttachmentType " +
		"tap or managedTap alone)",
	"downwardAPI": " (it is for sidecars, which there are none of; leave it out)",
	"resourceClaims": " (devices come from device plugins; name a resource of permittedHostDevices in " +
		"deviceName)",
	"requestName": " (devices come from device plugins; name a resource of permittedHostDevices in " +
		"deviceName)",
	"claimName": " (devices come from device plugins; name a resource of permittedHostDevices in " +
		"deviceName)",
	"launchSecurity.snp": " (it needs firmware without a variable store, which virt-launcher's image has none of; " +
		"use sev: {policy: {encryptedState: true}})",
	"launchSecurity.tdx": " (the QEMU of virt-launcher's image has nothing of TDX; leave it out, or use sev on " +
		"AMD's processors)",
	"sev.attestation": " (nothing hands the guest's measurement out; leave it out)",
	"sev.session":     " (there is no attestation whose session it could be; leave it out)",
	"sev.dhCert":      " (there is no attestation whose session it could be; leave it out)",
	"lun.reservation": " (persistent reservations need a privileged daemon on the node, which there is none " +
		"of; leave it out)",
	"changedBlockTracking":  " (nothing reads which blocks have changed; leave it out)",
	"migrations.network":    " (guests move over the nodes' virt-handler pods; leave it out)",
	"migrations.disableTLS": " (nothing moves between nodes in the clear; leave it out)",
	// The KubeVirt resource: what its operator does, virtctl install and its manifests do.
	"imageTag":      " (`virtctl install --image-tag` sets it; leave it out)",
	"imageRegistry": " (`virtctl install --image-registry` sets it; leave it out)",
	"serviceMonitorNamespace": " (the ServiceMonitor is in namespace kubevirt, beside the authority that it " +
		"trusts; leave it out)",
	"productName":         " (label the components in a kustomization of manifests/base; leave it out)",
	"productVersion":      " (label the components in a kustomization of manifests/base; leave it out)",
	"productComponent":    " (label the components in a kustomization of manifests/base; leave it out)",
	"workloads.replicas":  " (there is one virt-handler a node; leave it out)",
	"customizeComponents": " (patch the components in a kustomization of manifests/base; leave it out)",
	"ovmfPath":            " (the firmware is in virt-launcher's image; leave it out)",
	"seccompConfiguration": " (guests' pods have RuntimeDefault, as Pod Security's restricted level wants; " +
		"leave it out)",
	"ciphers": " (TLS 1.3, which the components speak, has no suites to choose from; leave it " +
		"out)",
	"webhookConfiguration": " (virt-api answers webhooks, too; use apiConfiguration)",
	"httpGet.host":         " (the guest is asked, at the address of its pod; leave it out)",
	"tcpSocket.host":       " (the guest is asked, at the address of its pod; leave it out)",
	"mediatedDevicesConfiguration": " (have the devices made on the nodes by other means; " +
		"permittedHostDevices.mediatedDevices offers what is there)",

	"migrations.matchSELinuxLevelOnMigration": " (SELinux levels are left to the container runtime; leave it out)",
	"migrations.utilityVolumesTimeout":        " (there are no utility volumes to wait for; leave it out)",

	// More of the KubeVirt resource's configuration.
	"ksmConfiguration": " (turn kernel samepage merging on at the nodes, in /sys/kernel/mm/ksm; leave " +
		"it out)",
	"commonInstancetypesDeployment": " (`virtctl install --instancetypes` installs them, and nothing else does; " +
		"leave it out)",
	"selinuxLauncherType": " (SELinux is left to the container runtime; leave it out)",
	"supportedGuestAgentVersions": " (condition AgentVersionNotSupported goes by what the agent can do; leave it " +
		"out)",
	"pvcTolerateLessSpaceUpToPercent": " (a new disk image is as large as its claim, less what the file system " +
		"takes; leave it out)",
	"minimumReservePVCBytes": " (a new disk image is as large as its claim, less what the file system takes; leave " +
		"it out)",
	"clusterProfiler": " (the components' metrics show what they use; leave it out)",
}

// remedy returns the remedy for the field at the end of a path: by its name, or by its name and the one before.
func remedy(path *field.Path) string {
	text := path.String()
	name := lastName(path)
	if found, ok := remedies[name]; ok {
		return found
	}
	for with, found := range remedies {
		if text == with || strings.HasSuffix(text, "."+with) {
			return found
		}
	}
	return ""
}

// unsupported reports each field of a spec that is set and not in the table, and each value that is
// not among those the table allows.
func unsupported(spec any, table *node, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	walk(reflect.ValueOf(spec), table, path, &errs)
	return errs
}

func walk(v reflect.Value, at *node, path *field.Path, errs *field.ErrorList) {
	switch {
	case at == nil:
		if says(v) {
			*errs = append(*errs, field.Forbidden(path, unsupportedDetail()+remedy(path)))
		}
		return
	case len(at.children) == 0:
		checkValue(v, at.entry, path, errs)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(v.Elem(), at, path, errs)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), at, path.Index(i), errs)
		}
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			next, ok := at.children[key]
			if !ok {
				next = at.children["*"] // whatever its name
			}
			walk(v.MapIndex(reflect.ValueOf(key).Convert(v.Type().Key())), next, path.Child(key), errs)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, inline := jsonName(v.Type().Field(i))
			switch {
			case inline:
				walk(v.Field(i), at, path, errs)
			case name != "":
				walk(v.Field(i), at.children[name], path.Child(name), errs)
			}
		}
	}
}

// checkValue holds a value against the entry's list.
func checkValue(v reflect.Value, entry *Field, path *field.Path, errs *field.ErrorList) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if len(entry.Only) == 0 || v.Kind() == reflect.String && v.Len() == 0 {
		return
	}
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			checkValue(v.Index(i), entry, path.Index(i), errs)
		}
		return
	}
	if text := fmt.Sprint(v.Interface()); !slices.Contains(entry.Only, text) {
		*errs = append(*errs,
			field.Invalid(path, text, fmt.Sprintf("%q is not supported; use %s", text, alternatives(entry.Only))))
	}
}

// alternatives lists values as "a, b or c".
func alternatives(values []string) string {
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// says reports whether a value asks for something: what is null, empty, zero or switched off does not.
func says(v reflect.Value) bool {
	if zero, ok := v.Interface().(interface{ IsZero() bool }); ok && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		return !zero.IsZero()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return false
		}
		elem := v.Elem()
		if elem.Kind() == reflect.Struct {
			// An empty section means something by being there; one that holds only what is switched off
			// does not.
			return elem.IsZero() || !switchedOff(elem) && says(elem)
		}
		return says(elem)
	case reflect.Slice, reflect.Map:
		return v.Len() > 0
	case reflect.Struct:
		for i := range v.NumField() {
			member := v.Type().Field(i)
			if member.IsExported() && says(v.Field(i)) {
				return true
			}
		}
		return false
	default:
		return !v.IsZero()
	}
}

// switchedOff reports a section like `hyperv.relaxed: {enabled: false}`.
func switchedOff(section reflect.Value) bool {
	enabled := section.FieldByName("Enabled")
	return enabled.IsValid() && enabled.Kind() == reflect.Pointer && !enabled.IsNil() &&
		enabled.Elem().Kind() == reflect.Bool && !enabled.Elem().Bool()
}

// jsonName returns the name of a struct's field in JSON, or that its fields count as the struct's own.
func jsonName(f reflect.StructField) (name string, inline bool) {
	tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if f.Anonymous && tag == "" || strings.Contains(options, "inline") {
		return "", true
	}
	if !f.IsExported() || tag == "-" {
		return "", false
	}
	if tag == "" {
		return f.Name, false
	}
	return tag, false
}

func sortedKeys(m reflect.Value) []string {
	keys := make([]string, 0, m.Len())
	for _, key := range m.MapKeys() {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return keys
}

// lastName returns the last element of a path, without indexes.
func lastName(path *field.Path) string {
	name := path.String()
	name = name[strings.LastIndexByte(name, '.')+1:]
	name, _, _ = strings.Cut(name, "[")
	return name
}
