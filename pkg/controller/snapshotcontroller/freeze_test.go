package snapshotcontroller

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// What virt-api says of a freeze that it refuses is what the snapshot says.
func TestRefusedFreeze(t *testing.T) {
	resource := schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachineinstances"}
	const moving, limited = "the guest is moving to another node", "fsfreeze is limited to 10 seconds"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := apierrors.NewConflict(resource, "demo", errors.New(moving)).Status()
		if strings.HasSuffix(r.URL.Path, "/unfreeze") {
			status = apierrors.NewInternalError(errors.New(limited)).Status()
		}
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		if err := json.NewEncoder(w).Encode(status); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	freezer, err := NewFreezer(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	vmi := types.NamespacedName{Namespace: "ns", Name: "demo"}
	_, err = freezer.Freeze(t.Context(), vmi, time.Minute)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), moving) {
		t.Errorf("freeze: %v", err)
	}
	if err := freezer.Unfreeze(t.Context(), vmi); !timedOut(err) {
		t.Errorf("unfreeze, which lapsed: %v", err)
	}
}
