package listcmd

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// setAPI answers each list with its sets.
type setAPI struct {
	sets.API
	items []unstructured.Unstructured
}

func (a setAPI) Read(_ context.Context, _ string, _ url.Values, into any) error {
	into.(*unstructured.UnstructuredList).Items = a.items
	return nil
}

// A name with -A is every set of that name, and one that no namespace has is not found.
func TestSetsNamedInAllNamespaces(t *testing.T) {
	api := setAPI{}
	for _, id := range []string{"blue/web", "green/web", "green/db"} {
		set := unstructured.Unstructured{Object: map[string]any{}}
		namespace, name, _ := strings.Cut(id, "/")
		set.SetNamespace(namespace)
		set.SetName(name)
		api.items = append(api.items, set)
	}
	kind, _ := sets.KindOf("vmpool")
	out := &bytes.Buffer{}
	o := &Options{
		Factory: &cli.Factory{IO: &cli.IOStreams{Out: out}, Now: time.Now},
		Output:  cli.NewOutput(), Sets: &kind, AllNamespaces: true,
	}
	if err := o.completeSets([]string{"web", "ghost"}); err != nil {
		t.Fatal(err)
	}
	err := o.listSets(t.Context(), api)
	if !errors.Is(err, action.ErrNotFound) ||
		!strings.Contains(err.Error(), `virtualmachinepools.pool.kubevirt.io "ghost" not found in any namespace`) {
		t.Errorf("got error %v", err)
	}
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(rows) != 3 || !strings.HasPrefix(rows[1], "blue ") || !strings.HasPrefix(rows[2], "green ") {
		t.Errorf("got rows %q, want web of blue and of green", rows)
	}
}

func TestSetTable(t *testing.T) {
	now := time.Unix(100_000, 0)
	set := func(name string, status map[string]any) unstructured.Unstructured {
		out := unstructured.Unstructured{
			Object: map[string]any{"spec": map[string]any{"replicas": int64(3)}, "status": status},
		}
		out.SetName(name)
		out.SetNamespace("ns")
		out.SetCreationTimestamp(metav1.NewTime(now.Add(-90 * time.Minute)))
		return out
	}
	found := []unstructured.Unstructured{
		set("db", map[string]any{"replicas": int64(3), "readyReplicas": int64(2)}),
		set("web", map[string]any{"conditions": []any{map[string]any{"type": "ReplicaPaused", "status": "True"}}}),
	}
	for all, want := range map[bool]string{
		false: "NAME   DESIRED   CURRENT   READY   AGE   NOTE\ndb     3         3         2       90m\n" +
			"web    3         0         0       90m   paused\n",
		true: "NAMESPACE   NAME   DESIRED   CURRENT   READY   AGE   NOTE\n" +
			"ns          db     3         3         2       90m\n" +
			"ns          web    3         0         0       90m   paused\n",
	} {
		out := &bytes.Buffer{}
		o := &Options{
			Factory: &cli.Factory{IO: &cli.IOStreams{Out: out}, Now: func() time.Time { return now }},
			Output:  cli.NewOutput(), AllNamespaces: all,
		}
		if err := o.setTable(found); err != nil || out.String() != want {
			t.Errorf("%v\ngot\n%swant\n%s", err, out, want)
		}
	}
}
