package component

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder notes what happens to its components.
type recorder struct {
	mu  sync.Mutex
	log []string
}

func (r *recorder) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, what)
}

type fake struct {
	*recorder
	name       string
	start      error
	ready      error
	stop       error
	waitForCtx bool
}

func (f fake) Name() string               { return f.name }
func (f fake) Init(context.Context) error { f.note("init " + f.name); return nil }

func (f fake) Start(context.Context) error { f.note("start " + f.name); return f.start }

func (f fake) Ready(ctx context.Context) error {
	if f.waitForCtx {
		<-ctx.Done()
		return ctx.Err()
	}
	f.note("ready " + f.name)
	return f.ready
}

func (f fake) Stop(context.Context) error { f.note("stop " + f.name); return f.stop }

func TestStackOrder(t *testing.T) {
	r := new(recorder)
	s := Stack{
		Components: []Component{fake{recorder: r, name: "a"}, fake{recorder: r, name: "b"}},
		Report: func(name string, ready bool, _ time.Duration) {
			if ready {
				r.note("report " + name)
			}
		},
	}
	if err := s.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Down(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := "init a,start a,ready a,report a,init b,start b,ready b,report b,stop b,stop a"
	if got := strings.Join(r.log, ","); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestStackStopsAtTheFirstErrorUpAndGoesOnDown(t *testing.T) {
	r := new(recorder)
	s := Stack{Components: []Component{
		fake{recorder: r, name: "a", stop: errors.New("stuck a")},
		fake{recorder: r, name: "b", start: errors.New("no port"), stop: errors.New("stuck b")},
		fake{recorder: r, name: "c"},
	}}
	if err := s.Up(context.Background()); err == nil || err.Error() != "start b: no port" {
		t.Errorf("up: %v", err)
	}
	if slices.Contains(r.log, "init c") {
		t.Error("went on after an error")
	}
	err := s.Down(context.Background())
	if err == nil || !strings.Contains(err.Error(), "stop a: stuck a") ||
		!strings.Contains(err.Error(), "stop b: stuck b") {
		t.Errorf("down: %v", err)
	}
}

// dying is a process that Start finds running, and that has ended by the time of Ready, deaths times.
type dying struct {
	fake
	deaths *int
}

func (d dying) Ready(context.Context) error {
	if *d.deaths--; *d.deaths >= 0 {
		return fmt.Errorf("%w; see its log", ErrEnded)
	}
	return nil
}

// A process that was killed a moment before Start looked at it is started again; one that ends by itself is not, for
// ever.
func TestUpStartsWhatWasEnding(t *testing.T) {
	for deaths, want := range map[int]string{0: "", 1: "", 2: "wait for a: its process has ended; see its log"} {
		r, left := new(recorder), deaths
		s := Stack{
			Components: []Component{Together{Components: []Component{dying{fake{recorder: r, name: "a"}, &left}}}},
		}
		err := s.Up(context.Background())
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%d: %v", deaths, err)
		}
	}
}

func TestTogetherFirstErrorEndsTheWait(t *testing.T) {
	r := new(recorder)
	g := Together{Components: []Component{
		fake{recorder: r, name: "slow", waitForCtx: true},
		fake{recorder: r, name: "bad", ready: errors.New("crashed")},
	}}
	if err := g.Ready(context.Background()); err == nil || err.Error() != "wait for bad: crashed" {
		t.Errorf("got %v", err)
	}
}

func TestTogetherTimeoutNamesAll(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	r := new(recorder)
	err := Together{Components: []Component{fake{recorder: r, name: "slow", waitForCtx: true}}}.Ready(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "slow") {
		t.Errorf("got %v", err)
	}
}

func TestTask(t *testing.T) {
	ctx := context.Background()
	running := make(chan struct{})
	task := &Task{
		Label: "x", Failed: func(err error) { t.Errorf("failed: %v", err) },
		Run: func(ctx context.Context) error { close(running); <-ctx.Done(); return errors.New("was told to end") },
		Check: func(context.Context) error {
			select {
			case <-running:
				return nil
			default:
				return errors.New("not yet")
			}
		},
	}
	if err := (Stack{Components: []Component{task}}).Up(ctx); err != nil {
		t.Fatal(err)
	}
	if err := task.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestTaskThatFailsIsNeverReady(t *testing.T) {
	failed := make(chan error, 1)
	task := &Task{
		Label: "x", Failed: func(err error) { failed <- err },
		Run:   func(context.Context) error { return errors.New("bad flag") },
		Check: func(context.Context) error { return errors.New("not yet") },
	}
	err := Stack{Components: []Component{task}}.Up(context.Background())
	if err == nil || !strings.Contains(err.Error(), "x: bad flag") {
		t.Errorf("up: %v", err)
	}
	if err := <-failed; err.Error() != "x: bad flag" {
		t.Errorf("failed: %v", err)
	}
}

func TestPoll(t *testing.T) {
	n := 0
	err := Poll(context.Background(), time.Microsecond, func(context.Context) error {
		if n++; n < 3 {
			return errors.New("again")
		}
		return nil
	})
	if err != nil || n != 3 {
		t.Errorf("%v after %d", err, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err = Poll(ctx, time.Microsecond, func(context.Context) error { return errors.New("the door is shut") })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the door is shut") {
		t.Errorf("got %v", err)
	}
	if err := Poll(context.Background(), time.Hour, func(context.Context) error {
		return Permanent(errors.New("never"))
	}); err == nil || err.Error() != "never" {
		t.Errorf("got %v", err)
	}
}
