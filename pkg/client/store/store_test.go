package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
)

func vm(name string, status v1.VirtualMachinePrintableStatus) v1.VirtualMachine {
	return v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: "1"},
		Status:     v1.VirtualMachineStatus{PrintableStatus: status},
	}
}

func vmi(name, node string, owned bool) v1.VirtualMachineInstance {
	i := v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: "1"},
		Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running, NodeName: node},
	}
	if owned {
		owner := vm(name, "")
		i.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&owner, v1.VirtualMachineGroupVersionKind)}
	}
	return i
}

func summary(m *Machines) string {
	rows := m.Rows()
	slices.SortFunc(rows, Compare)
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s:%s:%s:%t", r.Name, r.Status, r.Node, r.Instance))
	}
	return strings.Join(out, " ")
}

func TestJoin(t *testing.T) {
	m := NewMachines(func() {})
	m.Load([]v1.VirtualMachine{vm("off", "Stopped"), vm("twin", "Stopped"), vm("web", "Running")},
		[]v1.VirtualMachineInstance{
			vmi("lone", "n1", false), vmi("twin", "n1", false), vmi("web", "n2", true), vmi("orphan", "n1", true),
		})
	want := "lone:Running:n1:true off:Stopped::false orphan:Running:n1:true twin:Stopped::false web:Running:n2:false"
	if got := summary(m); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// fake is a server of one kind.
type fake struct {
	list     func() (runtime.Object, error)
	watchers chan *watch.FakeWatcher
	refuse   chan error
}

func (f *fake) source() Source {
	return Source{
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return f.list() },
		Watch: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, apierrors.NewBadRequest("this server is an old one: it does not send initial events")
			}
			select {
			case err := <-f.refuse:
				if errors.Is(err, errHangs) {
					return watch.NewEmptyWatch(), nil // as client-go has it
				}
				return nil, err
			default:
			}
			w := watch.NewFake()
			f.watchers <- w
			return w, nil
		},
	}
}

// errHangs is a server that does not answer.
var errHangs = errors.New("the server hangs")

func newFake(list func() (runtime.Object, error)) *fake {
	return &fake{list: list, watchers: make(chan *watch.FakeWatcher, 9), refuse: make(chan error, 9)}
}

func eventually(t *testing.T, changes <-chan struct{}, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-changes:
		case <-deadline:
			t.Fatalf("not: %s", what)
		}
	}
}

func TestFeed(t *testing.T) {
	vms := newFake(func() (runtime.Object, error) {
		return &v1.VirtualMachineList{
			ListMeta: metav1.ListMeta{ResourceVersion: "5"},
			Items:    []v1.VirtualMachine{vm("web", "Starting"), vm("off", "Stopped")},
		}, nil
	})
	vmis := newFake(func() (runtime.Object, error) {
		return &v1.VirtualMachineInstanceList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
	})
	changes := make(chan struct{}, 1)
	m := NewMachines(func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Feed(ctx, vms.source(), vmis.source())
	}()
	is := func(want string) func() bool { return func() bool { return summary(m) == want } }
	eventually(t, changes, "listed", func() bool {
		return m.State().Synced && is("off:Stopped::false web:Starting::false")()
	})
	w, wi := <-vms.watchers, <-vmis.watchers

	i := vmi("web", "n1", true)
	wi.Add(&i)
	eventually(t, changes, "joined", is("off:Stopped::false web:Starting:n1:false"))
	running := vm("web", "Running")
	running.ResourceVersion = "7"
	w.Modify(&running)
	eventually(t, changes, "modified", is("off:Stopped::false web:Running:n1:false"))
	off := vm("off", "")
	w.Delete(&off)
	eventually(t, changes, "deleted", is("web:Running:n1:false"))

	// The connection goes: the rows stay, with the time since when they are old; and it comes back.
	before := time.Now()
	vms.refuse <- errors.New("connection refused")
	w.Stop()
	eventually(t, changes, "stale", func() bool { return m.State().Stale() })
	if s := m.State(); s.Err == nil || s.Since.Before(before) || !s.Synced || summary(m) != "web:Running:n1:false" {
		t.Errorf("when the connection went: %+v, %s", s, summary(m))
	}
	w = <-vms.watchers
	eventually(t, changes, "fresh again", func() bool { s := m.State(); return !s.Stale() && s.Err == nil })
	vms.refuse <- errHangs
	w.Stop()
	eventually(t, changes, "stale when the server hangs", func() bool { return m.State().Stale() })
	if s := m.State(); !errors.Is(s.Err, context.DeadlineExceeded) {
		t.Errorf("when the server hangs: %+v", s)
	}
	<-vms.watchers
	eventually(t, changes, "fresh once more", func() bool { s := m.State(); return !s.Stale() && s.Err == nil })

	cancel()
	<-ended
}

