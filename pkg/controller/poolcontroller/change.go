package poolcontroller

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	v1 "kubevirt.io/api/core/v1"
)

// Change returns the JSON merge patch that brings a VM from what one template makes to what another does, as kubectl
// apply would: what the new one has is written, what only the old one had is removed, and what neither has stays, such
// as the firmware's UUID that admission gave the VM. from is nil where it is not known. A nil patch is for a VM that is
// as it should be. The patch holds for the version of the VM that was given.
func Change(machine, from, to *v1.VirtualMachine) ([]byte, error) {
	current, err := portion(machine)
	if err != nil {
		return nil, err
	}
	modified, err := portion(to)
	if err != nil {
		return nil, err
	}
	original := []byte("{}")
	if from != nil {
		if original, err = portion(from); err != nil {
			return nil, err
		}
	}
	data, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
	if err != nil {
		return nil, fmt.Errorf("compare with the template: %w", err)
	}
	if string(data) == "{}" {
		return nil, nil
	}
	patch := map[string]any{}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, fmt.Errorf("compare with the template: %w", err)
	}
	meta, ok := patch["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["uid"], meta["resourceVersion"] = machine.UID, machine.ResourceVersion
	return json.Marshal(patch)
}

// portion returns, as JSON, the part of a VM that a template determines.
func portion(machine *v1.VirtualMachine) ([]byte, error) {
	out := struct {
		Metadata struct {
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"metadata"`
		Spec *v1.VirtualMachineSpec `json:"spec"`
	}{Spec: &machine.Spec}
	out.Metadata.Labels, out.Metadata.Annotations = machine.Labels, machine.Annotations
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode VM: %w", err)
	}
	return data, nil
}

// Restart returns the requests by which a VM's guest is stopped and started again, as `virtctl restart` makes them.
func Restart(vmi types.UID) []v1.VirtualMachineStateChangeRequest {
	return []v1.VirtualMachineStateChangeRequest{{Action: v1.StopRequest, UID: &vmi}, {Action: v1.StartRequest}}
}
