package install

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// nodePatch returns the merge patch that removes virtkit's labels and annotations from a node; nil when there are none.
func nodePatch(node *unstructured.Unstructured) []byte {
	remove := func(have map[string]string) map[string]any {
		gone := map[string]any{}
		for key := range have {
			if domain, _, _ := strings.Cut(key, "/"); domain == "kubevirt.io" ||
				strings.HasSuffix(domain, ".kubevirt.io") {
				gone[key] = nil
			}
		}
		return gone
	}
	metadata := map[string]any{}
	if gone := remove(node.GetLabels()); len(gone) > 0 {
		metadata["labels"] = gone
	}
	if gone := remove(node.GetAnnotations()); len(gone) > 0 {
		metadata["annotations"] = gone
	}
	if len(metadata) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // maps of strings always marshal
	}
	return patch
}
