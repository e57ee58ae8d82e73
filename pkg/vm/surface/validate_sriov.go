package surface

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// validateSRIOV checks an interface that is a function of the node's network card: which one a network of Multus' says,
// and nobody is between it and the guest who could pull its cable.
func validateSRIOV(nic *v1.Interface, network *v1.Network, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if network != nil && network.Pod != nil {
		errs = append(errs, field.Forbidden(at.Child("sriov"),
			fmt.Sprintf("is for networks of Multus', and %q is the pod network; use masquerade: {}", nic.Name)))
	}
	switch nic.State {
	case v1.InterfaceStateLinkDown:
		errs = append(errs,
			field.Invalid(at.Child("state"), nic.State,
				fmt.Sprintf("%q is not for sriov, where the link is the device's own; set it down in the guest",
					nic.State)))
	case v1.InterfaceStateAbsent:
		errs = append(errs, field.Invalid(at.Child("state"), nic.State,
			fmt.Sprintf("%q is not for sriov; remove the interface and its network, and restart the VM", nic.State)))
	}
	return errs
}
