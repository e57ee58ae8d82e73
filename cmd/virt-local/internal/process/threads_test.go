package process

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is also a process whose first thread ends before the others, as one may that is killed: it is a zombie then
// that still has what it had.
func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST") != "first thread ends" {
		os.Exit(m.Run())
	}
	there := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		os.Stdout.WriteString("ready")
		close(there)
		unix.Pause()
	}()
	<-there
	unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

func init() { runtime.LockOSThread() } // main runs on the first thread

// End waits for the threads of a process whose first thread has ended.
func TestEndOfZombieWithThreads(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "PROCESS_TEST=first thread ends")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); id.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first thread does not end")
		}
	}
	closed := make(chan error, 1)
	go func() {
		_, err := out.Read(make([]byte, 16))
		closed <- err
	}()
	select {
	case err := <-closed:
		t.Fatalf("the other threads have ended, too: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := id.End(context.Background(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	select {
	case <-closed: // what it had open is closed
	case <-time.After(time.Minute):
		t.Error("after End the process still has its files")
	}
}
