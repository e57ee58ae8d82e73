// Package endpoint answers Prometheus: GET /metrics over TLS, for clients whose token may `get` the path /metrics.
//
// A component has one Endpoint. Its Registry has the metrics that are counted as things happen; its Sources write, at
// each scrape, the series of which each VMI or VM has one. Libraries count the requests to the API server and the work
// queues; endpoint renames those metrics to KubeVirt's names.
package endpoint

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // has queues with a name counted
	"k8s.io/klog/v2"
	runtimemetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/virtkit/virtkit/pkg/service/metrics"
	"github.com/virtkit/virtkit/pkg/version"
)

const (
	// atOnce is how many answers are made side by side; each may hold a few hundred kilobytes.
	atOnce = 4
	// defaultTime is how long an answer may take to make when the client does not say, leastTime and mostTime are the
	// ends of what it may say, and spareTime is left to send it.
	defaultTime, leastTime, mostTime, spareTime = 8 * time.Second, time.Second, 30 * time.Second, 500 * time.Millisecond
	// contentType is the text format's.
	contentType = "text/plain; version=0.0.4; charset=utf-8"
)

// Source writes families. It is to be done when ctx ends, with what it has by then.
type Source func(ctx context.Context, w *metrics.Writer)

// Endpoint serves the metrics of one component.
type Endpoint struct {
	// Registry has what the component counts.
	Registry *prometheus.Registry

	turns chan struct{}
	mu    sync.Mutex
	// sources are written in order.
	sources []*Source
}

// New makes an Endpoint with the metrics of the process itself, its version, its queues and its requests to the API
// server.
func New() *Endpoint {
	runtimemetrics.RegisterRESTClientMetrics(runtimemetrics.MetricRequestLatency,
		runtimemetrics.MetricRateLimiterLatency)
	e := &Endpoint{Registry: prometheus.NewRegistry(), turns: make(chan struct{}, atOnce)}
	info := metrics.Info.GaugeVec()
	info.WithLabelValues(runtime.Version(), version.Get().GitVersion).Set(1)
	e.Registry.MustRegister(info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return e
}

// Add adds a source, which is written at each scrape until it is removed; the component may do so at any time.
func (e *Endpoint) Add(s Source) (remove func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	added := &s
	e.sources = append(e.sources, added)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sources = slices.DeleteFunc(e.sources, func(s *Source) bool { return s == added })
	}
}

// Flag adds a gauge without labels that shows whether something is so, asked at each scrape.
func (e *Endpoint) Flag(f *metrics.Family, is func() bool) {
	e.Add(func(_ context.Context, w *metrics.Writer) {
		value := 0.0
		if is() {
			value = 1
		}
		w.Family(f)
		w.Series(value, "")
	})
}

// ServeHTTP answers with everything.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	select {
	case e.turns <- struct{}{}:
		defer func() { <-e.turns }()
	default:
		http.Error(w, fmt.Sprintf("%d answers are being made already", atOnce), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeOf(r.Header))
	defer cancel()
	w.Header().Set("Content-Type", contentType)
	out := io.Writer(w)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		zip := zips.Get().(*gzip.Writer)
		defer zips.Put(zip)
		zip.Reset(w)
		defer func() { _ = zip.Close() }() // who does not read to the end gets no error
		out = zip
	}
	if err := e.Write(ctx, out); err != nil && r.Context().Err() == nil {
		klog.FromContext(ctx).Error(err, "metrics not sent whole")
	}
}

// zips are reused since each holds most of a megabyte.
var zips = sync.Pool{New: func() any {
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // a programming error: no such level
	}
	return zip
}}

// timeOf returns how long making an answer may take, from the timeout that Prometheus sends along.
func timeOf(h http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(h.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || !(seconds > 0 && seconds < mostTime.Seconds()) {
		return defaultTime
	}
	return max(time.Duration(seconds*float64(time.Second))-spareTime, leastTime)
}

// Write writes everything in the text format.
func (e *Endpoint) Write(ctx context.Context, out io.Writer) error {
	e.mu.Lock()
	sources := slices.Clone(e.sources)
	e.mu.Unlock()
	w := metrics.NewWriter(out)
	for _, source := range sources {
		(*source)(ctx, w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	counted, err := e.Registry.Gather()
	counted = append(counted, renamed()...)
	for _, family := range counted {
		if _, writing := expfmt.MetricFamilyToText(out, family); writing != nil {
			return errors.Join(err, writing)
		}
	}
	return err
}

// renamed returns those metric families of libraries that KubeVirt has under another name. Which of the two registries
// a library counts in depends on which of its users was initialized first.
func renamed() []*dto.MetricFamily {
	var out []*dto.MetricFamily
	seen := map[string]bool{}
	for _, g := range []prometheus.Gatherer{runtimemetrics.Registry, legacyregistry.DefaultGatherer} {
		families, err := g.Gather()
		if err != nil {
			klog.V(2).InfoS("metrics of libraries are not whole", "err", err)
		}
		for _, family := range families {
			as := metrics.Renamed[family.GetName()]
			if as == nil || seen[as.Name] {
				continue
			}
			seen[as.Name] = true
			family.Name, family.Help = &as.Name, &as.Help
			out = append(out, family)
		}
	}
	return out
}
