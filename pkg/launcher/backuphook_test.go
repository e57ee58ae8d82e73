package launcher

import (
	"bytes"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// freezer runs virt-freezer.
func (l *life) freezer(args ...string) (said string, err error) {
	var out bytes.Buffer
	cmd := NewFreezerCommand()
	cmd.SetArgs(append(args, "--name", "demo", "--namespace", "default", "--run-dir", l.options.RunDir))
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(l.t.Context())
	return out.String(), err
}

func (l *life) await(what string, is func() bool) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: not in time", what)
		}
	}
}

// connectAgent has the guest's agent be there or not.
func (l *life) connectAgent(is bool) {
	l.t.Helper()
	l.memory.change(func(d *hypervisor.Domain) { d.AgentConnected = is })
	l.await("the agent's state is known", func() bool { return l.state().GetAgentConnected() == is })
}

func TestFreezer(t *testing.T) {
	l := begin(t)
	agent := &fakeAgent{}
	var refuse, gone atomic.Bool
	l.memory.agent = func(command string) (string, error) {
		if gone.Load() {
			return "", hypervisor.ErrNoAgent
		}
		if refuse.Load() && strings.Contains(command, "fsfreeze") {
			return "", &hypervisor.AgentError{Message: "a file system is\nbusy"}
		}
		return agent.reply(command)
	}
	isFrozen := func() bool {
		agent.mu.Lock()
		defer agent.mu.Unlock()
		return agent.frozen
	}
	check := func(want bool, says string, args ...string) {
		t.Helper()
		said, err := l.freezer(args...)
		if err != nil || !strings.Contains(said, says) || isFrozen() != want {
			t.Errorf("%v: %q, %v, frozen: %t; want %q, %t", args, said, err, isFrozen(), says, want)
		}
	}
	check(false, "no guest runs", "--freeze")
	l.mustStart()
	gone.Store(true)
	check(false, "no agent", "--freeze")
	check(false, "no agent", "--unfreeze")
	gone.Store(false)
	l.connectAgent(true)
	check(true, "are frozen", "--freeze")
	check(true, "are frozen", "--freeze") // another backup
	check(false, "are thawed", "--unfreeze")
	check(false, "are thawed", "--unfreeze")

	// Nobody thaws it; or the agent has gone meanwhile, and is asked all the same.
	check(true, "are frozen", "--freeze", "--unfreezeTimeoutSeconds=1")
	l.await("the guest is thawed by itself", func() bool { return !isFrozen() })
	check(true, "are frozen", "--freeze")
	l.connectAgent(false)
	check(false, "are thawed", "--unfreeze")
	l.connectAgent(true)

	refuse.Store(true)
	if said, err := l.freezer("--freeze"); err == nil || !strings.Contains(err.Error(), "a file system is busy") {
		t.Errorf("a refused freeze: %q, %v", said, err)
	}
	refuse.Store(false)
	l.memory.change(func(d *hypervisor.Domain) { d.Run = hypervisor.Paused })
	l.await("it is paused", func() bool {
		said, err := l.freezer("--freeze")
		return err == nil && strings.Contains(said, "is paused")
	})
	for _, args := range [][]string{{}, {"--freeze", "--unfreeze"}} {
		if said, err := l.freezer(args...); err == nil {
			t.Errorf("%v: %q", args, said)
		}
	}
	l.end(t)
	if said, err := l.freezer("--freeze"); err == nil {
		t.Errorf("without a launcher: %q, %v", said, err)
	}
}
