package top

import (
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
)

// TestWatchOutlivesAnOutage has readings that fail: one outage is told once, and without patience it ends.
func TestWatchOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{true, false} {
		api := clienttest.New(t)
		asked := 0
		const path = "/apis/subresources.kubevirt.io/v1/namespaces/shop/stats"
		api.Put(path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			switch asked {
			case 2, 3, 5:
				w.WriteHeader(http.StatusInternalServerError)
				return
			case 7:
				w.WriteHeader(http.StatusForbidden)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"items":[]}`))
		}))
		losses, reports := 0, 0
		ctx := outage.With(t.Context(), &outage.Reporter{
			Lost: func(error) { losses++ }, Back: func(time.Duration) {}, Now: time.Now,
		})
		err := Watch(ctx, api.Client(), "shop", time.Millisecond, func(*Report) error {
			reports++
			return nil
		}, patient)
		switch {
		case patient && (!apierrors.IsForbidden(err) || losses != 2 || reports != 2):
			t.Errorf("ended with %v, %d losses and %d reports", err, losses, reports)
		case !patient && (err == nil || reports != 0):
			t.Errorf("ended with %v after %d reports", err, reports)
		}
	}
}

// TestWatchOfAServerThatIsAway begins when nobody answers, which is an error of the caller's.
func TestWatchOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	api.Put("/apis/subresources.kubevirt.io/v1/namespaces/shop/stats", http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	err := Watch(t.Context(), api.Client(), "shop", time.Millisecond, func(*Report) error { return nil }, true)
	if !apierrors.IsInternalError(err) {
		t.Errorf("ended with %v", err)
	}
}
