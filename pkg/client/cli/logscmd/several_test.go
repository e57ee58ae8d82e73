package logscmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/logs"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func TestPrefixed(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string
		want   string
	}{
		"lines":   {[]string{"a\nb\n"}, "[web] a\n[web] b\n"},
		"pieces":  {[]string{"a", "b\nc", "\n\n"}, "[web] ab\n[web] c\n[web] \n"},
		"no end":  {[]string{"a\nlogin: "}, "[web] a\n[web] login: \n"},
		"nothing": {nil, ""},
		"without ends": {
			[]string{strings.Repeat("x", longest), "y"}, "[web] " + strings.Repeat("x", longest) + "\n[web] y\n",
		},
	} {
		out := &bytes.Buffer{}
		p := &prefixed{lines: &lines{w: out}, prefix: "[web] "}
		for _, piece := range c.pieces {
			if n, err := p.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Errorf("%s: wrote %d of %d: %v", name, n, len(piece), err)
			}
		}
		if err := p.flush(); err != nil || out.String() != c.want {
			t.Errorf("%s: got %q, %v", name, out, err)
		}
	}
}

// enough calls done once as many lines were written.
type enough struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines int
	done  func()
}

func (e *enough) Write(data []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text.Write(data)
	if bytes.Count(e.text.Bytes(), []byte("\n")) >= e.lines {
		e.done()
	}
	return len(data), nil
}

// With -f all logs are read at the same time: each of them here has no end.
func TestFollowSeveral(t *testing.T) {
	api := clienttest.New(t)
	const vmis = "/namespaces/ns/virtualmachineinstances/"
	for _, name := range []string{"web", "db"} {
		api.Put("/apis/kubevirt.io/v1"+vmis+name,
			&v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u"}})
		api.Put("/apis/subresources.kubevirt.io/v1"+vmis+name+"/log",
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, "\x1b[1m%s boots\x1b[0m\n", name)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &enough{lines: 2, done: cancel}
	o := &Options{Factory: &cli.Factory{IO: &cli.IOStreams{Out: out, ErrOut: &bytes.Buffer{}}}}
	targets := []cli.Target{
		{Namespace: "ns", Name: "web"},
		{Namespace: "ns", Name: "db"},
		{Namespace: "ns", Name: "web", Instance: true},
	}
	err := o.several(ctx, api.Client(), targets, logs.Options{Source: logs.Serial, Follow: true, Tail: -1}, out, true)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	got := strings.Split(strings.TrimSpace(out.text.String()), "\n")
	slices.Sort(got)
	if want := []string{"[db] db boots", "[web] web boots"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
