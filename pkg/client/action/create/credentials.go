package create

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

// AccessCredential is a Secret whose keys or passwords get into the guest.
type AccessCredential struct {
	// Type is "ssh", also when empty, or "password".
	Type string
	// Source is the Secret, in the VM's namespace.
	Source string
	// Method is "ga" for the guest agent, also when empty, or for keys "nocloud" or "configdrive".
	Method string
	// User is the account that keys are for, with ga; CloudInit.User when it is empty.
	User string
}

// addAccessCredentials adds the credentials and sees to it that cloud-init goes along with them.
func addAccessCredentials(spec *v1.VirtualMachineInstanceSpec, o *Options) error {
	for _, c := range o.AccessCredentials {
		const field = "access-cred"
		if c.Source == "" {
			return invalid(field, "src is missing")
		}
		if errs := validation.IsDNS1123Subdomain(c.Source); len(errs) > 0 {
			return invalid(field, "src %q: %s", c.Source, errs[0])
		}
		secret := &v1.AccessCredentialSecretSource{SecretName: c.Source}
		method := strings.ToLower(c.Method)
		switch strings.ToLower(c.Type) {
		case "", "ssh":
			credential := &v1.SSHPublicKeyAccessCredential{
				Source: v1.SSHPublicKeyAccessCredentialSource{Secret: secret},
			}
			if err := propagate(field, credential, c, method, &o.CloudInit); err != nil {
				return err
			}
			spec.AccessCredentials = append(spec.AccessCredentials, v1.AccessCredential{SSHPublicKey: credential})
		case "password":
			switch {
			case method != "" && method != "ga":
				return invalid(field, "method %q is not one of ga", c.Method)
			case c.User != "":
				return invalid(field, "user goes with type ssh and method ga only; the Secret's keys are the "+
					"accounts of passwords")
			}
			credential := &v1.UserPasswordAccessCredential{
				Source: v1.UserPasswordAccessCredentialSource{Secret: secret},
			}
			credential.PropagationMethod.QemuGuestAgent = &v1.QemuGuestAgentUserPasswordAccessCredentialPropagation{}
			spec.AccessCredentials = append(spec.AccessCredentials, v1.AccessCredential{UserPassword: credential})
		default:
			return invalid(field, "type %q is not one of ssh, password", c.Type)
		}
	}
	return nil
}

// propagate chooses the way of keys into the guest.
func propagate(
	field string, credential *v1.SSHPublicKeyAccessCredential, c AccessCredential, method string, cloudInit *CloudInit,
) error {
	way := &credential.PropagationMethod
	var source string
	switch method {
	case "", "ga":
		user := c.User
		if user == "" {
			user = cloudInit.User
		}
		if user == "" {
			return invalid(field, "user is missing, here or as --user; the guest agent must know whose keys they are")
		}
		way.QemuGuestAgent = &v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{user}}
		if cloudInit.GAManageSSH == nil && cloudInit.UserData == "" {
			allowed := true
			cloudInit.GAManageSSH = &allowed
		}
		return nil
	case "nocloud":
		source, way.NoCloud = CloudInitNoCloud, &v1.NoCloudSSHPublicKeyAccessCredentialPropagation{}
	case "configdrive":
		source, way.ConfigDrive = CloudInitConfigDrive, &v1.ConfigDriveSSHPublicKeyAccessCredentialPropagation{}
	default:
		return invalid(field, "method %q is not one of ga, nocloud, configdrive", c.Method)
	}
	if c.User != "" {
		return invalid(field, "user goes with method ga only; with %s the keys are the user's of cloud-init", c.Method)
	}
	if cloudInit.Source == "" {
		cloudInit.Source = source
	}
	if !strings.EqualFold(cloudInit.Source, source) {
		return invalid(field, "method %s and --cloud-init %s do not go together; make them the same", c.Method,
			cloudInit.Source)
	}
	return nil
}
