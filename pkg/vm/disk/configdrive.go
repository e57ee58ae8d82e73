package disk

import (
	"encoding/json"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/domain"
	"github.com/virtkit/virtkit/pkg/vm/identity"
)

// driveFolder is the directory of the files of OpenStack's config drive, version 2.
const driveFolder = "openstack/latest/"

// configDrive returns the files of cloud-init's ConfigDrive data source: user_data, meta_data.json and, if there is
// any, network_data.json, which is OpenStack's and not NoCloud's network configuration.
func configDrive(vmi *v1.VirtualMachineInstance, user, network []byte, keys []string) (map[string][]byte, error) {
	tagged, err := devices(vmi)
	if err != nil {
		return nil, invalidError{err}
	}
	meta, err := json.Marshal(driveMetaData{
		InstanceType: instanceType(vmi),
		InstanceID:   identity.Name(vmi) + "." + vmi.Namespace,
		Hostname:     identity.Host(vmi),
		UUID:         domain.UUID(vmi),
		PublicKeys:   numbered(keys),
		Devices:      tagged,
	})
	if err != nil {
		return nil, fmt.Errorf("cloud-init meta_data.json: %w", err)
	}
	files := map[string][]byte{driveFolder + "user_data": user, driveFolder + "meta_data.json": meta}
	if len(network) > 0 {
		files[driveFolder+"network_data.json"] = network
	}
	return files, nil
}

// driveMetaData has KubeVirt's keys. cloud-init insists on the UUID, which is its instance ID and the firmware's:
// so a guest knows without the drive whether it is still the same instance.
type driveMetaData struct {
	InstanceType string            `json:"instance_type,omitempty"`
	InstanceID   string            `json:"instance_id"`
	Hostname     string            `json:"hostname,omitempty"`
	UUID         string            `json:"uuid"`
	PublicKeys   map[string]string `json:"public_keys,omitempty"`
	Devices      []device          `json:"devices,omitempty"`
}

// device says which of a guest's devices has the tag, as OpenStack's metadata does.
type device struct {
	Type    string   `json:"type"`
	Bus     string   `json:"bus"`
	Address string   `json:"address,omitempty"`
	MAC     string   `json:"mac,omitempty"`
	Serial  string   `json:"serial,omitempty"`
	Tags    []string `json:"tags"`
}

// devices returns the devices that have a tag.
func devices(vmi *v1.VirtualMachineInstance) ([]device, error) {
	tagged, err := domain.TaggedDevices(vmi)
	if err != nil {
		return nil, err
	}
	out := make([]device, len(tagged))
	for i, t := range tagged {
		out[i] = device{Type: "disk", Bus: t.Bus, MAC: t.MAC, Serial: t.Serial, Tags: []string{t.Tag}}
		if t.NIC {
			out[i].Type = "nic"
		}
		if t.Address != nil {
			out[i].Address = t.Address.String()
		}
	}
	return out, nil
}

// instanceType returns the name of the VMI's instance type, or "" for none.
func instanceType(vmi *v1.VirtualMachineInstance) string {
	if name := vmi.Annotations[v1.ClusterInstancetypeAnnotation]; name != "" {
		return name
	}
	return vmi.Annotations[v1.InstancetypeAnnotation]
}
