package disk

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// NoCloud gives the files of cloud-init's NoCloud data source: user-data, meta-data and, if there is
// any, network-config. Of the facts it takes what the referenced secrets hold, and the public keys for the
// default user.
func NoCloud(vmi *v1.VirtualMachineInstance, src *v1.CloudInitNoCloudSource, f Facts) (map[string][]byte, error) {
	user, err := inlineOr(src.UserData, src.UserDataBase64, f.UserData)
	if err != nil {
		return nil, fmt.Errorf("cloudInitNoCloud.userDataBase64: %w", err)
	}
	network, err := inlineOr(src.NetworkData, src.NetworkDataBase64, f.NetworkData)
	if err != nil {
		return nil, fmt.Errorf("cloudInitNoCloud.networkDataBase64: %w", err)
	}
	meta, err := json.Marshal(metaData{
		InstanceID:    vmi.Name + "." + vmi.Namespace,
		LocalHostname: Hostname(vmi),
		PublicKeys:    numbered(f.PublicKeys),
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
	InstanceID    string `json:"instance-id"`
	LocalHostname string `json:"local-hostname"`
	// PublicKeys are by number, which is how KubeVirt has them and every cloud-init reads them.
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

// maxHostname is the longest DNS label.
const maxHostname = 63

// Hostname is the guest's host name: spec.hostname, or else the first label of the VMI's name.
func Hostname(vmi *v1.VirtualMachineInstance) string {
	if vmi.Spec.Hostname != "" {
		return vmi.Spec.Hostname
	}
	name, _, _ := strings.Cut(vmi.Name, ".")
	if len(name) > maxHostname {
		name = strings.TrimRight(name[:maxHostname], "-")
	}
	return name
}
