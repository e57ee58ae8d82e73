package stream

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestHandlerPath(t *testing.T) {
	object := types.NamespacedName{Namespace: "ns", Name: "demo"}
	for verb, first := range map[string]string{
		"console": "console", "vnc/screenshot": "vnc", "portforward/80/udp": "portforward", "": "",
	} {
		for _, of := range []string{OfVMI, OfUpload} {
			path := HandlerPath(of, object, verb)
			if got, v, ok := ParseHandlerPath(path); !ok || got != object || v != first {
				t.Errorf("%s is read as %s, %q, %v", path, got, v, ok)
			}
		}
	}
	for _, path := range []string{
		"", "/", "/v1/stats", "/v1/namespaces/ns/virtualmachineinstances/demo", "/v1/namespaces/ns/pods/demo/log",
		"v1/namespaces/ns/virtualmachineinstances/demo/vnc", "/x/v1/namespaces/ns/virtualmachineinstances/demo/vnc",
	} {
		if got, v, ok := ParseHandlerPath(path); ok {
			t.Errorf("%q is read as %s, %q", path, got, v)
		}
	}
}
