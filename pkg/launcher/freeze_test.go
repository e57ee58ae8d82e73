package launcher

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// withoutAgent begins the life of a guest that runs and has no agent.
func withoutAgent(t *testing.T) *life {
	t.Helper()
	l := begin(t)
	l.memory.agent = func(string) (string, error) {
		return "", fmt.Errorf("%w: QEMU guest agent is not connected", hypervisor.ErrNoAgent)
	}
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *life) quiesce(after time.Duration) (pb.Quiesced, error) {
	answer, err := l.client.Freeze(l.t.Context(),
		&pb.FreezeRequest{UnfreezeAfter: durationpb.New(after), PauseWithoutAgent: true})
	return answer.GetQuiesced(), err
}

func (l *life) mustQuiesce(after time.Duration, want pb.Quiesced) {
	l.t.Helper()
	if got, err := l.quiesce(after); err != nil || got != want {
		l.t.Fatalf("%s, %v; want %s", got, err, want)
	}
}

func (l *life) isPaused() bool {
	l.memory.mu.Lock()
	defer l.memory.mu.Unlock()
	return l.memory.domain.Run == hypervisor.Paused
}

// state is what the launcher says of its guest now.
func (l *life) state() *pb.GuestState {
	l.t.Helper()
	return <-l.watch()
}

func (l *life) mustUnfreeze() {
	l.t.Helper()
	if _, err := l.client.Unfreeze(l.t.Context(), &pb.UnfreezeRequest{}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) awaitRunning() {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); l.isPaused(); runtime.Gosched() {
		if time.Now().After(deadline) {
			l.t.Fatal("the guest is still paused")
		}
	}
}

func TestFreezePausesWithoutAgent(t *testing.T) {
	l := withoutAgent(t)
	for range 2 { // it is idempotent
		l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
		if !l.isPaused() {
			t.Fatal("the guest runs")
		}
	}
	for range 2 {
		l.mustUnfreeze()
		if l.isPaused() {
			t.Fatal("the guest is paused")
		}
	}
	// Without the wish it is refused, as ever.
	if _, err := l.client.Freeze(t.Context(),
		&pb.FreezeRequest{UnfreezeAfter: durationpb.New(time.Hour)}); status.Code(err) != codes.Internal ||
		l.isPaused() {
		t.Errorf("%v", err)
	}
	if _, err := l.quiesce(0); status.Code(err) != codes.InvalidArgument || l.isPaused() {
		t.Errorf("a pause without an end: %v", err)
	}
	l.end(t)
}

func TestFreezeByAgentDoesNotPause(t *testing.T) {
	l := begin(t)
	agent := &fakeAgent{}
	l.memory.agent = agent.reply
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_AGENT)
	if l.isPaused() {
		t.Error("it is paused, too")
	}
	l.mustUnfreeze()
	l.end(t)
}

// Nobody unfreezes this guest, also when libvirtd is restarted meanwhile.
func TestPausedGuestGoesOnInTime(t *testing.T) {
	for name, meanwhile := range map[string]func(*life){
		"quiet":     func(*life) {},
		"restarted": func(l *life) { l.memory.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			l := withoutAgent(t)
			l.mustQuiesce(50*time.Millisecond, pb.Quiesced_QUIESCED_PAUSED)
			meanwhile(l)
			l.awaitRunning()
			l.end(t)
		})
	}
}

// A daemon that fails to resume the guest is asked again.
func TestPausedGuestGoesOnAfterAFailure(t *testing.T) {
	l := withoutAgent(t)
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
	fail := func(err error) { l.memory.mu.Lock(); l.memory.resumeErr = err; l.memory.mu.Unlock() }
	fail(errors.New("busy"))
	if _, err := l.client.Unfreeze(t.Context(), &pb.UnfreezeRequest{}); err == nil ||
		!strings.Contains(err.Error(), "busy") {
		t.Fatalf("%v", err)
	}
	fail(nil)
	l.mustUnfreeze()
	if l.isPaused() {
		t.Error("the guest is paused")
	}
	l.end(t)
}