// TestFeedEndsAtOnce ends a feed whose server refuses connections: who waits for it waits for no try that is to come.
func TestFeedEndsAtOnce(t *testing.T) {
	was := backoff
	backoff = wait.Backoff{Duration: time.Hour, Factor: 2, Steps: 5}
	defer func() { backoff = was }()
	refused := &url.Error{Op: "Get", URL: "https://x", Err: syscall.ECONNREFUSED}
	source := Source{
		List:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, refused },
		Watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, refused },
	}
	changes := make(chan struct{}, 1)
	table := NewTable[Node](func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Feed(ctx, table, "nodes", source, OfNode)
	}()
	eventually(t, changes, "lost", func() bool { return table.State().Stale() })
	if s := table.State(); !errors.Is(s.Err, syscall.ECONNREFUSED) {
		t.Errorf("while the server refuses connections: %+v", s)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for its next try")
	}
}

func TestWorst(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	e1, e2 := errors.New("1"), errors.New("2")
	for _, c := range []struct{ a, b, want State }{
		{State{Synced: true}, State{Synced: true}, State{Synced: true}},
		{State{Synced: true}, State{}, State{}},
		{
			State{Synced: true, Since: late, Err: e2},
			State{Synced: true, Since: early, Err: e1},
			State{Synced: true, Since: early, Err: e1},
		},
		{State{Synced: true}, State{Synced: true, Since: late, Err: e2}, State{Synced: true, Since: late, Err: e2}},
	} {
		if got := Worst(c.a, c.b); got != c.want {
			t.Errorf("of %+v and %+v: %+v", c.a, c.b, got)
		}
	}
}

func TestOfEvent(t *testing.T) {
	at := metav1.Unix(100, 0)
	for name, c := range map[string]struct {
		event corev1.Event
		want  Event
	}{
		"old way": {
			corev1.Event{
				FirstTimestamp: metav1.Unix(50, 0), LastTimestamp: at, Count: 3,
				Source: corev1.EventSource{Component: "kubelet"},
			},
			Event{First: time.Unix(50, 0), Last: time.Unix(100, 0), Count: 3, Source: "kubelet"},
		},
		"new way": {
			corev1.Event{EventTime: metav1.MicroTime(at), ReportingController: "virt-handler"},
			Event{First: time.Unix(100, 0), Last: time.Unix(100, 0), Count: 1, Source: "virt-handler"},
		},
		"series": {
			corev1.Event{
				EventTime: metav1.MicroTime{Time: time.Unix(10, 0)},
				Series:    &corev1.EventSeries{Count: 9, LastObservedTime: metav1.MicroTime(at)},
			},
			Event{First: time.Unix(10, 0), Last: time.Unix(100, 0), Count: 9},
		},
		"no time": {
			corev1.Event{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}},
			Event{First: time.Unix(100, 0), Last: time.Unix(100, 0), Count: 1},
		},
	} {
		if diff := cmp.Diff(c.want, *OfEvent(&c.event)); diff != "" {
			t.Errorf("%s, -want +got\n%s", name, diff)
		}
	}
}
