//go:build scale

package scale

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	v1 "kubevirt.io/api/core/v1"
)

var (
	soak     = flag.Duration("soak", 5*time.Minute, "how long the dashboard is watched")
	machines = flag.Int("machines", 10000, "how many machines it shows")
	rate     = flag.Int("rate", 200, "how many of them change each second")
)

// The bounds are goals of the dashboard: for memory, processor time and latency.
const (
	mostMemory  = 150 << 20 // bytes, resident, at the peak
	mostCPU     = 0.25      // of one processor
	mostLatency = 100 * time.Millisecond
	mostKey     = 16 * time.Millisecond
)

// TestDashboard has the dashboard show ten thousand machines of which two hundred change each second, in a terminal of
// its own, and measures memory, processor time, how long a change of a visible machine takes to the screen, and a key.
func TestDashboard(t *testing.T) {
	c := newCluster(t, *machines)
	screen, cmd := dashboard(t, c)
	screen.until(t, "machine-00000", time.Minute)
	t.Logf("first machines after %s", time.Since(screen.started).Round(time.Millisecond))

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second / time.Duration(*rate))
		defer tick.Stop()
		statuses := []v1.VirtualMachinePrintableStatus{"Running", "Paused", "Migrating", "Starting"}
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				c.set(1+rand.IntN(*machines-1), statuses[rand.IntN(len(statuses))])
			}
		}
	}()

	before, began := usage(t, cmd.Process.Pid), time.Now()
	var changes, keys []time.Duration
	for n := 0; time.Since(began) < *soak; n++ {
		token := word(n)
		at := time.Now()
		c.set(0, v1.VirtualMachinePrintableStatus(token))
		screen.until(t, token, 30*time.Second)
		changes = append(changes, time.Since(at))
		// The cursor goes down and up: each time a line is drawn in reverse.
		key := "\x1b[B"
		if n%2 == 1 {
			key = "\x1b[A"
		}
		keys = append(keys, screen.answer(t, key))
		time.Sleep(200 * time.Millisecond) // a user looks
	}
	after, took := usage(t, cmd.Process.Pid), time.Since(began)
	close(stop)
	<-stopped
	screen.send(t, "q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the dashboard ended with %v", err)
	}

	cpu := (after.cpu - before.cpu).Seconds() / took.Seconds()
	t.Logf("%d machines, %d changes a second, %s: memory %d MiB at the peak, %.3f of a processor", *machines, *rate,
		took.Round(time.Second), after.peak>>20, cpu)
	t.Logf("a change on the screen: median %s, p99 %s; a key: median %s, p99 %s", at(changes, 0.5), at(changes, 0.99),
		at(keys, 0.5), at(keys, 0.99))
	if after.peak > mostMemory {
		t.Errorf("memory: %d MiB, more than %d", after.peak>>20, mostMemory>>20)
	}
	if cpu > mostCPU {
		t.Errorf("processor: %.3f of one, more than %.2f", cpu, mostCPU)
	}
	if p := at(changes, 0.5); p > mostLatency {
		t.Errorf("a change takes %s to the screen, more than %s", p, mostLatency)
	}
	if p := at(keys, 0.5); p > mostKey {
		t.Errorf("a key takes %s, more than %s", p, mostKey)
	}
}

// word is another text for each n, no letter of which stands where it stood before.
func word(n int) string {
	letters := make([]byte, 8)
	for i := range letters {
		letters[i] = 'a' + byte((n+7*i)%26)
	}
	return string(letters)
}

func at(all []time.Duration, share float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(share*float64(len(sorted)-1))].Round(100 * time.Microsecond)
}

// screen is the terminal that the dashboard draws on.
type screen struct {
	started time.Time
	file    *os.File

	mu   sync.Mutex
	seen bytes.Buffer // since the last question
	more chan struct{}
}

func dashboard(t *testing.T, c *cluster) (*screen, *exec.Cmd) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: scale\n"+
		"clusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: scale, context: {cluster: c, "+
		"user: u}}]\nusers: [{name: u, user: {token: t}}]\n", c.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../../bin/virtctl", "dashboard", "--all-namespaces")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+config, "TERM=xterm-256color", "LANG=C.UTF-8")
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 160})
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{started: time.Now(), file: file, more: make(chan struct{}, 1)}
	t.Cleanup(func() { _ = cmd.Process.Kill(); file.Close() })
	go s.read()
	return s, cmd
}

func (s *screen) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.file.Read(buf)
		if err != nil {
			return // the terminal's other end is gone
		}
		s.mu.Lock()
		s.seen.Write(buf[:n])
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

func (s *screen) send(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.file.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

var sequence = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`)

// until waits for text that is drawn from now on, or that was since the last question. A renderer that changes cells
// sends only what differs, so text is to be all new.
func (s *screen) until(t *testing.T, text string, limit time.Duration) {
	t.Helper()
	deadline := time.After(limit)
	for {
		s.mu.Lock()
		found := strings.Contains(sequence.ReplaceAllString(s.seen.String(), ""), text)
		if found {
			s.seen.Reset()
		}
		tail := s.seen.String()
		s.mu.Unlock()
		if found {
			return
		}
		select {
		case <-s.more:
		case <-deadline:
			t.Fatalf("%q is not on the screen after %s: %q", text, limit, tail[max(0, len(tail)-2000):])
		}
	}
}

// reverse is how the line of the cursor begins.
const reverse = "\x1b[7m"

// answer sends a key that moves the cursor and waits until the line of the cursor is drawn.
func (s *screen) answer(t *testing.T, key string) time.Duration {
	t.Helper()
	s.mu.Lock()
	s.seen.Reset()
	s.mu.Unlock()
	began := time.Now()
	s.send(t, key)
	for deadline := time.After(30 * time.Second); ; {
		s.mu.Lock()
		found := strings.Contains(s.seen.String(), reverse)
		s.mu.Unlock()
		if found {
			return time.Since(began)
		}
		select {
		case <-s.more:
		case <-deadline:
			t.Fatal("a key does nothing")
		}
	}
}

type used struct {
	cpu  time.Duration
	peak int64
}

// usage reads what a process has used (proc(5)).
func usage(t *testing.T, pid int) used {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var peak int64
	if m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status); m != nil {
		peak, err = strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
	}
	return used{cpu: time.Duration(ticks) * 10 * time.Millisecond, peak: peak << 10}
}
