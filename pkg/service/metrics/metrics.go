// Package metrics declares what virtkit's components expose to Prometheus: the families (families_guest.go,
// families_cluster.go, families_servers.go) with KubeVirt's names and labels wherever KubeVirt has them, and their text
// format. It is pure; what the numbers are is said by pkg/handler/usage (what guests use), pkg/controller/inventory
// (what exists) and by the components themselves, and pkg/service/metrics/endpoint answers Prometheus.
//
//	Prometheus ──GET /metrics, TLS, a token──► endpoint ──► Writer ◄── guest, cluster: one family after the other
//	                                                        ▲
//	                                               registries of client_golang: what is counted as it happens
//
// Series of which each VMI or VM has one are written straight to the answer and not stored: ten thousand VMIs cost some
// hundred kilobytes of buffers during a scrape, and nothing between scrapes. docs/metrics.md lists all families; a test
// compares it.
package metrics

//go:generate go run ./gen ../../../docs/metrics.md

import "github.com/prometheus/client_golang/prometheus"

// Type is a family's, as the text format has it.
type Type string

// Types of families.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Component serves a family.
type Component string

// Components, and those that serve what all of them do.
const (
	API        Component = "virt-api"
	Controller Component = "virt-controller"
	Handler    Component = "virt-handler"
	Everyone   Component = "all"
)

// Family is one metric: its name, what it means, and the labels that distinguish its series.
type Family struct {
	Name   string
	Help   string
	Type   Type
	Labels []string
	// From is who serves it.
	From Component
	// Ours says that KubeVirt has no metric of this name.
	Ours bool
	// Buckets are those of a histogram.
	Buckets []float64
}

// Families returns all, in the order of docs/metrics.md: by component and name.
func Families() []*Family { return all }

var all []*Family

// family adds one to all. KubeVirt's lint exceptions are in the test.
func family(from Component, kind Type, name, help string, labels ...string) *Family {
	f := &Family{Name: name, Help: help, Type: kind, Labels: labels, From: from}
	all = append(all, f)
	return f
}

// own returns a family that KubeVirt does not have.
func own(from Component, kind Type, name, help string, labels ...string) *Family {
	f := family(from, kind, name, help, labels...)
	f.Ours = true
	return f
}

// histogram returns a family with buckets, in seconds.
func histogram(from Component, buckets []float64, name, help string, labels ...string) *Family {
	f := family(from, Histogram, name, help, labels...)
	f.Buckets = buckets
	return f
}

// CounterVec makes one of client_golang of the family.
func (f *Family) CounterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

// GaugeVec makes one of client_golang of the family.
func (f *Family) GaugeVec() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
}

// HistogramVec makes one of client_golang of the family.
func (f *Family) HistogramVec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets},
		f.Labels)
}
