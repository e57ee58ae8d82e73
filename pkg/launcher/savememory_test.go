package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// memoryVolume makes the directory of a claim that virt-handler has mounted for the guest's memory.
func (l *life) memoryVolume(name string) (file string) {
	l.t.Helper()
	directory := filepath.Join(l.options.Disks.Hotplug, name)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		l.t.Fatal(err)
	}
	return filepath.Join(directory, savedmemory.File)
}

func (l *life) saveMemory(volume string, after time.Duration) (*pb.FreezeResponse, error) {
	return l.client.Freeze(l.t.Context(), &pb.FreezeRequest{
		UnfreezeAfter: durationpb.New(after), PauseWithoutAgent: true, MemoryVolume: volume,
	})
}

// awaitSaved asks until the save is over.
func (l *life) awaitSaved(volume string) *pb.SavedMemory {
	l.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		answer, err := l.saveMemory(volume, time.Hour)
		if err != nil {
			l.t.Fatal(err)
		}
		if answer.Quiesced != pb.Quiesced_QUIESCED_PAUSED {
			l.t.Fatal(answer)
		}
		if answer.Memory.Ended != nil {
			return answer.Memory
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the save does not end")
		}
	}
}

// A guest is paused for its memory although its agent answers: what the agent freezes would be frozen in the memory.
func TestSaveMemory(t *testing.T) {
	l := begin(t)
	agent := &fakeAgent{}
	l.memory.agent = agent.reply
	l.mustStart()
	if _, err := l.saveMemory("m", time.Hour); status.Code(err) != codes.FailedPrecondition || l.isPaused() {
		t.Fatalf("without the volume: %v", err)
	}
	for _, name := range []string{"../m", "a/b"} {
		if _, err := l.saveMemory(name, time.Hour); status.Code(err) != codes.InvalidArgument || l.isPaused() {
			t.Errorf("%q: %v", name, err)
		}
	}
	file := l.memoryVolume("m")
	saved := l.awaitSaved("m")
	if saved.Failure != "" || saved.Size != int64(len("memory")) || !l.isPaused() {
		t.Fatal(saved)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "memory" {
		t.Errorf("%q, %v", data, err)
	}
	if again := l.awaitSaved("m"); !again.Began.AsTime().Equal(saved.Began.AsTime()) {
		t.Errorf("saved twice in one pause: %v after %v", again, saved)
	}
	if agent.frozen {
		t.Error("the guest's file systems are frozen, too")
	}
	l.mustUnfreeze()
	if l.isPaused() {
		t.Fatal("the guest is paused")
	}
	// What is asked for after the guest has gone on is another save, which the caller can tell.
	if again := l.awaitSaved("m"); !again.Began.AsTime().After(saved.Began.AsTime()) {
		t.Errorf("%v is of the same moment as %v", again, saved)
	}
	l.mustUnfreeze()
	if _, err := l.client.DetachVolume(t.Context(), &pb.DetachVolumeRequest{Volume: "m"}); err != nil {
		t.Error(err)
	}
	l.end(t)
}

func TestSaveMemoryOfAPausedGuest(t *testing.T) {
	l := withoutAgent(t)
	l.memoryVolume("m")
	if _, err := l.client.Pause(t.Context(), &pb.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.saveMemory("m", time.Hour); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "unpause it first") {
		t.Errorf("%v", err)
	}
	l.end(t)
}

func TestSaveMemoryFails(t *testing.T) {
	l := withoutAgent(t)
	file := l.memoryVolume("m")
	if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.memory.mu.Lock()
	l.memory.onSave = func() error { return errors.New("no space left on device") }
	l.memory.mu.Unlock()
	if saved := l.awaitSaved("m"); !strings.Contains(saved.Failure, "no space left") || saved.Size != 0 {
		t.Error(saved)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half of the memory stays: %v", err)
	}
	l.mustUnfreeze()
	if l.isPaused() {
		t.Error("the guest is paused")
	}
	l.end(t)
}

// A guest whose time is over goes on, and the save of its memory ends before.
func TestSaveMemoryEndsInTime(t *testing.T) {
	for name, unfreeze := range map[string]func(*life){
		"timer": func(*life) {},
		"asked": func(l *life) { l.mustUnfreeze() },
	} {
		t.Run(name, func(t *testing.T) {
			l := withoutAgent(t)
			file := l.memoryVolume("m")
			begun, aborted := make(chan struct{}), make(chan struct{})
			l.memory.mu.Lock()
			l.memory.onSave = func() error { close(begun); <-aborted; return errors.New("aborted") }
			l.memory.onAbort = func() error {
				select {
				case <-aborted:
				default:
					close(aborted)
				}
				return nil
			}
			l.memory.mu.Unlock()
			after := time.Hour
			if name == "timer" {
				after = 50 * time.Millisecond
			}
			answer, err := l.saveMemory("m", after)
			if err != nil || answer.Memory.Ended != nil {
				t.Fatalf("%v, %v", answer, err)
			}
			if name == "asked" {
				<-begun
				if _, err := l.client.DetachVolume(t.Context(),
					&pb.DetachVolumeRequest{Volume: "m"}); status.Code(err) != codes.FailedPrecondition {
					t.Errorf("the volume is taken away: %v", err)
				}
			}
			l.await("the save has begun, or its time was over before", func() bool {
				select {
				case <-begun:
					return true
				default:
					return !l.isPaused()
				}
			})
			unfreeze(l)
			l.awaitRunning()
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v", err)
			}
			l.end(t)
		})
	}
}
