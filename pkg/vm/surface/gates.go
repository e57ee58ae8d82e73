package surface

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
)

// Feature gates of KubeVirt's that virtkit keeps closed unless the KubeVirt resource opens them: what they allow
// reaches from the guest to its node.
const (
	GateHostDisk        = "HostDisk"
	GateDownwardMetrics = "DownwardMetrics"
	GateHostDevices     = "HostDevices"
	GateVSOCK           = "VSOCK"
	// GateWorkloadEncryptionSEV is for guests whose memory the processor encrypts.
	GateWorkloadEncryptionSEV = "WorkloadEncryptionSEV"
	// GateHypervStrictCheck restricts guests to nodes whose KVM has the Hyper-V features that they need.
	GateHypervStrictCheck = "HypervStrictCheck"
	// GateVirtiofsStorage is for claims that guests have as file systems; what Kubernetes has anyway needs no gate.
	GateVirtiofsStorage = "EnableVirtioFsStorageVolumes"
	// GateSerialConsoleLog is virtkit's own: guests that do not say have the container guest-console-log, as
	// KubeVirt's.
	GateSerialConsoleLog = "SerialConsoleLog"
	// GateSnapshot is for snapshots, restores and clones. KubeVirt has it closed unless it is named; here it is open
	// unless disabledFeatureGates closes it.
	GateSnapshot = "Snapshot"
)

var gates = []string{
	GateDownwardMetrics, GateHostDevices, GateHostDisk, GateHypervStrictCheck, GateSerialConsoleLog,
	GateVSOCK, GateVirtiofsStorage, GateWorkloadEncryptionSEV,
}

// alwaysOpen are gates of KubeVirt's for what virtkit does anyway.
var alwaysOpen = []string{
	"CPUManager", "CPUNodeDiscovery", "DeclarativeHotplugVolumes", "EnableVirtioFsConfigVolumes",
	"ExpandDisks",
	"ExperimentalIgnitionSupport",
	"GPU", "HotplugVolumes", "ImageVolume", "LiveMigration", "LiveUpdateNADRef", "NUMA", "NetworkBindingPlugins",
	"NonRoot", "ObjectGraph", "PSA", "PanicDevices", "RebootPolicy", "ReservedOverheadMemlock", "VMLiveUpdateFeatures",
	GateSnapshot, "VMPersistentState", "VideoConfig",
}

// closable are the gates of alwaysOpen that disabledFeatureGates closes nevertheless.
var closable = []string{GateSnapshot}

// closed reports whether the developer configuration closes a gate that is open otherwise.
func closed(developer *v1.DeveloperConfiguration, gate string) bool {
	return developer != nil && slices.Contains(developer.DisabledFeatureGates, gate)
}

// Gates are the feature gates that are open.
type Gates map[string]bool

// OpenGates returns the gates that the developer configuration opens, nil for none; a nil configuration opens none.
func OpenGates(developer *v1.DeveloperConfiguration) Gates {
	if developer == nil {
		return nil
	}
	var open Gates
	for _, name := range developer.FeatureGates {
		if !slices.Contains(gates, name) || slices.Contains(developer.DisabledFeatureGates, name) {
			continue
		}
		if open == nil {
			open = Gates{}
		}
		open[name] = true
	}
	return open
}

// validateGates reports what in a VMI's spec needs a gate that is closed.
func validateGates(spec *v1.VirtualMachineInstanceSpec, open Gates, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	need := func(gate string, at *field.Path) {
		if !open[gate] {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf(
				"is not allowed in this installation; an administrator can add %s to "+
					"spec.configuration.developerConfiguration.featureGates of the KubeVirt resource", gate)))
		}
	}
	for i := range spec.Volumes {
		at := path.Child("volumes").Index(i)
		switch volume := &spec.Volumes[i]; {
		case volume.HostDisk != nil:
			need(GateHostDisk, at.Child("hostDisk"))
		case volume.DownwardMetrics != nil:
			need(GateDownwardMetrics, at.Child("downwardMetrics"))
		}
	}
	devices := path.Child("domain", "devices")
	for i := range spec.Domain.Devices.Filesystems {
		if volume := hotplug.Volume(spec, spec.Domain.Devices.Filesystems[i].Name); volume != nil &&
			claims.Storage(volume) {
			need(GateVirtiofsStorage, devices.Child("filesystems").Index(i))
		}
	}
	if spec.Domain.Devices.DownwardMetrics != nil {
		need(GateDownwardMetrics, devices.Child("downwardMetrics"))
	}
	if len(spec.Domain.Devices.HostDevices) > 0 {
		need(GateHostDevices, devices.Child("hostDevices"))
	}
	if passthrough.VSOCK(spec) {
		need(GateVSOCK, devices.Child("autoattachVSOCK"))
	}
	if security := spec.Domain.LaunchSecurity; security != nil && security.SEV != nil {
		need(GateWorkloadEncryptionSEV, path.Child("domain", "launchSecurity"))
	}
	return errs
}

// KubeVirtWarnings returns which of the feature gates that a KubeVirt resource names have no effect.
func KubeVirtWarnings(kv *v1.KubeVirt) []string {
	developer := kv.Spec.Configuration.DeveloperConfiguration
	if developer == nil {
		return nil
	}
	var out []string
	const path = "spec.configuration.developerConfiguration."
	for _, name := range developer.FeatureGates {
		if !slices.Contains(gates, name) && !slices.Contains(alwaysOpen, name) {
			out = append(out, fmt.Sprintf("%sfeatureGates: virtkit has no gate %s: it has no effect (see "+
				"docs/api-surface.md for what there is)", path, name))
		}
	}
	for _, name := range developer.DisabledFeatureGates {
		if !slices.Contains(gates, name) && !slices.Contains(closable, name) {
			out = append(out, fmt.Sprintf("%sdisabledFeatureGates: virtkit has no gate %s that could be closed: it "+
				"has no effect", path, name))
		}
	}
	return out
}
