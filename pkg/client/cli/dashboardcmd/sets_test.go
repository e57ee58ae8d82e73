package dashboardcmd

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
)

func TestSetsAreReadScaledAndDeleted(t *testing.T) {
	t.Parallel()
	const pools = "/apis/pool.kubevirt.io/v1beta1/namespaces/prod/virtualmachinepools"
	object := map[string]any{
		"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool",
		"metadata": map[string]any{"namespace": "prod", "name": "db", "uid": "u", "resourceVersion": "7"},
		"spec":     map[string]any{"replicas": 3},
	}
	var asked []string
	note := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			asked = append(asked, r.Method+" "+string(body))
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}
	api := clienttest.New(t)
	api.Put(pools, map[string]any{
		"apiVersion": "pool.kubevirt.io/v1beta1",
		"kind":       "VirtualMachinePoolList",
		"metadata":   map[string]any{},
		"items":      []any{object},
	})
	api.Put(pools+"/db", http.HandlerFunc(note))
	api.Put(pools+"/db/scale", http.HandlerFunc(note))
	state := t.TempDir()
	a := &actions{
		client: api.Client(), factory: cli.NewFactory("virtctl", cli.NoStreams(),
			func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] }),
		rules: granted(map[string]*authorizationv1.SubjectRulesReviewStatus{
			"prod": {ResourceRules: []authorizationv1.ResourceRule{
				{
					Verbs: []string{"patch"}, APIGroups: []string{"pool.kubevirt.io"},
					Resources: []string{"virtualmachinepools/scale"},
				},
			}},
		}),
	}
	ctx := context.Background()
	from := source(a.client, nil, poolv1beta1.SchemeGroupVersion, store.Pools, "prod")
	list, err := from.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := store.OfPool(&list.(*poolv1beta1.VirtualMachinePoolList).Items[0])
	if err := a.Scale(ctx, s, 5); err != nil {
		t.Error(err)
	}
	stale := *s
	stale.Desired = 2
	if err := a.Scale(ctx, &stale, 9); err == nil {
		t.Error("a set was scaled that asks for another number than was shown")
	}
	if err := a.DeleteSet(ctx, s); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{
		`PATCH {"metadata":{"resourceVersion":"7"},"spec":{"replicas":5}}`, `DELETE {"preconditions":{"uid":"u"}}`,
	}, asked); diff != "" {
		t.Error(diff)
	}
	journaled(t, state, "scale of vmpool/db", "delete of vmpool/db")
	text, err := a.Object(ctx, store.Pools, "prod", "db")
	if err != nil || text == "" {
		t.Errorf("YAML %q, %v", text, err)
	}
	if why := a.ForbiddenTo("prod", "patch", store.Pools+"/scale"); why != "" {
		t.Errorf("scaling a pool: %s", why)
	}
	for _, resource := range []string{store.Pools, store.ReplicaSets + "/scale"} {
		if a.ForbiddenTo("prod", "patch", resource) == "" {
			t.Errorf("%s may be patched", resource)
		}
	}
}
