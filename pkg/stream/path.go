package stream

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// What HandlerPath is of: a VMI, by its name, or an upload, by the name of its pod.
const (
	OfVMI    = "virtualmachineinstances"
	OfUpload = "uploads"
)

// HandlerPath returns the path at which virt-handler serves a verb for an object, OfVMI or OfUpload. virt-api asks
// there.
func HandlerPath(of string, object types.NamespacedName, verb string) string {
	return "/v1/namespaces/" + object.Namespace + "/" + of + "/" + object.Name + "/" + verb
}

// ParseHandlerPath reads a HandlerPath. Both sides limit their streams by its object. verb is the first part of what
// stands behind the object's name. ok is false for another path, and for one without a verb.
func ParseHandlerPath(path string) (object types.NamespacedName, verb string, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) < 7 || parts[0] != "" || parts[1] != "v1" || parts[2] != "namespaces" ||
		parts[4] != OfVMI && parts[4] != OfUpload {
		return types.NamespacedName{}, "", false
	}
	return types.NamespacedName{Namespace: parts[3], Name: parts[5]}, parts[6], true
}
