package launcher

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

// awaitNoFreeze waits until the launcher says that there is nothing to undo.
func (l *life) awaitNoFreeze() {
	l.t.Helper()
	l.await("nothing is frozen", func() bool { return l.state().GetFreeze() == nil })
}

// unfreeze undoes a freeze as virt-handler does.
func (l *life) unfreeze(freeze *pb.Freeze) {
	l.t.Helper()
	if _, err := l.client.Unfreeze(l.t.Context(), &pb.UnfreezeRequest{Due: freeze.GetDue()}); err != nil {
		l.t.Fatal(err)
	}
}

// A launcher says which freeze it will undo, and when, until it is undone.
func TestFreezeIsReported(t *testing.T) {
	agent := &fakeAgent{}
	byAgent := func(t *testing.T) *life {
		t.Helper()
		l := begin(t)
		l.memory.agent = agent.reply
		l.mustStart()
		l.connectAgent(true)
		return l
	}
	plain := func(l *life, after time.Duration) {
		l.t.Helper()
		if _, err := l.client.Freeze(l.t.Context(),
			&pb.FreezeRequest{UnfreezeAfter: durationpb.New(after)}); err != nil {
			l.t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		begin  func(*testing.T) *life
		freeze func(l *life, after time.Duration)
	}{
		"by the agent": {byAgent, plain},
		"for a snapshot": {byAgent, func(l *life, after time.Duration) {
			l.mustQuiesce(after, pb.Quiesced_QUIESCED_AGENT)
		}},
		"paused": {withoutAgent, func(l *life, after time.Duration) {
			l.mustQuiesce(after, pb.Quiesced_QUIESCED_PAUSED)
		}},
		"with memory": {withoutAgent, func(l *life, after time.Duration) {
			l.memoryVolume("m")
			l.memory.mu.Lock()
			l.memory.onAbort = func() error { return nil }
			l.memory.mu.Unlock()
			if _, err := l.saveMemory("m", after); err != nil {
				l.t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := tc.begin(t)
			if freeze := l.state().GetFreeze(); freeze != nil {
				t.Fatal(freeze)
			}
			before := boottime.Now()
			tc.freeze(l, time.Hour)
			freeze, after := l.state().GetFreeze(), boottime.Now()
			began := freeze.GetBegan().AsDuration()
			if began < before || began > after || freeze.GetDue().AsDuration() != began+time.Hour {
				t.Errorf("%v, which was asked for between %v and %v", freeze, before, after)
			}
			l.mustUnfreeze()
			l.awaitNoFreeze()
			tc.freeze(l, 50*time.Millisecond)
			l.awaitNoFreeze()
			if l.isPaused() || agent.frozen {
				t.Error("it is frozen")
			}
			l.end(t)
		})
	}
}

// A thaw that is for an earlier freeze leaves the one of now alone, and that for the one of now does not resume a guest
// that its user has paused.
func TestThawOfAFreeze(t *testing.T) {
	l := withoutAgent(t)
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
	first := l.state().GetFreeze()
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
	second := l.state().GetFreeze()
	l.unfreeze(first)
	if !l.isPaused() || l.state().GetFreeze().GetDue().AsDuration() != second.GetDue().AsDuration() {
		t.Fatalf("a renewed freeze is undone; there is %v", l.state().GetFreeze())
	}
	l.unfreeze(second)
	if l.isPaused() {
		t.Error("the guest is paused")
	}
	l.awaitNoFreeze()
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
	l.unfreeze(second)
	if !l.isPaused() {
		t.Error("the next freeze is undone")
	}
	if _, err := l.client.Pause(t.Context(), &pb.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	l.unfreeze(l.state().GetFreeze())
	if !l.isPaused() {
		t.Error("a guest that its user has paused goes on")
	}
	l.end(t)
}

// The time of a freeze that may pause the guest counts from the request on, however long the agent takes.
func TestFreezeOfASlowAgent(t *testing.T) {
	l := begin(t)
	agent, asked, answer := &fakeAgent{}, make(chan struct{}), make(chan struct{})
	l.memory.agent = func(command string) (string, error) {
		if strings.Contains(command, "fsfreeze-freeze") {
			close(asked)
			<-answer
		}
		return agent.reply(command)
	}
	l.mustStart()
	l.connectAgent(true)
	ended := make(chan error, 1)
	go func() {
		_, err := l.quiesce(100 * time.Millisecond)
		ended <- err
	}()
	<-asked
	late := boottime.Now() + 200*time.Millisecond
	l.await("its time is over", func() bool { return boottime.Now() > late })
	close(answer)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	l.awaitNoFreeze()
	if agent.frozen {
		t.Error("the guest is frozen")
	}
	l.end(t)
}

// Without an agent there is nothing to undo after a freeze that has failed.
func TestNoThawWithoutAnAgent(t *testing.T) {
	l := withoutAgent(t)
	if _, err := l.client.Freeze(t.Context(),
		&pb.FreezeRequest{UnfreezeAfter: durationpb.New(50 * time.Millisecond)}); err == nil {
		t.Fatal("it is frozen by nobody")
	}
	l.awaitNoFreeze()
	l.end(t)
}

// A guest whose agent went after it had frozen it is not given up.
func TestThawWaitsForTheAgent(t *testing.T) {
	l := begin(t)
	agent := &fakeAgent{}
	var gone atomic.Bool
	l.memory.agent = func(command string) (string, error) {
		if gone.Load() {
			return "", fmt.Errorf("%w: QEMU guest agent is not connected", hypervisor.ErrNoAgent)
		}
		reply, err := agent.reply(command)
		if strings.Contains(command, "fsfreeze-freeze") {
			gone.Store(true)
		}
		return reply, err
	}
	l.mustStart()
	l.connectAgent(true)
	l.mustQuiesce(300*time.Millisecond, pb.Quiesced_QUIESCED_AGENT)
	freeze := l.state().GetFreeze()
	l.connectAgent(false)
	late := freeze.GetDue().AsDuration() + 100*time.Millisecond
	l.await("its time is over", func() bool { return boottime.Now() > late })
	if l.state().GetFreeze() == nil {
		t.Error("a guest that is frozen is given up")
	}
	if _, err := l.client.Unfreeze(t.Context(), &pb.UnfreezeRequest{Due: freeze.GetDue()}); err == nil {
		t.Error("it is thawed without an agent")
	}
	gone.Store(false)
	l.unfreeze(freeze)
	if l.awaitNoFreeze(); agent.frozen {
		t.Error("it is frozen")
	}
	l.end(t)
}
