package surface

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// validatePlugins checks that the network binding plugins of interfaces are the installation's.
func (a Allowed) validatePlugins(interfaces []v1.Interface, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range interfaces {
		binding := interfaces[i].Binding
		if binding == nil || binding.Name == "" {
			continue
		}
		here := at.Index(i).Child("binding", "name")
		if _, ok := a.Bindings[binding.Name]; ok {
			continue
		}
		known := "which has none"
		if len(a.Bindings) > 0 {
			known = "which has " + strings.Join(slices.Sorted(maps.Keys(a.Bindings)), ", ")
		}
		err := field.NotFound(here, binding.Name)
		err.Detail = fmt.Sprintf("%q is not a network binding plugin of this installation, %s; an administrator can "+
			"add it to spec.configuration.network.binding of the KubeVirt resource, or use masquerade: {} or "+
			"bridge: {}", binding.Name, known)
		errs = append(errs, err)
	}
	return errs
}

// validateBindingPlugins checks the plugins that a KubeVirt resource registers.
func validateBindingPlugins(configuration *v1.NetworkConfiguration, at *field.Path) field.ErrorList {
	if configuration == nil {
		return nil
	}
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(configuration.Binding)) {
		plugin, here := configuration.Binding[name], at.Key(name)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			errs = append(errs, field.Invalid(here, name, fmt.Sprintf("%q is not a name: %s", name, problems[0])))
		}
		if plugin.DomainAttachmentType == "" && plugin.SidecarImage == "" {
			errs = append(errs, field.Required(here.Child("domainAttachmentType"), "is not set; use tap or managedTap"))
		}
		if m := plugin.Migration; m != nil && m.Method != "" {
			errs = append(errs, field.Forbidden(here.Child("migration", "method"), unsupportedDetail()+
				" (the guest keeps its address when it migrates; leave it out, migration: {} says that it can)"))
		}
		if plugin.NetworkAttachmentDefinition != "" {
			errs = append(errs,
				validateDefinition(plugin.NetworkAttachmentDefinition, here.Child("networkAttachmentDefinition"))...)
		}
		if overhead := plugin.ComputeResourceOverhead; overhead != nil && overhead.Requests.Memory().Sign() < 0 {
			errs = append(errs, field.Invalid(here.Child("computeResourceOverhead", "requests", "memory"),
				overhead.Requests.Memory().String(), "must not be negative"))
		}
	}
	return errs
}
