package events

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
)

// TestWatchOutlivesAnOutage has an API server that goes away amid a watch, is not there for a while, and goes on.
func TestWatchOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	var from []string
	say := func(w http.ResponseWriter, version string) {
		e := event("VirtualMachine", "demo", "Normal")
		e.ResourceVersion, e.Reason = version, "Reason"+version
		change := map[string]any{"type": "ADDED", "object": e}
		if err := json.NewEncoder(w).Encode(change); err != nil {
			t.Error(err)
		}
	}
	api.Put("/api/v1/namespaces/shop/events", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.URL.Query().Get("resourceVersion"))
		switch len(from) {
		case 1:
			say(w, "8") // and the connection ends
		case 2:
			panic(http.ErrAbortHandler) // the connection breaks without an answer
		case 3:
			say(w, "9")
		default:
			status := apierrors.NewForbidden(corev1.Resource("events"), "", nil).Status()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			if err := json.NewEncoder(w).Encode(status); err != nil {
				t.Error(err)
			}
		}
	}))
	var shown []string
	err := Watch(t.Context(), api.Client(), Selection{Namespace: "shop"}, "7", func(e *corev1.Event) error {
		shown = append(shown, e.Reason)
		return nil
	})
	if !apierrors.IsForbidden(err) {
		t.Errorf("ended with %v", err)
	}
	if !slices.Equal(shown, []string{"Reason8", "Reason9"}) || !slices.Equal(from, []string{"7", "8", "8", "9"}) {
		t.Errorf("shown %v of watches from %v", shown, from)
	}
}

// TestWatchEndsWithItsReader has a reader that takes no more.
func TestWatchEndsWithItsReader(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	api.Put("/api/v1/namespaces/shop/events", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		change := map[string]any{"type": "ADDED", "object": event("VirtualMachine", "demo", "Normal")}
		if err := json.NewEncoder(w).Encode(change); err != nil {
			t.Error(err)
		}
	}))
	full := errors.New("full")
	if err := Watch(t.Context(), api.Client(), Selection{Namespace: "shop"}, "7", func(*corev1.Event) error {
		return full
	}); !errors.Is(err, full) {
		t.Errorf("ended with %v", err)
	}
}
