package launcher

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// ran reports whether a command was run.
func (a *fakeAgent) ran(command string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.commands, command)
}

func TestProbe(t *testing.T) {
	l := begin(t)
	agent := &fakeAgent{}
	exitCode, alive := "0", true
	l.memory.agent = func(command string) (string, error) {
		if strings.Contains(command, "guest-ping") {
			if !alive {
				return "", hypervisor.ErrNoAgent
			}
			return `{"return":{}}`, nil
		}
		reply, err := agent.reply(command)
		return strings.Replace(reply, `"exitcode":3`, `"exitcode":`+exitCode, 1), err
	}
	check := func(r probeRequest, passed bool, message string) {
		t.Helper()
		if r.Timeout == 0 {
			r.Timeout = 10 * time.Second
		}
		got, err := askLauncher(t.Context(), filepath.Join(l.options.RunDir, names.SocketProbe), r)
		if err != nil || got.Passed != passed || !strings.Contains(got.Message, message) {
			t.Errorf("%+v: %+v, %v; want %t %q", r, got, err, passed, message)
		}
	}
	ping, command := probeRequest{}, probeRequest{Command: []string{"talk"}}
	check(ping, false, "no guest yet")
	check(probeRequest{Arrived: true, Timeout: 10 * time.Millisecond}, false, "no guest yet")
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	check(probeRequest{Arrived: true}, true, "")
	check(ping, true, "")
	check(command, true, "")
	check(probeRequest{Command: []string{"nonsense"}}, false, "No such file")
	// The guest hears of it before its time is over.
	for timeout := 100 * time.Millisecond; !agent.ran("hang"); timeout *= 2 {
		got, err := askLauncher(t.Context(), filepath.Join(l.options.RunDir, names.SocketProbe),
			probeRequest{Command: []string{"hang"}, Timeout: timeout})
		late := !agent.ran("hang") || strings.Contains(got.Message, "not ended in time")
		if err != nil || got.Passed || !late {
			t.Errorf("after %s: %+v, %v", timeout, got, err)
		}
	}
	if agent.mu.Lock(); !strings.Contains(strings.Join(agent.commands, "\n"), "tree()") {
		t.Errorf("the command goes on: %q", agent.commands)
	}
	agent.mu.Unlock()

	// A frozen guest cannot run anything, and is as it was.
	exitCode = "4"
	if _, err := l.client.Freeze(t.Context(), &pb.FreezeRequest{UnfreezeAfter: durationpb.New(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	check(command, true, "")
	check(ping, true, "")
	if _, err := l.client.Unfreeze(t.Context(), &pb.UnfreezeRequest{}); err != nil {
		t.Fatal(err)
	}
	check(command, false, "ended with 4: err")
	if _, err := l.client.Freeze(t.Context(), &pb.FreezeRequest{UnfreezeAfter: durationpb.New(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	check(command, false, "failed before")

	alive = false
	check(ping, false, "is qemu-guest-agent running")
	l.end(t)
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		" one\n\ttwo\x1b[2J\xff ": "one two [2J",
		"many many words":         "many many ",
	} {
		if got := printable(text, 10+len(want)%2); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
