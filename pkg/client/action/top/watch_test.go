package top

import (
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
)

// TestWatchOutlivesAnOutage has readings that fail: one outage is told once, and without someone to tell it ends.
func TestWatchOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{true, false} {
		api := clienttest.New(t)
		asked := 0
		const path = "/apis/subresources.kubevirt.io/v1/namespaces/shop/stats"
		api.Put(path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			switch asked {
			case 1, 3, 4: // also the first
				w.WriteHeader(http.StatusInternalServerError)
				return
			case 6:
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
		case patient && (!apierrors.IsForbidden(err) || losses != 2 || reports != 1):
			t.Errorf("ended with %v, %d losses and %d reports", err, losses, reports)
		case !patient && (err == nil || reports != 0):
			t.Errorf("ended with %v after %d reports", err, reports)
		}
	}
}
