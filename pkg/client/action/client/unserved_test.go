package client

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestUnserved tells a kind that is not served, a path that nobody serves, and an object that is not there apart.
func TestUnserved(t *testing.T) {
	vms := schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachines"}
	nameless := metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "no such thing"}
	noPath := func(name string) error {
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", vms, name, "404 page not found", 0, true)
	}
	for name, test := range map[string]struct {
		err              error
		unserved, noPath bool
	}{
		"a list":            {noPath(""), true, true},
		"an object":         {noPath("demo"), true, true},
		"wrapped":           {fmt.Errorf("list: %w", noPath("")), true, true},
		"a nameless Status": {&apierrors.StatusError{ErrStatus: nameless}, true, false},
		"no such object":    {apierrors.NewNotFound(vms, "demo"), false, false},
		"another refusal":   {apierrors.NewForbidden(vms, "", nil), false, false},
		"another server's": {
			apierrors.NewGenericServerResponse(http.StatusBadGateway, "GET", vms, "", "bad gateway", 0, true), false,
			false,
		},
		"nothing of a server": {errors.New("404"), false, false},
	} {
		if unserved, noPath := Unserved(test.err), NoPath(test.err); unserved != test.unserved ||
			noPath != test.noPath {
			t.Errorf("%s: unserved %v, no path %v; want %v, %v", name, unserved, noPath, test.unserved, test.noPath)
		}
	}
}
