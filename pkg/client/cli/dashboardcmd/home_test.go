package dashboardcmd

import (
	"bytes"
	"context"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestHome is of the namespace that is shown: it is there, is being deleted, is gone; and who may not read it.
func TestHome(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	changes := 0
	h := &home{client: api.Client(), name: "prod", changed: func() { changes++ }}
	const path = "/api/v1/namespaces/prod"
	ctx := context.Background()
	in := func(phase string) any { return map[string]any{"status": map[string]any{"phase": phase}} }
	for _, c := range []struct {
		name   string
		answer any
		want   page.NamespacePhase
	}{
		{"there", in("Active"), page.NamespaceThere},
		{"deleted", in("Terminating"), page.NamespaceDeleting},
		{"not to be read", clienttest.Forbidden("namespaces"), page.NamespaceThere},
	} {
		api.Put(path, c.answer)
		_ = h.ask(ctx)
		if got := h.state(); got != c.want {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
	gone := &home{client: api.Client(), name: "other", changed: func() { changes++ }}
	if err := gone.ask(ctx); err == nil || gone.state() != page.NamespaceGone {
		t.Errorf("%v, %v", err, gone.state())
	}
	if changes != 3 {
		t.Errorf("%d changes", changes)
	}
	all := &home{client: api.Client()}
	_ = all.ask(ctx)
	if len(api.Asked("/version")) != 1 || all.state() != page.NamespaceThere {
		t.Error("where all namespaces are shown the version is to be asked for")
	}
}

// TestSessionHasAPulse: the server is asked for the namespace at once, and all tables hear that it is silent.
func TestSessionHasAPulse(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	f.Flags.Kubeconfig = api.Kubeconfig("prod")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := newSession(ctx, &Options{Factory: f, Theme: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	w, err := s.open(page.Scope{Context: "test", Namespace: s.namespace})
	if err != nil {
		t.Fatal(err)
	}
	if w.Pulse == nil {
		t.Fatal("nothing notices that the server is silent")
	}
	deadline := time.After(30 * time.Second)
	for w.NamespacePhase() != page.NamespaceGone { // the API knows no namespace
		select {
		case <-s.changes:
		case <-deadline:
			t.Fatal("nobody asks for the namespace")
		}
	}
	if w.Pulse.State().Stale() {
		t.Errorf("a server that answers is silent: %+v", w.Pulse.State())
	}
	if of := source(api.Client(), w.Pulse, v1.GroupVersion, store.ReplicaSets, "prod"); of.Pulse != w.Pulse {
		t.Error("tables that are followed later do not hear that the server is silent")
	}
}

// TestNamespaceOfNewMachines: while all namespaces are shown it is the one that was shown before, else the
// kubeconfig's; of another context its own.
func TestNamespaceOfNewMachines(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	f.Flags.Kubeconfig = api.Kubeconfig("prod")
	s, err := newSession(t.Context(), &Options{Factory: f, Theme: "none", AllNamespaces: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if s.namespace != "" {
		t.Errorf("shows namespace %q instead of all", s.namespace)
	}
	for _, c := range []struct{ shown, home string }{{"", "prod"}, {"other", "other"}, {"", "other"}} {
		w, err := s.open(page.Scope{Context: f.Connection().Context, Namespace: c.shown})
		if err != nil {
			t.Fatal(err)
		}
		if w.Home != c.home {
			t.Errorf("showing %q: a new VM is for %q, not %q", c.shown, w.Home, c.home)
		}
	}
	if got := s.namespaceOf(f.Connection().Context); got != "prod" {
		t.Errorf("the context's namespace is %q", got)
	}
	if got := s.namespaceOf("nope"); got != "default" {
		t.Errorf("the namespace of no context is %q", got)
	}
}

// TestOnceOfNothing says on stderr that a namespace has no machines, as list does.
func TestOnceOfNothing(t *testing.T) {
	t.Parallel()
	api := clienttest.New(t)
	for _, path := range []string{
		"/apis/kubevirt.io/v1/namespaces/prod/virtualmachines",
		"/apis/kubevirt.io/v1/namespaces/prod/virtualmachineinstances",
		"/apis/kubevirt.io/v1/namespaces/prod/virtualmachineinstancemigrations", "/api/v1/nodes",
	} {
		api.Put(path, map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}})
	}
	var out, said bytes.Buffer
	streams := cli.NoStreams()
	streams.Out, streams.ErrOut = &out, &said
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	f.Flags.Kubeconfig = api.Kubeconfig("prod")
	cmd := NewCmdDashboard(f)
	cmd.SetArgs([]string{"--once"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if said.String() != "No virtual machines found in namespace prod.\n" {
		t.Errorf("stderr has %q, stdout %q", said.String(), out.String())
	}
}
