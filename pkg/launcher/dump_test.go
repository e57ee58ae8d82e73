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

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// A dump is begun once for a volume, however often virt-handler asks, and again once the volume was taken away.
func TestDumpMemory(t *testing.T) {
	l := begin(t)
	ask := func(volume string) (*pb.DumpMemoryResponse, error) {
		return l.client.DumpMemory(t.Context(), &pb.DumpMemoryRequest{Volume: volume})
	}
	if _, err := ask("dump"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the start: %v", err)
	}
	l.mustStart()
	for _, name := range []string{"", "../dump", "a/b"} {
		if _, err := ask(name); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", name, err)
		}
	}
	wait := func(volume string) *pb.DumpMemoryResponse {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
			dump, err := ask(volume)
			if err != nil {
				t.Fatal(err)
			}
			if dump.Ended != nil {
				return dump
			}
			if time.Now().After(deadline) {
				t.Fatal("the dump does not end")
			}
		}
	}
	if dump := wait("nowhere"); !strings.Contains(dump.Failure, "look for room") {
		t.Errorf("without a volume: %v", dump)
	}
	if err := os.Mkdir(filepath.Join(l.options.Disks.Hotplug, "dump"), 0o755); err != nil {
		t.Fatal(err)
	}
	const earlier, foreign = "demo-dump-20200102-030405.memory.dump", "other-dump-20200102-030405.memory.dump"
	for _, name := range []string{earlier, foreign} {
		if err := os.WriteFile(filepath.Join(l.options.Disks.Hotplug, "dump", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := wait("dump")
	for name, stays := range map[string]bool{earlier: false, foreign: true, first.File: true} {
		_, err := os.Stat(filepath.Join(l.options.Disks.Hotplug, "dump", name))
		if (err == nil) != stays {
			t.Errorf("%s after a dump: %v", name, err)
		}
	}
	if first.Failure != "" || !strings.HasPrefix(first.File, "demo-dump-") ||
		!strings.HasSuffix(first.File, ".memory.dump") {
		t.Fatal(first)
	}
	if data, err := os.ReadFile(filepath.Join(l.options.Disks.Hotplug, "dump", first.File)); err != nil ||
		string(data) != "ELF" {
		t.Errorf("%q, %v", data, err)
	}
	if again := wait("dump"); again.File != first.File || !again.Ended.AsTime().Equal(first.Ended.AsTime()) {
		t.Errorf("%v after %v", again, first)
	}
	if _, err := l.client.DetachVolume(t.Context(), &pb.DetachVolumeRequest{Volume: "dump"}); err != nil {
		t.Fatal(err)
	}
	if again := wait("dump"); !again.Started.AsTime().After(first.Started.AsTime()) {
		t.Errorf("%v after %v was taken away", again, first)
	}
	l.sigterm()
	if _, err := l.wait(); err != nil {
		t.Error(err)
	}
}

// The last dump counts as room for the next by what it takes on the claim, not by its length: dumps may have holes.
func TestRoomOfDumps(t *testing.T) {
	sparse, full := filepath.Join(t.TempDir(), "sparse"), filepath.Join(t.TempDir(), "full")
	if err := errors.Join(os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 1<<30),
		os.WriteFile(full, make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	if taken, err := allocated([]string{sparse, full}); err != nil || taken < 1<<20 || taken > 2<<20 {
		t.Errorf("%d bytes, %v", taken, err)
	}
	if _, err := allocated([]string{filepath.Join(t.TempDir(), "gone")}); err == nil {
		t.Error("a file that is gone takes nothing")
	}
}
