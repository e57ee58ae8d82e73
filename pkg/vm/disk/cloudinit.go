package disk

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/identity"
)

// cloudInitSource returns a volume's cloud-init data, of either data source, and the field that it is in; nil for other
// volumes.
func cloudInitSource(v *v1.Volume) (*v1.CloudInitNoCloudSource, string) {
	switch {
	case v.CloudInitNoCloud != nil:
		return v.CloudInitNoCloud, "cloudInitNoCloud"
	case v.CloudInitConfigDrive != nil:
		src := v1.CloudInitNoCloudSource(*v.CloudInitConfigDrive)
		return &src, "cloudInitConfigDrive"
	}
	return nil, ""
}

// cloudInitFiles returns a cloud-init volume's label and files. Of the facts it takes what the referenced secrets hold,
// and the public keys for the default user.
func cloudInitFiles(
	vmi *v1.VirtualMachineInstance, v *v1.Volume, f Facts,
) (label string, files map[string][]byte, err error) {
	src, at := cloudInitSource(v)
	user, err := inlineOr(src.UserData, src.UserDataBase64, f.UserData)
	if err != nil {
		return "", nil, fmt.Errorf("%s.userDataBase64: %w", at, err)
	}
	network, err := inlineOr(src.NetworkData, src.NetworkDataBase64, f.NetworkData)
	if err != nil {
		return "", nil, fmt.Errorf("%s.networkDataBase64: %w", at, err)
	}
	if v.CloudInitConfigDrive != nil {
		files, err = configDrive(vmi, user, network, f.PublicKeys)
		return "config-2", files, err
	}
	files, err = noCloud(vmi, user, network, f.PublicKeys)
	return "cidata", files, err
}

// noCloud returns the files of cloud-init's NoCloud data source: user-data, meta-data and, if there is any,
// network-config.
func noCloud(vmi *v1.VirtualMachineInstance, user, network []byte, keys []string) (map[string][]byte, error) {
	meta, err := json.Marshal(metaData{
		InstanceType:  instanceType(vmi),
		InstanceID:    identity.Name(vmi) + "." + vmi.Namespace,
		LocalHostname: identity.Host(vmi),
		PublicKeys:    numbered(keys),
	})
	if err != nil {
		return nil, fmt.Errorf("cloud-init meta-data: %w", err)
	}
	files := map[string][]byte{"user-data": user, "meta-data": meta}
	if len(network) > 0 {
		files["network-config"] = network
	}
	return files, nil
}

// metaData is written as JSON, which is YAML too. The instance ID is KubeVirt's, so that a disk moved
// between the two does not run its first-boot steps again.
type metaData struct {
	InstanceType  string `json:"instance-type,omitempty"`
	InstanceID    string `json:"instance-id"`
	LocalHostname string `json:"local-hostname"`
	// PublicKeys are by number, as KubeVirt has them and every cloud-init reads them.
	PublicKeys map[string]string `json:"public-keys,omitempty"`
}

func numbered(keys []string) map[string]string {
	out := map[string]string{}
	for i, key := range keys {
		out[strconv.Itoa(i)] = key
	}
	return out
}

// inlineOr takes the first of the three places that data can be in.
func inlineOr(plain, encoded string, secret []byte) ([]byte, error) {
	switch {
	case plain != "":
		return []byte(plain), nil
	case encoded != "":
		b, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, invalidf("not base64: %w", err)
		}
		return b, nil
	}
	return secret, nil
}
