package manifests_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/metrics"
)

// query is an expression and where it is.
type query struct{ where, expr string }

// rule is one of a PrometheusRule.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := manifests.FS.ReadFile("monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		APIVersion, Kind string
		Metadata         any
		Spec             struct {
			Groups []struct {
				Name  string
				Rules []rule
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range object.Spec.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func queries(t *testing.T) []query {
	t.Helper()
	var all []query
	for _, r := range rules(t) {
		all = append(all, query{r.Record + r.Alert, r.Expr})
	}
	text, err := manifests.FS.ReadFile("monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Templating struct {
			List []struct {
				Name       string
				Definition string
			}
		}
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q has another's id", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			all = append(all, query{"panel " + p.Title, target.Expr})
		}
	}
	for _, v := range dashboard.Templating.List {
		all = append(all, query{"variable " + v.Name, v.Definition})
	}
	return all
}

var (
	metricName = regexp.MustCompile(`\b[a-zA-Z_]*:?(?:kubevirt|virtkit)_[a-zA-Z0-9_:]+`)
	grouping   = regexp.MustCompile(`\b(?:by|on|group_left|without|ignoring) \(([^)]*)\)`)
	matcher    = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"`)
	quoted     = regexp.MustCompile(`"[^"]*"`)
)

// What the rules and the dashboard ask for is told by a component, or recorded by a rule.
func TestQueriesAskForWhatThereIs(t *testing.T) {
	known := map[string]bool{"kubevirt_prometheus_metrics": true}
	labels := map[string]bool{"pod": true, "job": true, "le": true}
	for _, f := range metrics.Families() {
		if f.Type == metrics.Histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[f.Name+suffix] = true
			}
		} else {
			known[f.Name] = true
		}
		for _, l := range f.Labels {
			labels[l] = true
		}
	}
	for _, r := range rules(t) {
		if r.Record != "" {
			known[r.Record] = true
		}
	}
	for _, l := range []string{"daemonset"} { // of kube-state-metrics
		labels[l] = true
	}
	asked := 0
	for _, q := range queries(t) {
		bare := quoted.ReplaceAllString(q.expr, `""`)
		for _, name := range metricName.FindAllString(bare, -1) {
			asked++
			if !known[name] {
				t.Errorf("%s asks for %s, which nobody tells", q.where, name)
			}
		}
		for _, m := range matcher.FindAllStringSubmatch(q.expr, -1) {
			if !labels[m[1]] && !strings.HasPrefix(q.expr, "kube_pod") {
				t.Errorf("%s: no metric has the label %s", q.where, m[1])
			}
		}
		for _, m := range grouping.FindAllStringSubmatch(q.expr, -1) {
			for label := range strings.SplitSeq(m[1], ",") {
				if label = strings.TrimSpace(label); label != "" && !labels[label] {
					t.Errorf("%s: no metric has the label %s", q.where, label)
				}
			}
		}
		for _, pair := range []string{"()", "{}", "[]"} {
			if strings.Count(bare, pair[:1]) != strings.Count(bare, pair[1:]) {
				t.Errorf("%s: %s does not balance: %s", q.where, pair, q.expr)
			}
		}
	}
	if asked < 100 {
		t.Errorf("only %d metrics are asked for: does the test read the files?", asked)
	}
}

func TestAlerts(t *testing.T) {
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if r.Annotations["summary"] == "" ||
			!slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) ||
			!slices.Contains([]string{"none", "warning", "critical"}, r.Labels["operator_health_impact"]) ||
			r.Labels["kubernetes_operator_part_of"] != "kubevirt" {
			t.Errorf("%s: %v %v", r.Alert, r.Annotations, r.Labels)
		}
	}
}

// The rights that Prometheus gets are to find our pods and to read their metrics, and no others.
func TestMonitoringRights(t *testing.T) {
	for _, o := range decode(t, "monitoring/*.yaml") {
		if o.GetLabels()["app.kubernetes.io/part-of"] != "virtkit" ||
			o.GetNamespace() != "" && o.GetNamespace() != names.Namespace {
			t.Errorf("%s %s: not marked as ours, or elsewhere", o.GetKind(), o.GetName())
		}
		switch o.GetKind() {
		case "ClusterRole":
			t.Errorf("%s: the one of manifests/base is enough", o.GetName())
		case "Role":
			for _, r := range typed[rbacv1.Role](t, o).Rules {
				for _, verb := range r.Verbs {
					if !slices.Contains([]string{"get", "list", "watch"}, verb) {
						t.Errorf("%s may %s %v", o.GetName(), verb, r.Resources)
					}
				}
				if slices.Contains(r.Resources, "secrets") || slices.Contains(r.Resources, "*") {
					t.Errorf("%s reads %v", o.GetName(), r.Resources)
				}
			}
		}
	}
}

// Every file of the directory is installed.
func TestMonitoringKustomization(t *testing.T) {
	text, err := os.ReadFile("monitoring/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("monitoring/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := filepath.Base(f); name != "kustomization.yaml" && !strings.Contains(string(text), name) {
			t.Errorf("kustomization.yaml does not list %s", name)
		}
	}
}
