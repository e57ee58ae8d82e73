package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
)

// said is what a log has: a map for each line, without the times of those that have none of their own.
func said(t *testing.T, b *bytes.Buffer) []map[string]string {
	t.Helper()
	var out []map[string]string
	for line := range strings.Lines(b.String()) {
		values := map[string]any{}
		if err := json.Unmarshal([]byte(line), &values); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		got := map[string]string{}
		for key, value := range values {
			got[key] = fmt.Sprint(value) // "lines left out", on a busy machine, has a number
		}
		if got["component"] != "virt-launcher" {
			t.Errorf("%q is of no component", line)
		}
		delete(got, "component")
		if !strings.HasPrefix(got["timestamp"], "2018-") {
			delete(got, "timestamp")
		}
		out = append(out, got)
	}
	return out
}

// What libvirtd writes are lines of the launcher's log, over its restarts, whatever else holds its pipe open.
func TestDaemonLog(t *testing.T) {
	var b bytes.Buffer
	to := newLines(jsonlog.New(&b, "virt-launcher", slog.LevelInfo).Handler())
	d, err := newDaemonLog(to)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx) })
	children := newChildren()
	reaping := make(chan struct{})
	last, stopReaping := context.WithCancel(context.Background())
	go func() { defer close(reaping); children.reap(last) }()
	program := filepath.Join(t.TempDir(), "libvirtd")
	script := `#!/bin/sh
echo '2018-10-04 09:20:33.702+0000: 38: debug : virFileClose:123 : QEMU_MONITOR_SEND_MSG: <a href="b">' >&2
sleep 1000 & # has the pipe for as long as the pod lives
`
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	daemon := newDaemon(Options{Libvirtd: program, RunDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, children)
	daemon.stderr = d.w
	for range 2 {
		if err := daemon.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x", maxLine)
	if _, err := fmt.Fprintf(d.w, "more\n\n%s%s\n2018-10-04 09:20:33.702+0000: 38: error : virX:1 : broken\nno end",
		long, long); err != nil {
		t.Fatal(err)
	}
	cancel()
	running.Wait()
	to.close()
	stopReaping()
	<-reaping
	debug := map[string]string{
		"level": "info", "msg": `QEMU_MONITOR_SEND_MSG: <a href="b">`, "pos": "virFileClose:123",
		"subcomponent": "libvirt",
		"thread":       "38", "timestamp": "2018-10-04T09:20:33.702000Z",
	}
	want := []map[string]string{
		debug, debug,
		{"level": "info", "msg": "more", "subcomponent": "libvirt"},
		{"level": "info", "msg": long + fmt.Sprintf("… (%d bytes left out)", maxLine+1), "subcomponent": "libvirt"},
		{
			"level": "error", "msg": "broken", "pos": "virX:1", "subcomponent": "libvirt", "thread": "38",
			"timestamp": "2018-10-04T09:20:33.702000Z",
		},
		{"level": "info", "msg": "no end", "subcomponent": "libvirt"},
	}
	if diff := cmp.Diff(want, said(t, &b)); diff != "" {
		t.Error(diff)
	}
}

// stuck is a log that nobody reads until it is opened.
type stuck struct {
	open chan struct{}
	bytes.Buffer
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.open
	return s.Buffer.Write(b)
}

// Nobody who writes waits for a log that is not read: what has no room is left out and counted.
func TestLinesNeverBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuck{open: make(chan struct{})}
		to := newLines(jsonlog.New(w, "virt-launcher", slog.LevelInfo).Handler())
		const more = 10000
		began := time.Now()
		for range queued + 1 + more {
			to.text("qemu", "x")
		}
		if took := time.Since(began); took > patience {
			t.Errorf("%d lines took %v", queued+1+more, took)
		}
		close(w.open)
		to.close()
		kept, lost := 0, 0
		for line := range strings.Lines(w.String()) {
			var got struct {
				Msg   string
				Lines int
			}
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err)
			}
			if got.Msg == "x" {
				kept++
			}
			lost += got.Lines
		}
		if kept < queued || lost == 0 || kept+lost != queued+1+more {
			t.Errorf("%d lines kept, %d counted as lost", kept, lost)
		}
	})
}

// QEMU's log is in the launcher's, each line once, also after the file was cut, and never more than a bound at once.
func TestPassQEMULog(t *testing.T) {
	var b bytes.Buffer
	to := newLines(jsonlog.New(&b, "virt-launcher", slog.LevelInfo).Handler())
	path := filepath.Join(t.TempDir(), "qemu.log")
	l := &bounded{path: path, above: 200, rest: 20, said: &passed{to: to, path: path, subcomponent: "qemu"}}
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	tend := func() {
		t.Helper()
		if err := l.tend(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	tend() // there is none yet
	write("one\ntwo has no end")
	tend()
	write(" yet\n" + strings.Repeat("y", 200) + "\n")
	tend() // and is cut
	write("after the cut\n")
	tend()
	write(strings.Repeat("z\n", maxPassed))
	tend()
	to.close()
	got := said(t, &b)
	text := func(s string) map[string]string {
		return map[string]string{"level": "info", "msg": s, "subcomponent": "qemu"}
	}
	want := []map[string]string{
		text("one"), text("two has no end yet"), text(strings.Repeat("y", 200)), text("after the cut"),
		text(fmt.Sprintf("(%d bytes left out)", maxPassed)),
	}
	if len(got) < len(want) {
		t.Fatal(got)
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Error(diff)
	}
	if rest := len(got) - len(want); rest == 0 || rest > maxPassed/2 {
		t.Errorf("%d lines after them", rest)
	}
}

func TestParseLibvirt(t *testing.T) {
	for _, line := range []string{
		"", "<domain>", "libvirt version: 11.3.0", "2018-10-04 09:20:33.702+0000: 38: info : libvirt version: 11",
		"2018-10-04 09:20:33.702+0000: ", "2018-19-04 09:20:33.702+0000: 38: info : f:1 : x",
	} {
		if got, ok := parseLibvirt(line); ok {
			t.Errorf("%q is %+v", line, got)
		}
	}
}
