package dashboardcmd

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	tea "charm.land/bubbletea/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/editor"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// session follows the cluster for the dashboard, one scope at a time.
type session struct {
	options   *Options
	ctx       context.Context
	namespace string
	home      string // the namespace that was shown last, or the kubeconfig's
	look      *theme.Theme
	changes   chan struct{}
	transfers *page.Transfers

	stop  context.CancelFunc // ends the feeds of the scope
	feeds sync.WaitGroup

	// program has the terminal, once there is one.
	program atomic.Pointer[tea.Program]
}

func newSession(ctx context.Context, o *Options) (*session, error) {
	s := &session{options: o, ctx: ctx, changes: make(chan struct{}, 1), stop: func() {}}
	s.transfers = page.NewTransfers(o.Factory.Now, s.changed)
	var err error
	if s.look, err = o.theme(); err != nil {
		return nil, err
	}
	if s.home, err = o.Factory.Namespace(); !o.AllNamespaces {
		s.namespace = s.home
	}
	return s, err
}

// changed never blocks: one token in the channel stands for all changes since it was taken.
func (s *session) changed() {
	select {
	case s.changes <- struct{}{}:
	default:
	}
}

func (s *session) close() {
	s.stop()
	s.feeds.Wait()
}

func (s *session) follow(feed func()) { s.feeds.Go(s.guarded(feed)) }

// open follows another scope, and no more the one before.
func (s *session) open(scope page.Scope) (*page.World, error) {
	f := s.options.Factory
	place := s.home
	if scope.Context != f.Connection().Context {
		f = f.InContext(scope.Context)
		place = s.namespaceOf(scope.Context)
	}
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	sources := map[string]store.Source{}
	for resource, gv := range map[string]struct {
		group     string
		namespace string
	}{client.VMs: {"kubevirt", scope.Namespace}, client.VMIs: {"kubevirt", scope.Namespace}, client.Migrations: {
		"kubevirt", scope.Namespace,
	}, client.Events: {"", scope.Namespace}, client.Nodes: {"", ""}} {
		group := corev1.SchemeGroupVersion
		if gv.group != "" {
			group = v1.GroupVersion
		}
		if sources[resource], err = c.Source(group, resource, gv.namespace); err != nil {
			return nil, err
		}
	}
	shown := &home{client: c, name: scope.Namespace, changed: s.changed}
	pulse := store.NewPulse(shown.ask, s.changed, f.Now)
	pulse.Regular = scope.Namespace != ""
	for resource, of := range sources {
		of.Pulse = pulse
		sources[resource] = of
	}
	s.close()
	ctx, cancel := context.WithCancel(s.ctx)
	s.stop = cancel
	s.options.Factory = f
	s.home = cmp.Or(scope.Namespace, place)
	w := &page.World{
		Scope: scope, Home: s.home, Program: f.Program, Flags: s.options.flags(scope), ReadOnly: s.options.ReadOnly,
		Theme: s.look, Now: f.Now, KeepText: editor.Keep,
		Explain:  func(err error) string { return cli.Explain(err, f.Connection()) },
		Machines: store.NewMachines(s.changed), Nodes: store.NewTable[store.Node](s.changed),
		Migrations: store.NewTable[store.Migration](s.changed), Events: store.NewTable[store.Event](s.changed),
		Usage: page.NewUsage(), Transfers: s.transfers, Pulse: pulse, NamespacePhase: shown.state,
		Actions: &actions{
			factory: f, client: c, ctx: ctx, changed: s.changed, panicked: s.crashed,
			rules: map[string]*rights{},
		},
	}
	for range sizings {
		w.Sizings = append(w.Sizings, store.NewTable[store.Sizing](s.changed))
	}
	w.Sets = []*store.Table[store.Set]{store.NewTable[store.Set](s.changed), store.NewTable[store.Set](s.changed)}
	w.FollowSets = sync.OnceFunc(func() {
		s.follow(func() {
			store.Feed(ctx, w.Sets[0], store.Pools,
				source(c, w.Pulse, poolv1beta1.SchemeGroupVersion, store.Pools, scope.Namespace), store.OfPool)
		})
		s.follow(func() {
			store.Feed(ctx, w.Sets[1], store.ReplicaSets,
				source(c, w.Pulse, v1.GroupVersion, store.ReplicaSets, scope.Namespace), store.OfReplicaSet)
		})
	})
	w.Snapshots = store.NewSnapshotTables(s.changed)
	w.FollowSnapshots = sync.OnceFunc(func() { s.followSnapshots(ctx, c, w) })
	w.Images = store.NewTable[store.Image](s.changed)
	w.FollowImages = sync.OnceFunc(func() { s.followImages(ctx, c, w) })
	w.FollowSizings = sync.OnceFunc(func() { s.followSizings(ctx, c, w) })
	s.follow(func() { pulse.Run(ctx) })
	s.follow(func() { w.Machines.Feed(ctx, sources[client.VMs], sources[client.VMIs]) })
	s.follow(func() { store.Feed(ctx, w.Nodes, client.Nodes, sources[client.Nodes], store.OfNode) })
	s.follow(func() {
		store.Feed(ctx, w.Migrations, client.Migrations, sources[client.Migrations], store.OfMigration)
	})
	s.follow(func() { store.Feed(ctx, w.Events, client.Events, sources[client.Events], store.OfEvent) })
	return w, nil
}

