// Package canonical encodes objects as the same JSON that the API server writes. It is pure.
package canonical

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// Encode encodes an object for a ControllerRevision. Its keys are sorted as those of any map are: the API server sorts
// them whenever somebody patches the revision, as the garbage collector does to orphan it, and refuses the patch if
// that changes the data, which must not change.
func Encode(object any) (runtime.RawExtension, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return runtime.RawExtension{}, err
	}
	var sorted any
	if err := kjson.Unmarshal(text, &sorted); err != nil {
		return runtime.RawExtension{}, err
	}
	text, err = json.Marshal(sorted)
	return runtime.RawExtension{Raw: text}, err
}
