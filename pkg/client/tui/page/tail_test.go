package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/client/store"
)

func TestTail(t *testing.T) {
	for name, c := range map[string]struct {
		writes []string
		want   []string
	}{
		"nothing":                 {nil, []string{}},
		"a prompt without an end": {[]string{"boot\r\nlogin: "}, []string{"boot", "login: "}},
		"in pieces":               {[]string{"bo", "ot\n", "lo", "gin"}, []string{"boot", "login"}},
		"written over":            {[]string{"10%\r50%", "\r100%\n"}, []string{"100%"}},
		"empty lines at the end":  {[]string{"a\n\n\n"}, []string{"a"}},
		"only the last":           {[]string{"1\n2\n3\n4\n5\n6\n"}, []string{"3", "4", "5", "6"}},
		"a line without any end": {
			[]string{strings.Repeat("x", maxLine), "y", "\nnext"},
			[]string{strings.Repeat("x", maxLine), "next"},
		},
		"more than a line in a part": {[]string{strings.Repeat("x", 3*maxLine) + "\nnext"}, []string{"next"}},
	} {
		tail := newTail()
		for _, w := range c.writes {
			if _, err := io.WriteString(tail, w); err != nil {
				t.Fatal(err)
			}
		}
		got := append([]string{}, tail.last(4)...)
		if name == "more than a line in a part" {
			got = got[1:] // what was too long is not there at all
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s, -want +got\n%s", name, diff)
		}
	}
}

func TestTailIsBounded(t *testing.T) {
	tail := newTail()
	for i := range 10 * tailLines {
		fmt.Fprintf(tail, "line %d\n", i)
	}
	if n := len(tail.lines); n > tailLines {
		t.Errorf("%d lines are kept", n)
	}
}

// endless has a console that goes on until its reader leaves.
type endless struct{ Actions }

func (endless) Tail(ctx context.Context, _ store.Key, _ int64, w io.Writer) error {
	_, err := io.WriteString(w, "hello")
	<-ctx.Done()
	return errors.Join(err, ctx.Err())
}

// TestTailEnds: what a page has going on ends with it.
func TestTailEnds(t *testing.T) {
	tail := newTail()
	batch, ok := tail.start(endless{}, store.Key{})().(tea.BatchMsg)
	if !ok {
		t.Fatal("not several commands")
	}
	answers := make(chan tea.Msg)
	for _, cmd := range batch {
		go func() { answers <- cmd() }()
	}
	wait := func() tea.Msg {
		select {
		case msg := <-answers:
			return msg
		case <-time.After(time.Minute):
			t.Fatal("it goes on")
			return nil
		}
	}
	if m, ok := wait().(tailChanged); !ok || m.tail != tail || tail.last(1)[0] != "hello" {
		t.Errorf("%v, %q", m, tail.last(1))
	}
	tail.stop()
	if m := wait(); m != nil {
		t.Errorf("after the page was left: %v", m)
	}
	if m := tail.next()(); m != nil {
		t.Errorf("after the page was left: %v", m)
	}
}
