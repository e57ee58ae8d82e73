package endpoint

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/util/workqueue"

	"github.com/virtkit/virtkit/pkg/service/metrics"
)

func get(e *Endpoint, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, Path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

func TestServes(t *testing.T) {
	e := New()
	is := false
	e.Flag(metrics.APIReady, func() bool { return is })
	remove := e.Add(func(_ context.Context, w *metrics.Writer) {
		w.Family(metrics.Consoles)
		w.Series(3, "", "ns", "demo")
	})
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "test"})
	defer queue.ShutDown()
	queue.Add("a")
	is = true

	response := get(e, nil)
	if got := response.Header().Get("Content-Type"); got != contentType {
		t.Errorf("content type %s", got)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		metrics.APIReady.Name, metrics.Consoles.Name, metrics.Info.Name, "kubevirt_workqueue_adds_total",
		"go_goroutines", "process_resident_memory_bytes",
	} {
		if families[name] == nil {
			t.Errorf("%s is not told", name)
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "workqueue_") || strings.HasPrefix(name, "rest_client_") ||
			strings.HasPrefix(name, "apiserver_") {
			t.Errorf("%s is told", name)
		}
	}
	if got := families[metrics.APIReady.Name].Metric[0].GetGauge().GetValue(); got != 1 {
		t.Errorf("ready is %v", got)
	}

	remove()
	if strings.Contains(get(e, nil).Body.String(), metrics.Consoles.Name) {
		t.Error("told after it was removed")
	}
}

func TestCompressed(t *testing.T) {
	response := get(New(), http.Header{"Accept-Encoding": {"gzip, br"}})
	zip, err := gzip.NewReader(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(zip)
	if err != nil || !strings.Contains(string(body), "kubevirt_info{") {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// A source that takes its time is told when to be done, and more callers than fit are turned away.
func TestSlow(t *testing.T) {
	e := New()
	begun, end := make(chan time.Time, atOnce), make(chan struct{})
	e.Add(func(ctx context.Context, _ *metrics.Writer) {
		deadline, _ := ctx.Deadline()
		begun <- deadline
		<-end
	})
	done := make(chan int, atOnce)
	for range atOnce {
		go func() { done <- get(e, http.Header{"X-Prometheus-Scrape-Timeout-Seconds": {"2.5"}}).Code }()
	}
	for range atOnce {
		if left := time.Until(<-begun); left > 2*time.Second {
			t.Errorf("%s are left", left)
		}
	}
	if code := get(e, nil).Code; code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", code)
	}
	close(end)
	for range atOnce {
		if code := <-done; code != http.StatusOK {
			t.Errorf("status %d", code)
		}
	}
}

func TestTimeOf(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": defaultTime, "10": 9500 * time.Millisecond, "0.1": leastTime, "-1": defaultTime, "NaN": defaultTime,
		"1e300": defaultTime, "x": defaultTime,
	} {
		if got := timeOf(http.Header{"X-Prometheus-Scrape-Timeout-Seconds": {text}}); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestOnlyGet(t *testing.T) {
	w := httptest.NewRecorder()
	New().ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
