package page

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// broken has consoles that end at once.
type broken struct{ Actions }

func (broken) Tail(context.Context, store.Key, int64, io.Writer) error { return nil }

// TestConsoleIsReadAgain: that of a machine that was started anew at once, one that was cut after a while.
func TestConsoleIsReadAgain(t *testing.T) {
	at := time.Unix(1000, 0)
	w := &World{
		Machines: store.NewMachines(func() {}), Migrations: store.NewTable[store.Migration](func() {}),
		Events: store.NewTable[store.Event](func() {}),
		Theme:  theme.New(theme.Options{}), Now: func() time.Time { return at }, Actions: broken{}, Usage: NewUsage(),
	}
	is := func(uid types.UID, phase v1.VirtualMachineInstancePhase) {
		w.Machines.Load(nil, []v1.VirtualMachineInstance{
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", UID: uid},
				Status:     v1.VirtualMachineInstanceStatus{Phase: phase},
			},
		})
	}
	is("1", v1.Scheduled)
	p := NewMachine(w, store.Key{Namespace: "prod", Name: "web"})
	defer p.Close()
	p.objects.going = true // only the console
	read := func() bool {
		p.Refresh()
		before := p.console
		p.Wants()
		if p.console == before {
			return false
		}
		p.Update(tailEnded{tail: p.console})
		return true
	}
	for i, step := range []struct {
		uid   types.UID
		phase v1.VirtualMachineInstancePhase
		after time.Duration
		want  bool
	}{
		{"1", v1.Scheduled, 0, false},
		{"1", v1.Running, 0, true},
		{"1", v1.Running, again / 2, false},
		{"1", v1.Running, again / 2, true},
		{"2", v1.Running, 0, true},
	} {
		at = at.Add(step.after)
		is(step.uid, step.phase)
		if got := read(); got != step.want {
			t.Errorf("step %d: the console is read: %t", i, got)
		}
	}
}

// TestConsoleBeginsAnew: the console of a guest that has moved says since when there is nothing of it.
func TestConsoleBeginsAnew(t *testing.T) {
	end := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	moved := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}}
	moved.Status.NodeName = "node2"
	moved.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		Completed: true, EndTimestamp: &end, SourceNode: "node1", TargetNode: "node2",
	}
	for want, details := range map[string]*Details{
		"prod/web moved from node1 to node2 at 2026-01-02T03:04:05Z; its log begins there, " +
			"and it has written nothing since": {VMI: moved},
		"nothing has come of it yet": {VMI: &v1.VirtualMachineInstance{}},
	} {
		if got := (sections{Machine: &Machine{details: details}}).unwritten(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReading(t *testing.T) {
	at := time.Unix(1000, 0)
	var r reading[string]
	for i, c := range []struct {
		of     string
		after  time.Duration
		wanted bool
		err    error
	}{
		{"one", 0, true, nil},
		{"one", time.Hour, false, nil},
		{"two", 0, true, errors.New("no")},
		{"two", again / 2, false, nil},
		{"three", 0, true, errors.New("no")},
		{"three", again, true, nil},
		{"three", again, false, nil},
	} {
		at = at.Add(c.after)
		if got := r.wanted(c.of, at); got != c.wanted {
			t.Errorf("%d: %s is wanted: %t", i, c.of, got)
		}
		if !c.wanted {
			continue
		}
		if r.wanted("other", at) {
			t.Errorf("%d: two readings at once", i)
		}
		r.done(c.err, at)
	}
}
