package disk

import (
	"encoding/json"
	"fmt"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/domain"
)

// driveFolder is where OpenStack's config drive, version 2, has its files.
const driveFolder = "openstack/latest/"

// configDrive gives the files of cloud-init's ConfigDrive data source: user_data, meta_data.json and, if there is
// any, network_data.json, which is OpenStack's and not NoCloud's network configuration.
func configDrive(vmi *v1.VirtualMachineInstance, user, network []byte, keys []string) (map[string][]byte, error) {
	meta, err := json.Marshal(driveMetaData{
		InstanceType: instanceType(vmi),
		InstanceID:   vmi.Name + "." + vmi.Namespace,
		Hostname:     Hostname(vmi),
		UUID:         domain.UUID(vmi),
		PublicKeys:   numbered(keys),
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
// so a guest tells without the drive whether it is still the same instance.
type driveMetaData struct {
	InstanceType string            `json:"instance_type,omitempty"`
	InstanceID   string            `json:"instance_id"`
	Hostname     string            `json:"hostname,omitempty"`
	UUID         string            `json:"uuid"`
	PublicKeys   map[string]string `json:"public_keys,omitempty"`
}

// instanceType is the name of the VMI's instance type, empty for none.
func instanceType(vmi *v1.VirtualMachineInstance) string {
	if name := vmi.Annotations[v1.ClusterInstancetypeAnnotation]; name != "" {
		return name
	}
	return vmi.Annotations[v1.InstancetypeAnnotation]
}
