package create

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// CloudInitVolume is the name of the volume and disk with the cloud-init data, as KubeVirt's.
const CloudInitVolume = "cloudinitdisk"

// inlineLimit is KubeVirt's limit for data written into the object, bytes.
const inlineLimit = 2048

// account is what useradd takes on the common distributions, generously.
var account = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9._-]{0,31}$`)

// Kinds of cloud-init data sources.
const (
	CloudInitNoCloud = "noCloud"
	CloudInitNone    = "none"
)

// CloudInit is what the guest is told at its first boot. UserData excludes User, Password and SSHKeys.
type CloudInit struct {
	// Source is CloudInitNoCloud (or "") or CloudInitNone.
	Source string
	// User is the account that Password and SSHKeys are for; the image's own default when empty.
	User     string
	Password string
	SSHKeys  []string
	// UserData and NetworkData are given whole, in base64.
	UserData    string
	NetworkData string
}

func (c CloudInit) empty() bool {
	return c.User == "" && c.Password == "" && len(c.SSHKeys) == 0 && c.UserData == "" && c.NetworkData == ""
}

func addCloudInit(spec *v1.VirtualMachineInstanceSpec, c CloudInit) error {
	switch {
	case strings.EqualFold(c.Source, CloudInitNone):
		if !c.empty() {
			return invalid("cloud-init", "none cannot be given together with cloud-init data")
		}
		return nil
	case c.Source != "" && !strings.EqualFold(c.Source, CloudInitNoCloud):
		return invalid("cloud-init", "%q is not one of %s, %s", c.Source, CloudInitNoCloud, CloudInitNone)
	case c.empty():
		return nil
	}
	if c.User != "" && !account.MatchString(c.User) {
		return invalid("user", "%q is no name of an account: it takes letters, digits, ., _ and -, and begins with a letter or _", c.User)
	}
	source := &v1.CloudInitNoCloudSource{}
	switch {
	case c.UserData != "" && (c.User != "" || c.Password != "" || len(c.SSHKeys) > 0):
		return invalid("cloud-init-user-data", "cannot be given together with user, password-file or ssh-key; put them into the user data")
	case c.UserData != "":
		if err := decodable("cloud-init-user-data", c.UserData); err != nil {
			return err
		}
		source.UserDataBase64 = c.UserData
	case c.User != "" || c.Password != "" || len(c.SSHKeys) > 0:
		data, err := userData(c)
		if err != nil {
			return err
		}
		source.UserData = data
	default:
		// Without user data NoCloud is no valid data source.
		source.UserData = "#cloud-config\n"
	}
	if c.NetworkData != "" {
		if err := decodable("cloud-init-network-data", c.NetworkData); err != nil {
			return err
		}
		source.NetworkDataBase64 = c.NetworkData
	}
	for _, v := range spec.Volumes {
		if v.Name == CloudInitVolume {
			return invalid("volume "+v.Name, "the name is the cloud-init volume's; give another with name:…")
		}
	}
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: CloudInitVolume, VolumeSource: v1.VolumeSource{CloudInitNoCloud: source}})
	disk := v1.Disk{Name: CloudInitVolume}
	disk.Disk = &v1.DiskTarget{Bus: v1.DiskBusVirtio}
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, disk)
	return nil
}

// decodable checks data that the caller gives in base64. The limit is on what is inside, as in KubeVirt.
func decodable(field, data string) error {
	decoded, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return invalid(field, "not valid base64: %s", err)
	}
	if len(decoded) > inlineLimit {
		return invalid(field, "%d bytes; more than %d must be in a Secret named by cloudInitNoCloud.secretRef", len(decoded), inlineLimit)
	}
	return nil
}

// userData writes the #cloud-config with keys that every cloud-init knows.
func userData(c CloudInit) (string, error) {
	config := map[string]any{}
	if c.User != "" {
		config["user"] = c.User
	}
	if c.Password != "" {
		config["password"] = c.Password
		config["chpasswd"] = map[string]bool{"expire": false}
	}
	if len(c.SSHKeys) > 0 {
		config["ssh_authorized_keys"] = c.SSHKeys
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("write cloud-init user data: %w", err)
	}
	text := "#cloud-config\n" + string(data)
	if len(text) > inlineLimit {
		return "", invalid("cloud-init", "the user data has %d bytes; more than %d must be in a Secret named by cloudInitNoCloud.secretRef", len(text), inlineLimit)
	}
	return text, nil
}