func TestFreezeLeavesAPausedGuestAlone(t *testing.T) {
	l := withoutAgent(t)
	if _, err := l.client.Pause(t.Context(), &pb.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	l.mustQuiesce(time.Millisecond, pb.Quiesced_QUIESCED_ALREADY_PAUSED)
	l.mustUnfreeze()
	if !l.isPaused() {
		t.Error("the guest of a user's pause goes on")
	}
	if _, err := l.client.Unpause(t.Context(), &pb.UnpauseRequest{}); err != nil {
		t.Fatal(err)
	}
	// One that is paused by its user while a freeze holds it stays so.
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
	if _, err := l.client.Pause(t.Context(), &pb.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	l.mustUnfreeze()
	if !l.isPaused() {
		t.Error("the guest goes on although its user has paused it meanwhile")
	}
	if got := l.state().Lifecycle; got != pb.Lifecycle_LIFECYCLE_PAUSED {
		t.Errorf("its user has paused it, and its state is %s", got)
	}
	if _, err := l.client.Unpause(t.Context(), &pb.UnpauseRequest{}); err != nil {
		t.Fatal(err)
	}
	l.end(t)
}

// A guest that a freeze has paused is not paused for its users, and only a freeze lets it go.
func TestHeldGuest(t *testing.T) {
	l := withoutAgent(t)
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
	if got := l.state().Lifecycle; got != pb.Lifecycle_LIFECYCLE_RUNNING {
		t.Errorf("its state is %s", got)
	}
	if _, err := l.client.Unpause(t.Context(), &pb.UnpauseRequest{}); status.Code(err) != codes.FailedPrecondition ||
		!l.isPaused() {
		t.Errorf("unpaused: %v", err)
	}
	l.mustUnfreeze()
	if l.isPaused() {
		t.Error("it is paused still")
	}
	l.end(t)
}

func TestFreezeAndMigration(t *testing.T) {
	l := withoutAgent(t)
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
	if _, err := l.client.Migrate(t.Context(),
		&pb.MigrateRequest{Uid: "a"}); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "snapshotted") {
		t.Errorf("a guest that a freeze holds leaves: %v", err)
	}
	l.mustUnfreeze()
	l.end(t)
}

// An agent that says what cannot be is not believed: the guest is paused, so that its disks are of one instant all the
// same. Whatever it says, the guest goes on.
func TestLyingAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		// An empty freeze is refused.
		status, freeze, thaw string
		want                 pb.Quiesced
	}{
		"honest":                     {`"thawed"`, `2`, `2`, pb.Quiesced_QUIESCED_AGENT},
		"nothing frozen":             {`"thawed"`, `0`, `0`, pb.Quiesced_QUIESCED_PAUSED},
		"less than nothing frozen":   {`"thawed"`, `-1`, `0`, pb.Quiesced_QUIESCED_PAUSED},
		"a word for a number":        {`"thawed"`, `"2"`, `2`, pb.Quiesced_QUIESCED_PAUSED},
		"frozen by nobody":           {`"frozen"`, ``, `0`, pb.Quiesced_QUIESCED_PAUSED},
		"neither frozen nor thawed":  {`"warm"`, ``, `2`, pb.Quiesced_QUIESCED_PAUSED},
		"a number for a word":        {`0`, ``, `2`, pb.Quiesced_QUIESCED_PAUSED},
		"nonsense, also of the thaw": {`{`, `{`, `{`, pb.Quiesced_QUIESCED_PAUSED},
	} {
		t.Run(name, func(t *testing.T) {
			l := begin(t)
			l.memory.agent = func(command string) (string, error) {
				for part, answer := range map[string]string{
					"fsfreeze-status": tc.status, "fsfreeze-freeze": tc.freeze, "fsfreeze-thaw": tc.thaw,
				} {
					switch {
					case !strings.Contains(command, part):
					case answer == "":
						return "", &hypervisor.AgentError{Message: "disabled"}
					default:
						return `{"return":` + answer + `}`, nil
					}
				}
				return `{"return":{}}`, nil
			}
			l.mustStart()
			l.mustQuiesce(time.Hour, tc.want)
			if l.isPaused() != (tc.want == pb.Quiesced_QUIESCED_PAUSED) {
				t.Errorf("paused: %t", l.isPaused())
			}
			l.mustQuiesce(time.Hour, tc.want) // again, as a virt-controller does that was killed
			l.mustUnfreeze()
			if l.isPaused() {
				t.Error("the guest is paused")
			}
			l.end(t)
		})
	}
}

// A guest that was paused goes on before its agent, which may have frozen something all the same, is asked to thaw it.
// The next freeze comes after that.
func TestPausedGuestDoesNotWaitForItsAgent(t *testing.T) {
	l := begin(t)
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	freezes := make(chan struct{}, 2)
	l.memory.agent = func(command string) (string, error) {
		switch {
		case strings.Contains(command, "fsfreeze-freeze"):
			freezes <- struct{}{}
		case strings.Contains(command, "fsfreeze-thaw"):
			asked <- struct{}{}
			<-answer
		}
		return `{"return":0}`, nil
	}
	l.mustStart()
	l.mustQuiesce(time.Hour, pb.Quiesced_QUIESCED_PAUSED)
	<-freezes
	l.mustUnfreeze()
	if l.isPaused() {
		t.Fatal("the guest is paused")
	}
	<-asked
	again := make(chan error)
	go func() {
		_, err := l.quiesce(time.Hour)
		again <- err
	}()
	select {
	case <-freezes:
		t.Error("the agent is asked to freeze while it is asked to thaw")
	case <-again:
		t.Error("the next freeze is answered while the agent is asked to thaw")
	case <-time.After(100 * time.Millisecond):
	}
	close(answer)
	if err := <-again; err != nil || !l.isPaused() {
		t.Errorf("the next freeze: %v, paused %t", err, l.isPaused())
	}
	l.mustUnfreeze()
	l.end(t)
}
