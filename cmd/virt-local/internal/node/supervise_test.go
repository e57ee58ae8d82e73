package node

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain lets the supervisor start this test binary as the programs of a node: it runs /proc/self/exe.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "program-ends":
			fmt.Println("ran")
			os.Exit(3)
		case "program-stays":
			term := make(chan os.Signal, 1)
			signal.Notify(term, syscall.SIGTERM)
			fmt.Println("stays")
			<-term
			fmt.Println("ends well")
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func logged(t *testing.T, dir, program string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, program+".log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func TestSupervisorRestartsAndStops(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(dir)
	s.wait = time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	s.run(ctx, "ends", "program-ends")
	s.run(ctx, "stays", "program-stays")
	// An orphan, as PID 1 gets them: a child that nobody registered.
	attr := &os.ProcAttr{}
	orphan, err := os.StartProcess("/bin/true", []string{"true"}, attr)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for strings.Count(logged(t, dir, "ends"), "ran") < 3 || !strings.Contains(logged(t, dir, "stays"), "stays") {
		if time.Now().After(deadline) {
			t.Fatalf("not restarted: %q, %q", logged(t, dir, "ends"), logged(t, dir, "stays"))
		}
		time.Sleep(time.Millisecond)
	}
	for unix.Kill(orphan.Pid, 0) == nil {
		if time.Now().After(deadline) {
			t.Fatal("the orphan is not reaped")
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	s.close()
	if got := logged(t, dir, "stays"); got != "stays\nends well\n" {
		t.Errorf("the program that stays said %q", got)
	}
}
