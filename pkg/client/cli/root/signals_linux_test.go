package root

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

const signalChild = "VIRTCTL_TEST_PUTS_AWAY"

// TestSignalChild is the process that TestSignals sends signals to: it puts things away until its input ends.
func TestSignalChild(t *testing.T) {
	wish, err := time.ParseDuration(os.Getenv(signalChild))
	if err != nil {
		t.Skip("for TestSignals")
	}
	oneWish = wish
	ctx, stop := untilSignal()
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("asked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(7)
}

// TestSignals: the first signal asks for an end, also when it comes twice at once, as from timeout(1); a later one ends
// the process whatever it does.
func TestSignals(t *testing.T) {
	t.Parallel()
	child := func(s syscall.Signal, wish time.Duration, signals func(send, end func(), ended <-chan struct{})) error {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSignalChild$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", signalChild, wish))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		until := func(word string) {
			for lines.Scan() {
				if lines.Text() == word {
					return
				}
			}
			t.Errorf("it has not said %q", word)
		}
		send := func() {
			if err := cmd.Process.Signal(s); err != nil {
				t.Error(err)
			}
		}
		until("ready")
		send()
		until("asked")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for lines.Scan() { // to its end
			}
		}()
		signals(send, func() { _ = in.Close() }, ended)
		<-ended
		return cmd.Wait()
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) {
			continue // as with nohup, which virtctl respects
		}
		err := child(s, time.Hour, func(send, end func(), _ <-chan struct{}) { send(); end() })
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("%s twice at once: %v", s, err)
		}
	}
	err := child(syscall.SIGTERM, time.Millisecond, func(send, _ func(), ended <-chan struct{}) {
		for tick := time.NewTicker(10 * time.Millisecond); ; { // the first of them may be of the same wish
			select {
			case <-ended:
				return
			case <-tick.C:
				send()
			}
		}
	})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("a second signal later: %v", err)
	}
}
