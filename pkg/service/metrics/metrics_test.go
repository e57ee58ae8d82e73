package metrics

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Families() {
		if seen[f.Name] {
			t.Errorf("%s is there twice", f.Name)
		}
		seen[f.Name] = true
		if f.Ours == strings.HasPrefix(f.Name, "kubevirt_") {
			t.Errorf("%s: KubeVirt's begin with kubevirt_, ours do not", f.Name)
		}
		if !model.LegacyValidation.IsValidMetricName(f.Name) || !strings.HasSuffix(f.Help, ".") || f.From == "" {
			t.Errorf("%s: name, help or component", f.Name)
		}
		labels := map[string]bool{}
		for _, l := range f.Labels {
			if !model.LegacyValidation.IsValidLabelName(l) || labels[l] {
				t.Errorf("%s: label %s", f.Name, l)
			}
			labels[l] = true
		}
	}
}

func TestLint(t *testing.T) {
	var families []*dto.MetricFamily
	for _, f := range Families() {
		kind := map[Type]dto.MetricType{
			Counter:   dto.MetricType_COUNTER,
			Gauge:     dto.MetricType_GAUGE,
			Histogram: dto.MetricType_HISTOGRAM,
		}[f.Type]
		metric := &dto.Metric{}
		for _, l := range f.Labels {
			metric.Label = append(metric.Label, &dto.LabelPair{Name: &l, Value: new("x")})
		}
		families = append(families,
			&dto.MetricFamily{Name: &f.Name, Help: &f.Help, Type: &kind, Metric: []*dto.Metric{metric}})
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasSuffix(p.Metric, "_status_last_transition_timestamp_seconds") &&
			strings.Contains(p.Text, "_total") {
			continue // counters at KubeVirt
		}
		if p.Metric == "kubevirt_vmi_phase_count" { // its name at KubeVirt
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestWriter(t *testing.T) {
	counter := &Family{Name: "a_total", Help: "It\\s\nhelp.", Type: Counter, Labels: []string{"x", "y", "z"}}
	empty := &Family{Name: "b", Help: "None.", Type: Gauge}
	plain := &Family{Name: "c", Help: "Plain.", Type: Gauge}
	var out bytes.Buffer
	w := NewWriter(&out)
	w.Family(counter)
	w.Series(1.5, "", "1", "", "3")
	w.Series(1<<40, Labels([]string{"x", "more"}, "q\"uote", "new\nline"), "\xffbad", "back\\slash")
	w.Series(0, "", "", "", "")
	w.Family(empty)
	w.Family(plain)
	w.Series(-1, "")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	const want = `# HELP a_total It\\s\nhelp.
# TYPE a_total counter
a_total{x="1",z="3"} 1.5
a_total{x="q\"uote",more="new\nline",y="` + "\uFFFD" + `bad",z="back\\slash"} 1.099511627776e+12
a_total 0
# HELP c Plain.
# TYPE c gauge
c -1
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&out)
	if err != nil {
		t.Fatal(err)
	}
	if got := families["a_total"].Metric[1]; len(got.Label) != 4 || got.Label[1].GetValue() != "new\nline" {
		t.Errorf("read back: %v", got)
	}
}

func TestLongValuesAreCut(t *testing.T) {
	got := string(Labels([]string{"a"}, strings.Repeat("ü", 1000)))
	if len(got) > maxValue+10 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestName(t *testing.T) {
	if got := Name("app.kubernetes.io/part-of"); got != "app_kubernetes_io_part_of" {
		t.Error(got)
	}
}

func BenchmarkSeries(b *testing.B) {
	w := NewWriter(discard{})
	w.Family(VMIAddresses)
	b.ReportAllocs()
	for b.Loop() {
		w.Series(1, "", "node01", "namespace", "name", "default", "eth0", "10.0.2.2", "ExternalInterface")
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
