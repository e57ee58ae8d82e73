// Package surface defines what virtkit supports of KubeVirt's API: which fields have an effect, what an
// object means where it says nothing (defaulting), and which objects make no sense (validation). It is
// pure: objects in, objects or errors out. virt-api's webhooks apply it at admission, virtctl before it
// sends anything.
//
//	object ─► DefaultX ─► ValidateX ─► field.ErrorList ─► Message ─► the user
//	            │             │
//	          Defaults      Fields (the table; docs/api-surface.md is generated from it)
//
// Nothing is silently ignored: a field that is set and not in the table is an error.
package surface

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/virtkit/virtkit/pkg/version"
)

//go:generate go run ./gen ../../../docs/api-surface.md

// Effect says where a field shows.
type Effect string

// The effects, in the words of the generated page.
const (
	Domain    Effect = "domain"     // the guest's virtual hardware
	Disk      Effect = "disk"       // the images behind the guest's disks
	CloudInit Effect = "cloud-init" // what cloud-init in the guest reads
	Agent     Effect = "agent"      // what the guest agent does while the guest runs
	Network   Effect = "network"    // how the guest is connected
	Pod       Effect = "pod"        // the launcher pod, and so scheduling
	Life      Effect = "lifecycle"  // when the guest starts, stops, is replaced
	Install   Effect = "install"    // the installation as a whole
	Copy      Effect = "copy"       // what a snapshot, restore, clone or export makes
)

// Field is one entry of the table.
type Field struct {
	// Path is the field in JSON names joined by dots, without the indexes of lists, relative to the
	// object's spec: "domain.cpu.cores". What lies below it is supported too unless an entry says
	// more. The key of a map is the last element where only some keys count.
	Path   string
	Effect Effect
	// Note says what is good to know besides the API's own description; it may be empty.
	Note string
	// Only lists the values that are supported, where they are less than the API's.
	Only []string
}

// Kind is a resource type and its table.
type Kind struct {
	// Name is the kind, and Fields its entries in the order of the API types.
	Name   string
	Fields []Field
	// prototype is a zero value of the spec, for types and descriptions.
	prototype any
	// own are the fields that the generated page lists where the others are another kind's, which rest says; nil for
	// all.
	own []Field
	// rest is what the page says before the table.
	rest string
	// plain has the page show one table without headings.
	plain bool
}

// unsupportedDetail returns the error text for a field that is not in the table.
func unsupportedDetail() string {
	return "not supported by virtkit " + version.Get().GitVersion + "; see docs/api-surface.md"
}

// IsUnsupported reports an error about a field that is KubeVirt's and that virtkit does not honour.
func IsUnsupported(err *field.Error) bool {
	return err.Type == field.ErrorTypeForbidden && strings.HasPrefix(err.Detail, unsupportedDetail())
}

// Message returns the sentence for users: each error as `field: what is wrong and what fixes it`, joined by
// semicolons.
func Message(errs field.ErrorList) string {
	texts := make([]string, 0, len(errs))
	seen := map[string]bool{}
	for _, err := range errs {
		text := err.Field + ": " + Detail(err)
		if !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

// Detail returns the error's message about the field, without the field.
func Detail(err *field.Error) string {
	if err.Detail == "" {
		return err.ErrorBody()
	}
	return err.Detail
}
