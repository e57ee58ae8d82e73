package set

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestSetQoS(t *testing.T) {
	const have = "{template: {metadata: {annotations: {a: b, disk.virtkit.io/root: bps=1Mi, " +
		"interface.virtkit.io/default: in=1Mi}}}}"
	for name, tc := range map[string]struct {
		spec string
		qos  QoS
		want string
	}{
		"first": {
			"{template: {}}",
			QoS{Disks: []string{"root=iops=500,bps=50Mi"}},
			`{"template":{"metadata":{"annotations":{"disk.virtkit.io/root":"iops=500,bps=50Mi"}}}}`,
		},
		"replaces that one": {
			have,
			QoS{Disks: []string{"root=write-iops=7"}, Interfaces: []string{"red=out=2Mi"}},
			`{"template":{"metadata":{"annotations":{"a":"b","disk.virtkit.io/root":"write-iops=7",` +
				`"interface.virtkit.io/default":"in=1Mi","interface.virtkit.io/red":"out=2Mi"}}}}`,
		},
		"written otherwise": {
			have,
			QoS{Disks: []string{"root=bps=1024Ki"}},
			`{"template":{"metadata":{"annotations":{"a":"b","disk.virtkit.io/root":"bps=1Mi",` +
				`"interface.virtkit.io/default":"in=1Mi"}}}}`,
		},
		"none of one": {
			have,
			QoS{Disks: []string{"root=none"}, Interfaces: []string{"gone=None"}},
			`{"template":{"metadata":{"annotations":{"a":"b","interface.virtkit.io/default":"in=1Mi"}}}}`,
		},
		"none but one": {
			have,
			QoS{None: true, Interfaces: []string{"default=out=1Mi"}},
			`{"template":{"metadata":{"annotations":{"a":"b","interface.virtkit.io/default":"out=1Mi"}}}}`,
		},
		"none at all": {
			"{template: {metadata: {annotations: {disk.virtkit.io/root: bps=1Mi}, labels: {a: b}}}}",
			QoS{None: true},
			`{"template":{"metadata":{"labels":{"a":"b"}}}}`,
		},
		"nothing":       {have, QoS{}, "say --disk or --interface NAME=LIMITS, or --none"},
		"no name":       {have, QoS{Disks: []string{"=bps=1Mi"}}, `--disk: "=bps=1Mi" is no NAME=LIMITS`},
		"no limits":     {have, QoS{Interfaces: []string{"default"}}, `--interface: "default" is no NAME=LIMITS`},
		"an empty text": {have, QoS{Disks: []string{"root="}}, `--disk: "root": says no limit`},
		"of the other": {
			have, QoS{Disks: []string{"root=in=1Mi"}}, `--disk: "root": "in" is no limit; use iops, read-iops,`,
		},
		"twice": {have, QoS{Disks: []string{"root=bps=1Mi", "root=iops=1"}}, `--disk: "root" is named twice`},
	} {
		vm := &unstructured.Unstructured{Object: map[string]any{}}
		var spec map[string]any
		if err := yaml.Unmarshal([]byte(tc.spec), &spec); err != nil {
			t.Fatal(err)
		}
		vm.Object["spec"] = spec
		change, err := SetQoS(tc.qos)
		if err == nil {
			err = change(vm)
		}
		got := ""
		if err != nil {
			got = err.Error()
		} else if data, err := json.Marshal(vm.Object["spec"]); err == nil {
			got = string(data)
		}
		if got != tc.want && (err == nil || !strings.HasPrefix(got, tc.want)) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
