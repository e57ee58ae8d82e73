package surface

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// maxGuestUsers is the number of users of the guest that one credential may name.
const maxGuestUsers = 64

// guestUserPattern matches the names of a guest's users: names of Unix and of Windows, nothing that a shell or
// /etc/passwd would take apart.
var guestUserPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@$ -]{0,63}$`)

// GuestUser reports whether name can be a user of a guest.
func GuestUser(name string) bool { return guestUserPattern.MatchString(name) }

// MaxGuestPassword bounds the password of a guest's user, bytes.
const MaxGuestPassword = 1 << 10

// GuestPassword reports whether text can be the password of a guest's user: one line of 1 to MaxGuestPassword bytes.
func GuestPassword(text string) bool {
	return text != "" && len(text) <= MaxGuestPassword && !strings.ContainsAny(text, "\r\n\x00")
}

// validateCredentials checks spec.accessCredentials: each is one kind, from one Secret, by one way that the guest has.
func validateCredentials(spec *v1.VirtualMachineInstanceSpec, root *field.Path) field.ErrorList {
	at := root.Child("accessCredentials")
	errs := tooMany(len(spec.AccessCredentials), at)
	for i := range spec.AccessCredentials {
		c, here := &spec.AccessCredentials[i], at.Index(i)
		switch {
		case c.SSHPublicKey != nil && c.UserPassword != nil:
			errs = append(errs, field.Forbidden(here, "is both sshPublicKey and userPassword; make it two"))
		case c.SSHPublicKey != nil:
			errs = append(errs, validateSSHPublicKey(c.SSHPublicKey, spec, here.Child("sshPublicKey"))...)
		case c.UserPassword != nil:
			where := here.Child("userPassword")
			errs = append(errs, validateCredentialSource(c.UserPassword.Source.Secret, where)...)
			if c.UserPassword.PropagationMethod.QemuGuestAgent == nil {
				errs = append(errs, field.Required(where.Child("propagationMethod"), "is not set; use qemuGuestAgent"))
			}
		default:
			errs = append(errs, field.Required(here, "is empty; use sshPublicKey or userPassword"))
		}
	}
	return errs
}

func validateCredentialSource(secret *v1.AccessCredentialSecretSource, at *field.Path) field.ErrorList {
	where := at.Child("source", "secret", "secretName")
	if secret == nil {
		return field.ErrorList{field.Required(where, "is not set")}
	}
	return validateObjectName(secret.SecretName, where)
}

func validateSSHPublicKey(
	key *v1.SSHPublicKeyAccessCredential, spec *v1.VirtualMachineInstanceSpec, at *field.Path,
) field.ErrorList {
	errs := validateCredentialSource(key.Source.Secret, at)
	way, where := key.PropagationMethod, at.Child("propagationMethod")
	ways := 0
	for _, set := range []bool{way.NoCloud != nil, way.ConfigDrive != nil, way.QemuGuestAgent != nil} {
		if set {
			ways++
		}
	}
	switch {
	case ways == 0:
		return append(errs, field.Required(where, "is not set; use noCloud, configDrive or qemuGuestAgent"))
	case ways > 1:
		return append(errs, field.Forbidden(where, "is more than one of noCloud, configDrive and qemuGuestAgent; "+
			"keep one, and make another credential of the same Secret"))
	case way.NoCloud != nil && !hasVolume(spec, func(v *v1.Volume) bool { return v.CloudInitNoCloud != nil }):
		errs = append(errs, field.Forbidden(where.Child("noCloud"),
			"needs a volume with cloudInitNoCloud; add one to volumes, or use qemuGuestAgent"))
	case way.ConfigDrive != nil && !hasVolume(spec, func(v *v1.Volume) bool { return v.CloudInitConfigDrive != nil }):
		errs = append(errs, field.Forbidden(where.Child("configDrive"),
			"needs a volume with cloudInitConfigDrive; add one to volumes, or use qemuGuestAgent"))
	case way.QemuGuestAgent != nil:
		errs = append(errs, validateGuestUsers(way.QemuGuestAgent.Users, where.Child("qemuGuestAgent", "users"))...)
	}
	return errs
}

func validateGuestUsers(users []string, at *field.Path) field.ErrorList {
	if len(users) == 0 {
		return field.ErrorList{field.Required(at, "is empty; name the guest's users who get the keys")}
	}
	if len(users) > maxGuestUsers {
		return field.ErrorList{field.TooMany(at, len(users), maxGuestUsers)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, user := range users {
		switch {
		case !GuestUser(user):
			errs = append(errs, field.Invalid(at.Index(i), user, fmt.Sprintf("%q is not the name of a user", user)))
		case seen[user]:
			errs = append(errs, duplicate(at.Index(i), user, "user"))
		}
		seen[user] = true
	}
	return errs
}

func hasVolume(spec *v1.VirtualMachineInstanceSpec, is func(*v1.Volume) bool) bool {
	for i := range spec.Volumes {
		if is(&spec.Volumes[i]) {
			return true
		}
	}
	return false
}
