package surface

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/virtkit/virtkit/pkg/version"
)

// Inert are the kinds whose types are installed, so that clients find them and get empty lists, but on
// which no component acts yet. An object of them would wait for ever, so none is admitted. The webhook
// inert-validator.kubevirt.io of the manifests has the same list.
func Inert() []string {
	return []string{"VirtualMachineInstanceReplicaSet"}
}

// ValidateInert refuses an object of one of the Inert kinds.
func ValidateInert(kind string) field.ErrorList {
	return field.ErrorList{field.Forbidden(field.NewPath("kind"),
		kind+" is not supported by virtkit "+version.Get().GitVersion+", nothing would act on it; see docs/api-surface.md")}
}

// inertSection is what the generated page says of the Inert kinds.
func inertSection() string {
	return "\n## Kinds without effect yet\n\nTheir types are installed, so that clients can list them, and creating one is refused: `" +
		strings.Join(Inert(), "`, `") + "`.\n"
}
