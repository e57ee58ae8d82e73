package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/pace"
)

// ErrCancelled is the end of a transfer that the user has cancelled, and of which nothing is left.
var ErrCancelled = errors.New("cancelled")

// Transfer moves many bytes, and goes on while other pages are looked at, also those of another namespace. The methods
// that are told how far it is may be called by several goroutines.
type Transfer struct {
	// What it does, such as "export of VM prod/web", and To where it goes.
	What, To string
	// Loses says what is lost when it is cancelled.
	Loses string

	// image is what a pull brings to which namespace of which context; empty for what is no pull.
	image, namespace, context string

	id      int
	began   time.Time
	meter   *pace.Meter
	changed func()
	done    chan struct{} // closed at its end

	mu        sync.Mutex
	waits     string // what it waits for; empty while bytes move
	notes     []string
	ended     bool
	err       error
	cancelled bool
	cancel    context.CancelFunc
}

// Begin takes where a step begins; what was done before is no speed.
func (t *Transfer) Begin(step string, done, total int64) { t.moves(); t.meter.Begin(step, done, total) }

// Show takes how far a step is; a total below 0 is not known.
func (t *Transfer) Show(step string, done, total int64) { t.moves(); t.meter.Show(step, done, total) }

// End does nothing: the next step says that one has ended.
func (t *Transfer) End() {}

func (t *Transfer) moves() { t.Report("") }

// Report takes what is waited for.
func (t *Transfer) Report(text string) {
	t.mu.Lock()
	other := text != t.waits
	t.waits = text
	t.mu.Unlock()
	if other {
		t.changed()
	}
}

// Note takes what the user should know.
func (t *Transfer) Note(text string) {
	t.mu.Lock()
	t.notes = append(t.notes, text)
	t.mu.Unlock()
	t.changed()
}

// Reading returns how far the step under way is; without a name where none was begun.
func (t *Transfer) Reading() pace.Reading { return t.meter.Reading() }

// Progress returns how far it is, in a line; empty where nothing is known.
func (t *Transfer) Progress() string {
	r := t.Reading()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return ""
	case t.cancelled:
		return "ends"
	case t.waits != "":
		return t.waits
	case r.Name == "":
		return ""
	}
	words := []string{strings.TrimSpace(r.Name + " " + r.Percent())}
	if r.Total > 0 {
		words[0] += " of " + pace.Size(float64(r.Total))
	} else {
		words = append(words, pace.Size(float64(r.Done)))
	}
	words = append(words, r.Speed())
	if left := r.Remaining(); left != "" {
		words = append(words, left+" left")
	}
	return strings.Join(words, ", ")
}

// outcome is how a transfer is: whether it has ended, and how, whether it is to end, and its notes.
type outcome struct {
	ended, cancelled bool
	err              error
	notes            []string
}

func (t *Transfer) outcome() outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return outcome{t.ended, t.cancelled, t.err, slices.Clone(t.notes)}
}

// stop ends it; nothing when it has ended.
func (t *Transfer) stop() {
	t.mu.Lock()
	t.cancelled = t.cancelled || !t.ended
	t.mu.Unlock()
	t.cancel()
}

// running reports whether it has not ended.
func (t *Transfer) running() bool {
	o := t.outcome()
	return !o.ended && !o.cancelled
}

// over reports whether it has ended.
func (t *Transfer) over() bool { return t.outcome().ended }

// Transfers are those of the dashboard, also those that have ended.
type Transfers struct {
	now     func() time.Time
	changed func()

	mu  sync.Mutex
	all []*Transfer
}

// NewTransfers returns an empty list, whose clock is now. changed, which must not block, hears of what happens.
func NewTransfers(now func() time.Time, changed func()) *Transfers {
	return &Transfers{now: now, changed: changed}
}

// All returns the transfers, the oldest first.
func (l *Transfers) All() []*Transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// Stop cancels what goes on, and returns when all has ended, with what each has to say of its end.
func (l *Transfers) Stop() (said []string) {
	for _, t := range l.All() {
		if t.over() {
			continue
		}
		t.stop()
		<-t.done
		text := "the " + t.What + " was cancelled"
		if err := t.outcome().err; err != nil && !errors.Is(err, ErrCancelled) {
			text += ": " + err.Error()
		}
		said = append(said, text)
	}
	return said
}

// Task makes the task of a transfer, whose command line has the words.
func (l *Transfers) Task(t *Transfer, line string, do func(context.Context, *Transfer) error) Task {
	ctx, cancel := context.WithCancel(context.Background())
	t.changed, t.cancel, t.done = l.changed, cancel, make(chan struct{})
	t.meter = pace.NewMeter(l.now)
	return Task{
		Line: line, Bounded: true, Progress: t.Progress,
		Begin: func() {
			l.mu.Lock()
			t.began, t.id = l.now(), len(l.all)
			l.all = append(l.all, t)
			l.mu.Unlock()
		},
		Do: func(context.Context) error {
			defer close(t.done)
			defer cancel()
			return t.end(do(ctx, t))
		},
		Then: func(err error) tea.Msg {
			if notes := t.outcome().notes; err == nil && len(notes) > 0 {
				return Notice{Text: fmt.Sprintf("The %s is done; %s", t.What, strings.Join(notes, "; "))}
			}
			return nil
		},
	}
}

// end takes how it has ended. One that was cancelled and says nothing else of its end returns ErrCancelled.
func (t *Transfer) end(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancelled && err != nil && onlyCancelled(err) {
		err = ErrCancelled
	}
	t.ended, t.err = true, err
	t.changed()
	return err
}

// onlyCancelled reports whether each of the errors that are joined in err is that of a context that was cancelled.
func onlyCancelled(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !onlyCancelled(e) })
	}
	return errors.Is(err, context.Canceled)
}
