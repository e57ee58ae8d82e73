package surface

import (
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// Allowed holds what the KubeVirt resource allows guests to have, beyond what virtkit can do. The zero value is an
// installation whose resource allows nothing more.
type Allowed struct {
	// Gates are the feature gates that are open.
	Gates Gates
	// Machines are patterns (path.Match) of machine types; none allow all that virtkit has.
	Machines []string
	// Devices are the resources of devices of nodes that guests may have (permittedHostDevices).
	Devices map[string]bool
	// NoBridge forbids that a guest has the pod's address.
	NoBridge bool
	// NoSnapshots forbids snapshots, restores and clones.
	NoSnapshots bool
	// Bindings are the network binding plugins by name.
	Bindings map[string]v1.InterfaceBindingPlugin
}

// AllowedBy reads what a configuration allows on an architecture.
func AllowedBy(configuration *v1.KubeVirtConfiguration, architecture string) Allowed {
	allowed := Allowed{
		Gates: OpenGates(configuration.DeveloperConfiguration), Machines: configuration.EmulatedMachines,
		Devices:     permitted(configuration.PermittedHostDevices),
		NoSnapshots: closed(configuration.DeveloperConfiguration, GateSnapshot),
	}
	if specific := configuration.ArchitectureConfiguration; specific != nil && architecture == "amd64" &&
		specific.Amd64 != nil && len(specific.Amd64.EmulatedMachines) > 0 {
		allowed.Machines = specific.Amd64.EmulatedMachines
	}
	if network := configuration.NetworkConfiguration; network != nil {
		allowed.Bindings = network.Binding
	}
	if network := configuration.NetworkConfiguration; network != nil &&
		network.PermitBridgeInterfaceOnPodNetwork != nil {
		allowed.NoBridge = !*network.PermitBridgeInterfaceOnPodNetwork
	}
	return allowed
}

// Validate reports what in a VMI's spec this installation does not allow. What the spec leaves to defaults is not
// looked at.
func (a Allowed) Validate(spec *v1.VirtualMachineInstanceSpec, at *field.Path) field.ErrorList {
	errs := append(validateGates(spec, a.Gates, at), a.validatePermitted(spec, at)...)
	if machine := spec.Domain.Machine; machine != nil && machine.Type != "" && !a.machine(machine.Type) {
		errs = append(errs, field.Invalid(at.Child("domain", "machine", "type"), machine.Type,
			fmt.Sprintf("%q is not among the machine types of this installation; use %s", machine.Type,
				alternatives(a.Machines))))
	}
	errs = append(errs,
		a.validatePlugins(spec.Domain.Devices.Interfaces, at.Child("domain", "devices", "interfaces"))...)
	if !a.NoBridge {
		return errs
	}
	onPods := map[string]bool{}
	for i := range spec.Networks {
		onPods[spec.Networks[i].Name] = spec.Networks[i].Pod != nil
	}
	for i := range spec.Domain.Devices.Interfaces {
		if nic := &spec.Domain.Devices.Interfaces[i]; nic.Bridge != nil && onPods[nic.Name] {
			errs = append(errs, field.Forbidden(at.Child("domain", "devices", "interfaces").Index(i).Child("bridge"),
				"is not allowed on the pod network in this installation; use masquerade: {}"))
		}
	}
	return errs
}

func (a Allowed) machine(name string) bool {
	for _, pattern := range a.Machines {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return len(a.Machines) == 0
}

// validateMachines checks the patterns.
func validateMachines(configuration *v1.KubeVirtConfiguration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(patterns []string, at *field.Path) {
		for i, pattern := range patterns {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				errs = append(errs, field.Invalid(at.Index(i), pattern,
					fmt.Sprintf("%q is not a pattern of machine types such as pc-q35-9.*", pattern)))
			}
		}
	}
	check(configuration.EmulatedMachines, at.Child("emulatedMachines"))
	if specific := configuration.ArchitectureConfiguration; specific != nil && specific.Amd64 != nil {
		check(specific.Amd64.EmulatedMachines, at.Child("architectureConfiguration", "amd64", "emulatedMachines"))
	}
	return errs
}

func validateSMBIOS(smbios *v1.SMBiosConfiguration, at *field.Path) field.ErrorList {
	if smbios == nil {
		return nil
	}
	var errs field.ErrorList
	for _, text := range []struct{ name, value string }{
		{"manufacturer", smbios.Manufacturer},
		{"product", smbios.Product},
		{"version", smbios.Version},
		{"sku", smbios.Sku},
		{"family", smbios.Family},
	} {
		errs = append(errs, validateText(text.value, at.Child(text.name))...)
	}
	return errs
}
