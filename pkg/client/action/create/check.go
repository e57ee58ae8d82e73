package create

import (
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// Check finds what the server would reject before it is asked, with the server's own rules. What is right but not
// supported yet is kept apart: the manifest may be meant for another installation. What an instance type or a
// preference makes of the VM only the server knows.
func Check(vm *v1.VirtualMachine) (wrong, unsupported field.ErrorList) {
	defaulted := vm.DeepCopy()
	surface.DefaultVirtualMachine(defaulted, nil, surface.Defaults{})
	for _, err := range surface.ValidateVirtualMachine(defaulted, surface.Defaults{}) {
		if surface.IsUnsupported(err) {
			unsupported = append(unsupported, err)
		} else {
			wrong = append(wrong, err)
		}
	}
	return wrong, unsupported
}

// IsPublicKey recognises a line of authorized_keys: options if any, the type of the key, the key in base64, a
// comment. A key that was cut off while it was copied mostly is no base64, and would lock its owner out.
func IsPublicKey(line string) bool {
	fields := strings.Fields(line)
	for i := range fields {
		if isKeyType(fields[i]) {
			return i+1 < len(fields) && isBase64(fields[i+1])
		}
	}
	return false
}

// BeginsWithKey reports whether a list of keys with commas between them begins with one that has no options before it.
func BeginsWithKey(text string) bool {
	fields := strings.Fields(text)
	if len(fields) < 2 || !isKeyType(fields[0]) {
		return false
	}
	key, _, _ := strings.Cut(fields[1], ",")
	return isBase64(key)
}

func isKeyType(word string) bool {
	return strings.HasPrefix(word, "ssh-") || strings.HasPrefix(word, "ecdsa-") || strings.HasPrefix(word, "sk-")
}

func isBase64(text string) bool {
	_, err := base64.StdEncoding.DecodeString(text)
	return err == nil
}