// followSizings keeps instance types and preferences current until ctx ends.
func (s *session) followSizings(ctx context.Context, c *client.Client, w *page.World) {
	source := func(resource, namespace string) store.Source {
		return source(c, w.Pulse, instancetypev1beta1.SchemeGroupVersion, resource, namespace)
	}
	t := w.Sizings
	s.follow(func() { store.Feed(ctx, t[0], sizings[0], source(sizings[0], w.Namespace), store.OfInstancetype) })
	s.follow(func() { store.Feed(ctx, t[1], sizings[1], source(sizings[1], ""), store.OfClusterInstancetype) })
	s.follow(func() { store.Feed(ctx, t[2], sizings[2], source(sizings[2], w.Namespace), store.OfPreference) })
	s.follow(func() { store.Feed(ctx, t[3], sizings[3], source(sizings[3], ""), store.OfClusterPreference) })
}

// source returns a source of objects; one that cannot be made fails when it is read.
func source(c *client.Client, pulse *store.Pulse, gv schema.GroupVersion, resource, namespace string) store.Source {
	out, err := c.Source(gv, resource, namespace)
	if err != nil { // the same client has made the other sources
		fail := func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, err }
		return store.Source{List: fail, Watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return nil, err
		}}
	}
	out.Pulse = pulse
	return out
}

// flags reach the same cluster from a command line.
func (o *Options) flags(scope page.Scope) []string {
	var out []string
	for _, word := range o.connection {
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if name != "namespace" && name != "context" {
			out = append(out, word)
		}
	}
	if scope.Context != "" {
		out = append(out, "--context="+scope.Context)
	}
	return out
}

// namespaces returns the namespaces that can be shown, and "all".
func (s *session) namespaces(ctx context.Context) []string {
	c, err := s.options.Factory.Client()
	if err != nil {
		return nil
	}
	names, err := c.Namespaces(ctx)
	if err != nil {
		return []string{"all"}
	}
	return append([]string{"all"}, names...)
}

// namespaceOf returns the namespace that a context of the kubeconfig names, else "default", as kubectl has it.
func (s *session) namespaceOf(name string) string {
	raw, err := s.options.Factory.Flags.Loader().RawConfig()
	if err != nil || raw.Contexts[name] == nil { // going there says what is wrong
		return metav1.NamespaceDefault
	}
	return cmp.Or(raw.Contexts[name].Namespace, metav1.NamespaceDefault)
}

// contexts returns the contexts of the kubeconfig.
func (s *session) contexts(context.Context) []string {
	raw, err := s.options.Factory.Flags.Loader().RawConfig()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(raw.Contexts))
}

// lightBackground reads what some terminals say of their colours: "foreground;background", by number.
func lightBackground(colorfgbg string) bool {
	parts := strings.Split(colorfgbg, ";")
	switch parts[len(parts)-1] {
	case "7", "9", "10", "11", "12", "13", "14", "15":
		return true
	}
	return false
}

// ascii reports whether the locale has no characters beyond ASCII.
func ascii(env func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := env(name); v != "" {
			return v == "C" || v == "POSIX"
		}
	}
	return false
}
