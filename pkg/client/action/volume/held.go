package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// Unattached returns the status of a volume that could not be attached to the guest, nil for any other.
func Unattached(vmi *v1.VirtualMachineInstance, volume string) *v1.VolumeStatus {
	status := Status(wait.State{VMI: vmi}, volume)
	if status == nil || status.Reason != hotplug.ReasonAttachFailed || status.Phase == v1.VolumeReady {
		return nil
	}
	return status
}

// Holders returns the other instances of a namespace that have a claim as a volume, or had and have not let go of it,
// with vmi/ before those that no VM has made. They are empty where the caller may not read them.
func Holders(ctx context.Context, api Reader, vmi *v1.VirtualMachineInstance, claim string) ([]string, error) {
	var out []string
	err := pages(ctx, api, "/apis/"+v1.GroupVersion.String(), vmi.Namespace, client.VMIs,
		func(other *v1.VirtualMachineInstance) {
			has := func(v v1.Volume) bool { return claims.Name(&v) == claim }
			leaves := func(s *v1.VolumeStatus) bool { return claims.OfStatus(s) == claim }
			if other.Name != vmi.Name && !other.IsFinal() && (slices.ContainsFunc(other.Spec.Volumes, has) ||
				slices.ContainsFunc(claims.Leaving(other), leaves)) {
				out = append(out, claims.Machine(other).String())
			}
		})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the instances of %s: %w", vmi.Namespace, err)
	}
	return out, nil
}

// HeldError is a volume that the guest does not get while others have its claim.
type HeldError struct {
	Volume, Claim, Message string
	Holders                []string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("volume %s is not attached: %s; claim %s is in use by %s. It is attached once the claim is "+
		"free, unless removevolume takes the request back", e.Volume, Said(e.Volume, e.Message), e.Claim,
		strings.Join(e.Holders, ", "))
}

// Said returns the message of a volume's status without the volume's name before it.
func Said(volume, message string) string {
	return strings.TrimPrefix(message, hotplug.Naming(volume))
}

// PluggedOrHeld returns a condition that is met as Plugged is, and ends with a HeldError when the volume cannot be
// attached and another instance has its claim: time alone does not help then.
func PluggedOrHeld(ctx context.Context, api Reader, volume string) wait.Condition {
	condition := Plugged(volume)
	plugged := condition.Met
	condition.Met = func(s wait.State) (bool, error) {
		if met, err := plugged(s); met || err != nil || s.VMI == nil {
			return met, err
		}
		status, found := Unattached(s.VMI, volume), hotplug.Volume(&s.VMI.Spec, volume)
		if status == nil || found == nil || !strings.Contains(status.Message, hotplug.InUse) {
			return false, nil
		}
		claim := claims.Name(found)
		holders, err := Holders(ctx, api, s.VMI, claim)
		if err != nil || len(holders) == 0 {
			return false, err
		}
		return false, &HeldError{Volume: volume, Claim: claim, Message: status.Message, Holders: holders}
	}
	return condition
}
