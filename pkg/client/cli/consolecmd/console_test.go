package consolecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/console"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/stream"
)

// options are those of a console of default/demo without a terminal, which writes to out.
func options(out *bytes.Buffer) *Options {
	streams := cli.NoStreams()
	streams.Out = out
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	f.Now = func() time.Time { return time.Unix(1_700_000_000, 0) }
	f.Flags.Overrides.Context.Namespace = "default"
	f.Flags.Overrides.ClusterInfo.Server = "https://127.0.0.1:1"
	return &Options{Factory: f, Name: "demo"}
}

func TestSend(t *testing.T) {
	o := options(&bytes.Buffer{})
	o.Send = []string{`root\r`, `\x03`}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Join(o.texts, []byte("|")); string(got) != "root\r|\x03" {
		t.Errorf("types %q", got)
	}
	o.Send = []string{`ends in a \`}
	if err := o.complete(); cli.ExitCode(err) != cli.ExitUsage || !strings.HasPrefix(err.Error(), "--send: ") {
		t.Errorf("a wrong escape: %v", err)
	}
}

// Every end of a session has its sentence, and what helps where something does.
func TestEnding(t *testing.T) {
	stopped := console.ErrStopped.Error() + "; start it with `virtctl start demo`"
	leaving := &stream.CloseError{Code: stream.CodeGoingAway, Reason: "update"}
	taken := &stream.CloseError{Code: stream.CodePolicy, Reason: "another client"}
	for name, test := range map[string]struct {
		err       error
		reconnect bool
		want      string
	}{
		"the user left":        {nil, false, ""},
		"the reader left":      {fmt.Errorf("write: %w", syscall.EPIPE), false, ""},
		"the VM is stopped":    {console.ErrStopped, false, stopped},
		"the server goes away": {leaving, false, "; --reconnect connects again by itself"},
		"reconnecting":         {leaving, true, "update"},
		"taken over":           {taken, false, "another client"},
		"anything else":        {errors.New("no such thing"), false, "no such thing"},
	} {
		var out bytes.Buffer
		o := options(&out)
		o.Reconnect = test.reconnect
		target := cli.Target{Namespace: "default", Name: "demo"}
		err := o.ending(newScreen(o.Factory.IO, "demo", true), target, false, test.err)
		got := ""
		if err != nil {
			got = err.Error()
		}
		var closed *stream.CloseError
		if errors.As(test.err, &closed) && !strings.HasPrefix(got, "console of default/demo: ") {
			t.Errorf("%s: %q does not name the console", name, got)
		}
		if (test.want == "") != (got == "") || !strings.HasSuffix(got, test.want) || out.Len() > 0 {
			t.Errorf("%s: %q, output %q; want %q", name, got, &out, test.want)
		}
	}
}

// The dashboard is told that the guest has ended the session: the user may still be typing.
func TestEndingOfTheDashboards(t *testing.T) {
	for name, test := range map[string]struct {
		handed string
		left   bool
		code   int
	}{
		"the guest has ended it":                 {"1", false, action.EndedByItself},
		"the user has left":                      {"1", true, cli.ExitOK},
		"the guest has ended it, in another way": {"", false, cli.ExitOK},
	} {
		o := options(&bytes.Buffer{})
		o.Factory.Getenv = func(name string) string { return map[string]string{action.Handed: test.handed}[name] }
		term := newScreen(o.Factory.IO, "demo", true)
		term.interactive = true
		if err := o.ending(term, cli.Target{Name: "demo"}, test.left, nil); cli.ExitCode(err) != test.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the guest writes goes to standard output, the log and the recording; the log goes on where it ended.
func TestOutputs(t *testing.T) {
	var out bytes.Buffer
	o := options(&out)
	dir := t.TempDir()
	o.Log, o.Record = filepath.Join(dir, "log"), filepath.Join(dir, "cast")
	if err := os.WriteFile(o.Log, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := o.outputs(t.Context(), newScreen(o.Factory.IO, "demo", false))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("login: ")); err != nil {
		t.Fatal(err)
	}
	if err := w.done(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		o.Log: "before\nlogin: ",
		o.Record: `{"version":2,"width":80,"height":24,"timestamp":1700000000,"title":"demo"}` + "\n" +
			`[0.000000,"o","login: "]` + "\n",
	} {
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", filepath.Base(path), got, err, want)
		}
	}
	if out.String() != "login: " {
		t.Errorf("standard output %q", &out)
	}
}

func TestOutputsThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	for what, change := range map[string]func(*Options){
		"--log: " + dir + " ":    func(o *Options) { o.Log = dir },
		"--record: " + dir + " ": func(o *Options) { o.Log, o.Record = filepath.Join(dir, "log"), dir },
	} {
		o := options(&bytes.Buffer{})
		change(o)
		w, err := o.outputs(context.Background(), newScreen(o.Factory.IO, "demo", false))
		if w != nil || err == nil || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("%s%v, %v", what, w, err)
		}
	}
}
