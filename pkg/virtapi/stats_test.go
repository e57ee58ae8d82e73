package virtapi

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/report/stats"
)

func TestStats(t *testing.T) {
	broken := false // node2 has a virt-handler that does not run
	c := newCluster(t, pairOf(v1.RunStrategyAlways, instance(v1.Running)),
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/stats" {
				t.Errorf("virt-handler is asked for %s", r.URL.Path)
			}
			if broken {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w,
				`{"items":[{"namespace":"`+r.URL.Query().Get("namespace")+
					`","name":"vm","node":"forged","cpuTimeNanoseconds":5}],"unanswered":[{"namespace":"shop","name":"late","node":"forged"}]}`)
		})
	get := func(path string) (list stats.List) {
		t.Helper()
		response, err := http.Get(c.url + "/apis/subresources.kubevirt.io/v1/" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, response.Status, err)
		}
		return list
	}
	for path, namespace := range map[string]string{"namespaces/default/stats": "default", "stats": ""} {
		list := get(path)
		if len(list.Items) != 1 || len(list.Unreachable) != 1 || list.Unreachable[0].Node != "node2" ||
			list.Items[0].Namespace != namespace || list.Items[0].Node == "forged" || list.Items[0].CPUTime != 5 {
			t.Errorf("%s: %+v", path, list)
		}
		if late := (stats.Unanswered{
			Namespace: "shop", Name: "late", Node: list.Items[0].Node,
		}); len(list.Unanswered) != 1 || list.Unanswered[0] != late {
			t.Errorf("%s: unanswered %+v, want %+v", path, list.Unanswered, late)
		}
	}
	broken = true
	if list := get("stats"); len(list.Items) != 0 || len(list.Unreachable) != 2 || list.Unreachable[0].Error == "" {
		t.Errorf("a node that fails: %+v", list)
	}
}
