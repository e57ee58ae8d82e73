package script

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A user at a terminal: virtctl console on a pseudo-terminal, whose modes must be as they were however it ends.

// pty is a pseudo-terminal with a program on it.
type pty struct {
	master, slave *os.File
	cmd           *exec.Cmd
	before        unix.Termios

	mu     sync.Mutex
	screen bytes.Buffer
	more   chan struct{}
}

func onTerminal(t *testing.T, c *cluster, args ...string) *pty {
	t.Helper()
	dir := t.TempDir()
	if err := c.writeKubeconfig(dir); err != nil {
		t.Fatal(err)
	}
	p := &pty{more: make(chan struct{}, 1)}
	var err error
	if p.master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(p.master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(p.master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if p.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	p.before = p.modes(t)
	p.cmd = exec.Command("virtctl", args...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	// Who runs the tests by nohup(1) has virtctl ignore a hangup. A signal that this process takes is not ignored by
	// its children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		p.read()
	}()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.signal(t, syscall.SIGKILL)
			if err := p.cmd.Wait(); err == nil {
				t.Error("a killed program ended well")
			}
		}
		p.slave.Close()
		p.master.Close()
		<-reading
	})
	return p
}

func (p *pty) read() {
	buf := make([]byte, 4096)
	for {
		n, err := p.master.Read(buf)
		p.mu.Lock()
		p.screen.Write(buf[:n])
		p.mu.Unlock()
		select {
		case p.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (p *pty) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.String()
}

func (p *pty) modes(t *testing.T) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// expect waits until the screen has shown text.
func (p *pty) expect(t *testing.T, text string) {
	t.Helper()
	p.expectTimes(t, 1, text)
}

func (p *pty) expectTimes(t *testing.T, times int, text string) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for strings.Count(p.shown(), text) < times {
		select {
		case <-p.more:
		case <-deadline:
			t.Fatalf("the screen does not show %q:\n%s", text, p.shown())
		}
	}
}

func (p *pty) typeKeys(t *testing.T, keys string) {
	t.Helper()
	if _, err := io.WriteString(p.master, keys); err != nil {
		t.Fatal(err)
	}
}

func (p *pty) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// ends waits for the program and checks its code and the terminal's modes.
func (p *pty) ends(t *testing.T, code int) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatalf("it does not end:\n%s", p.shown())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d:\n%s", got, code, p.shown())
	}
	if p.modes(t) != p.before {
		t.Errorf("the terminal is not as it was:\n%s", p.shown())
	}
}

const connected = "Successfully connected to demo console. Press Ctrl+] or Ctrl+5 to exit console."

func terminalCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster()
	t.Cleanup(c.close)
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	const objects = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: demo, uid: vm}
spec: {runStrategy: Always, template: {spec: {domain: {devices: {}}}}}
status: {printableStatus: Running}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: demo, uid: vmi}
spec: {domain: {devices: {}}}
status: {phase: Running}
`
	if err := os.WriteFile(path, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.load(path); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTerminal(t *testing.T) {
	for _, test := range []struct {
		name string
		// end ends a session that is connected and raw.
		end  func(t *testing.T, p *pty, c *cluster)
		code int
	}{
		{"escape", func(t *testing.T, p *pty, _ *cluster) { p.typeKeys(t, "\x1d") }, 0},
		{"guest ends", func(t *testing.T, p *pty, c *cluster) { c.guestOf("default/demo").powerOff() }, 0},
		{"guest breaks", func(t *testing.T, p *pty, _ *cluster) { p.typeKeys(t, "crash\r") }, 1},
		{"SIGTERM", func(t *testing.T, p *pty, _ *cluster) { p.signal(t, syscall.SIGTERM) }, 130},
		{"SIGHUP", func(t *testing.T, p *pty, _ *cluster) { p.signal(t, syscall.SIGHUP) }, 130},
		{"SIGQUIT", func(t *testing.T, p *pty, _ *cluster) { p.signal(t, syscall.SIGQUIT) }, 130},
		{"virt-api goes away", func(t *testing.T, p *pty, c *cluster) { c.cut() }, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := terminalCluster(t)
			p := onTerminal(t, c, "console", "demo")
			p.expect(t, connected)
			// Ctrl-C and Ctrl-\ are the guest's.
			p.typeKeys(t, "a\x03\x1cb\r")
			p.expect(t, "you said a\x03\x1cb")
			if p.modes(t) == p.before {
				t.Error("the terminal is not raw while connected")
			}
			test.end(t, p, c)
			p.ends(t, test.code)
		})
	}
}

func TestTerminalTakeOver(t *testing.T) {
	c := terminalCluster(t)
	first := onTerminal(t, c, "console", "demo", "--reconnect")
	first.expect(t, connected)
	first.typeKeys(t, "x\r")
	first.expect(t, "you said x")
	second := onTerminal(t, c, "console", "demo")
	second.expect(t, connected)
	first.expect(t, "another client has taken over this console")
	first.ends(t, 1)
	second.typeKeys(t, "\x1d")
	second.ends(t, 0)
}

func TestTerminalReconnects(t *testing.T) {
	c := terminalCluster(t)
	p := onTerminal(t, c, "console", "demo", "--reconnect")
	p.expect(t, connected)
	p.typeKeys(t, "x\r")
	p.expect(t, "you said x") // so that the guest, too, knows of the connection that is to end
	c.stopGuest("default/demo")
	p.expect(t, "The console of demo has ended. Connecting again; press Ctrl+] to leave.")
	p.expectTimes(t, 2, connected)
	p.typeKeys(t, "again\r")
	p.expect(t, "you said again")
	// With the instance gone, keys do nothing but leave.
	c.remove(resourceVMIs, "default/demo")
	c.stopGuest("default/demo")
	p.expect(t, "Waiting for the console of demo.")
	p.typeKeys(t, "zzz\x1d")
	p.ends(t, 0)
}

// Before the guest runs the terminal is as usual, and Ctrl-C ends the program.
func TestTerminalInterruptedWhileWaiting(t *testing.T) {
	c := terminalCluster(t)
	c.remove(resourceVMIs, "default/demo")
	p := onTerminal(t, c, "console", "demo")
	p.expect(t, "Waiting for the console of demo. Press Ctrl-C to leave.")
	p.typeKeys(t, "\x03")
	p.ends(t, 130)
}

// On a terminal evacuate says at the end what is true of the node.
func TestEvacuateOnATerminal(t *testing.T) {
	c := newCluster()
	defer c.close()
	p := onTerminal(t, c, "evacuate", "node1")
	p.expect(t, "No virtual machine runs on node node1.")
	p.expect(t, "node node1 is cordoned\r\n")
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}
