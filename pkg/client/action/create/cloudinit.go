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
	CloudInitNoCloud     = "noCloud"
	CloudInitConfigDrive = "configDrive"
	CloudInitNone        = "none"
)

// CloudInitSources returns the kinds that a user can choose.
func CloudInitSources() []string {
	return []string{CloudInitNoCloud, CloudInitConfigDrive, CloudInitNone}
}

// CloudInit configures the guest at its first boot. UserData excludes User, Password, SSHKeys and GAManageSSH.
type CloudInit struct {
	// Source is one of CloudInitSources, in any case. Empty is CloudInitNoCloud, and no data source at all when
	// there is nothing to configure.
	Source string
	// User is the account that Password and SSHKeys are for; the image's own default when empty.
	User     string
	Password string
	SSHKeys  []string
	// GAManageSSH lets the guest agent write SSH keys where SELinux would not; nil leaves it to the access
	// credentials, which may need it.
	GAManageSSH *bool
	// UserData and NetworkData are given whole, in base64.
	UserData    string
	NetworkData string
}

// Specified reports whether there is anything to configure.
func (c CloudInit) Specified() bool {
	return c.User != "" || c.written() || c.UserData != "" || c.NetworkData != ""
}

// written reports whether user data is to be written for more than an account's name.
func (c CloudInit) written() bool {
	return c.Password != "" || len(c.SSHKeys) > 0 || c.manageSSH()
}

func (c CloudInit) manageSSH() bool { return c.GAManageSSH != nil && *c.GAManageSSH }

func addCloudInit(spec *v1.VirtualMachineInstanceSpec, c CloudInit) error {
	switch {
	case strings.EqualFold(c.Source, CloudInitNone):
		return nil
	case c.Source == "" && !c.Specified():
		return nil
	case c.Source != "" && !strings.EqualFold(c.Source, CloudInitNoCloud) &&
		!strings.EqualFold(c.Source, CloudInitConfigDrive):
		return invalid("cloud-init", "%q is not one of %s", c.Source, strings.Join(CloudInitSources(), ", "))
	}
	if c.User != "" && !account.MatchString(c.User) {
		return invalid("user", "%q is no name of an account: it takes letters, digits, ., _ and -, and begins with a "+
			"letter or _", c.User)
	}
	source := &v1.CloudInitNoCloudSource{}
	switch {
	case c.UserData != "" && (c.User != "" || c.written()):
		return invalid("cloud-init-user-data",
			"cannot be given together with user, password-file, ssh-key or ga-manage-ssh; put them into the user data")
	case c.UserData != "":
		if err := decodable("cloud-init-user-data", c.UserData); err != nil {
			return err
		}
		source.UserDataBase64 = c.UserData
	case c.User != "" || c.written():
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
	volume := v1.Volume{Name: CloudInitVolume, VolumeSource: v1.VolumeSource{CloudInitNoCloud: source}}
	if strings.EqualFold(c.Source, CloudInitConfigDrive) {
		drive := v1.CloudInitConfigDriveSource(*source)
		volume.VolumeSource = v1.VolumeSource{CloudInitConfigDrive: &drive}
	}
	spec.Volumes = append(spec.Volumes, volume)
	return nil
}

// decodable checks data that the caller gives in base64. The limit is on what is inside, as in KubeVirt.
func decodable(field, data string) error {
	decoded, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return invalid(field, "not valid base64: %s", err)
	}
	if len(decoded) > inlineLimit {
		return invalid(field, "%d bytes; more than %d must be in a Secret, named by secretRef in the manifest",
			len(decoded), inlineLimit)
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
	if c.manageSSH() {
		config["runcmd"] = [][]string{{"setsebool", "-P", "virt_qemu_ga_manage_ssh", "on"}}
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("write cloud-init user data: %w", err)
	}
	text := "#cloud-config\n" + string(data)
	if len(text) > inlineLimit {
		return "", invalid("cloud-init", "the user data has %d bytes; more than %d must be in a Secret, named by "+
			"secretRef in the manifest", len(text), inlineLimit)
	}
	return text, nil
}
