package client_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
)

// TestSourceOfUnknownKind: what the client has no type for is an error when it is asked for, not when it is listed.
func TestSourceOfUnknownKind(t *testing.T) {
	t.Parallel()
	c := clienttest.New(t).Client()
	for _, gv := range []schema.GroupVersion{{Version: "v1"}, {Group: "example.com", Version: "v1"}} {
		_, err := c.Source(gv, "widgets", "prod")
		if err == nil || !strings.Contains(err.Error(), "widgets of "+gv.String()+" cannot be followed") {
			t.Errorf("%s: %v", gv, err)
		}
	}
}
