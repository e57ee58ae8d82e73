package listcmd

import (
	"bytes"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

func TestSetTable(t *testing.T) {
	now := time.Unix(100_000, 0)
	set := func(name string, status map[string]any) unstructured.Unstructured {
		out := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(3)}, "status": status}}
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
		false: "NAME   DESIRED   CURRENT   READY   AGE   NOTE\ndb     3         3         2       90m\nweb    3         0         0       90m   paused\n",
		true:  "NAMESPACE   NAME   DESIRED   CURRENT   READY   AGE   NOTE\nns          db     3         3         2       90m\nns          web    3         0         0       90m   paused\n",
	} {
		out := &bytes.Buffer{}
		o := &Options{
			Factory: &cli.Factory{IO: &cli.IOStreams{Out: out}, Now: func() time.Time { return now }}, Output: cli.NewOutput(), AllNamespaces: all,
		}
		if err := o.setTable(found); err != nil || out.String() != want {
			t.Errorf("%v\ngot\n%swant\n%s", err, out, want)
		}
	}
}
