package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/process"
)

// supervisor starts programs and starts them again when they end, and, being PID 1, reaps the orphans that
// the kernel gives it (shims, and what containers leave). One loop does all the waiting, because wait4 for any
// child would steal a program's end from exec.Cmd.Wait.
type supervisor struct {
	logDir string
	// wait is the pause before a program that ended is started again; it doubles up to maxWait while the program
	// keeps ending sooner than steady after its start.
	wait, maxWait, steady time.Duration

	mu      sync.Mutex
	running map[int]chan unix.WaitStatus
	signals chan os.Signal
	// programs and reaper are the goroutines.
	programs, reaper sync.WaitGroup
}

func newSupervisor(logDir string) *supervisor {
	s := &supervisor{
		logDir: logDir, wait: 100 * time.Millisecond, maxWait: 5 * time.Second, steady: 10 * time.Second,
		running: map[int]chan unix.WaitStatus{}, signals: make(chan os.Signal, 8),
	}
	signal.Notify(s.signals, syscall.SIGCHLD)
	s.reaper.Go(s.reapLoop)
	return s
}

// close waits for the programs, whose context must be done, and ends the reaping.
func (s *supervisor) close() {
	s.programs.Wait()
	signal.Stop(s.signals)
	close(s.signals)
	s.reaper.Wait()
}

func (s *supervisor) reapLoop() {
	for range s.signals {
		for s.reapOne() {
			continue
		}
	}
}

// reapOne takes one ended child, if there is one.
func (s *supervisor) reapOne() bool {
	s.mu.Lock() // no program may end between its start and its registration
	defer s.mu.Unlock()
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	if pid <= 0 {
		return err == unix.EINTR
	}
	if ended, ours := s.running[pid]; ours {
		ended <- status
		delete(s.running, pid)
	}
	return true
}

// run keeps a subcommand of this program running, with its output in <name>.log, until ctx is done.
func (s *supervisor) run(ctx context.Context, name string, args ...string) {
	s.runProgram(ctx, name, "/proc/self/exe", args...)
}

// runProgram does so with another program.
func (s *supervisor) runProgram(ctx context.Context, name, path string, args ...string) {
	s.programs.Go(func() {
		wait := s.wait
		for ctx.Err() == nil {
			begin := time.Now()
			what := s.runOnce(ctx, name, path, args)
			if ctx.Err() != nil {
				return
			}
			if time.Since(begin) > s.steady {
				wait = s.wait
			}
			fmt.Fprintf(os.Stderr, "%s %s %s; starting it again in %v\n", time.Now().UTC().
				Format(time.RFC3339), name, what, wait)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, s.maxWait)
		}
	})
}

// runOnce runs the program to its end and says how that was.
func (s *supervisor) runOnce(ctx context.Context, name, path string, args []string) string {
	log, err := process.OpenLog(filepath.Join(s.logDir, name+".log"))
	if err != nil {
		return err.Error()
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Args[0] = "virt-local"
	cmd.Stdout, cmd.Stderr = log, log
	// Away from PID 1's process group, so that nothing that hits one group hits the others.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ended := make(chan unix.WaitStatus, 1)
	s.mu.Lock()
	err = cmd.Start()
	if err == nil {
		s.running[cmd.Process.Pid] = ended
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Sprintf("did not start: %v", err)
	}
	defer cmd.Process.Release() //nolint:errcheck // only frees memory
	select {
	case status := <-ended:
		return describe(status)
	case <-ctx.Done():
	}
	if err := unix.Kill(cmd.Process.Pid, unix.SIGTERM); err != nil {
		return err.Error()
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
	}
	return "was stopped"
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return fmt.Sprintf("was ended by signal %v", status.Signal())
	}
	return fmt.Sprintf("ended with exit code %d", status.ExitStatus())
}
