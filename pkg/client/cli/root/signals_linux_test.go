package root

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

const signalChild = "VIRTCTL_TEST_PUTS_AWAY"

// TestSignalChild is the process that TestSignals sends signals to: it takes a while to put things away.
func TestSignalChild(t *testing.T) {
	takes, err := time.ParseDuration(os.Getenv(signalChild))
	if err != nil {
		t.Skip("for TestSignals")
	}
	ctx, stop := untilSignal()
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("asked")
	time.Sleep(takes)
	os.Exit(7)
}

// TestSignals: the first signal asks for an end, also when it comes twice at once, as from timeout(1); a later one ends
// the process whatever it does.
func TestSignals(t *testing.T) {
	t.Parallel()
	child := func(takes time.Duration, signals func(send func(syscall.Signal), asked func())) error {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSignalChild$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", signalChild, takes))
		out, err := cmd.StdoutPipe()
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
		until("ready")
		signals(func(s syscall.Signal) {
			if err := cmd.Process.Signal(s); err != nil {
				t.Error(err)
			}
		}, func() { until("asked") })
		for lines.Scan() { // to its end
		}
		return cmd.Wait()
	}
	putAway := func(err error) bool {
		var exit *exec.ExitError
		return errors.As(err, &exit) && exit.ExitCode() == 7
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) {
			continue // as with nohup, which virtctl respects
		}
		err := child(200*time.Millisecond, func(send func(syscall.Signal), asked func()) {
			send(s)
			asked()
			send(s)
		})
		if !putAway(err) {
			t.Errorf("%s twice at once: %v", s, err)
		}
	}
	err := child(time.Minute, func(send func(syscall.Signal), asked func()) {
		send(syscall.SIGTERM)
		asked()
		time.Sleep(oneWish + time.Second)
		send(syscall.SIGTERM)
	})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("a second signal later: %v", err)
	}
}
