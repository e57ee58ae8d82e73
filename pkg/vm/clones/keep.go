package clones

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
)

// KeepAnnotation on a clone lists, separated by commas, which parts of its source's identity the copy keeps. It is
// given at creation and never changes.
const KeepAnnotation = "virtkit.io/keep-identity"

// The parts of the identity of a guest.
const (
	// KeepMAC is for the MAC addresses of the source.
	KeepMAC = "mac"
	// KeepUUID and KeepSerial are for those of the firmware.
	KeepUUID   = "uuid"
	KeepSerial = "serial"
	// KeepInstanceID is for the instance-id that cloud-init reads.
	KeepInstanceID = "instance-id"
	KeepHostname   = "hostname"
)

// Parts are all parts of an identity that can be kept.
var Parts = []string{KeepMAC, KeepUUID, KeepSerial, KeepInstanceID, KeepHostname}

// Kept returns the parts of its source's identity that a clone keeps, as its annotation lists them.
func Kept(c metav1.Object) []string {
	text := c.GetAnnotations()[KeepAnnotation]
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// KeepTrouble returns what is wrong with the parts that a clone keeps, or "" for nothing.
func KeepTrouble(c *clonev1beta1.VirtualMachineClone) string {
	kept := Kept(c)
	for _, part := range kept {
		if !slices.Contains(Parts, part) {
			return fmt.Sprintf("%q is not one of %s", part, strings.Join(Parts, ", "))
		}
	}
	switch {
	case slices.Contains(kept, KeepSerial) && c.Spec.NewSMBiosSerial != nil:
		return "the serial number is to be kept, and there is a new one"
	case slices.Contains(kept, KeepInstanceID) && Crosses(c):
		return "the instance-id has the namespace in it: a copy in another namespace has its own"
	}
	return ""
}
