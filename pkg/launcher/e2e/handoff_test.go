//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// moving is a guest that moves between two launchers, with the test in the part of both virt-handlers. What the source
// says to the target over the handoff's connection waits for the test.
type moving struct {
	t              *testing.T
	source, target *pod
	states         <-chan *pb.GuestState
	before         int

	// said has what the source says to the target; it is passed on when the test lets it.
	said chan string
	let  chan struct{}
	// over is closed when the test is.
	over  chan struct{}
	ended sync.Once
	// cut breaks the handoff's connections, and new ones are refused until it is nil.
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// bootTime bounds a guest's boot, on a machine that has other work.
const bootTime = 5 * time.Minute

// counting makes the guest count in its memory; a guest that boots anew has neither the number nor the word.
const counting = `echo kept > /dev/shm/word; (i=0; while :; do i=$((i+1)); echo $i > /dev/shm/n.new; mv /dev/shm/n.new /dev/shm/n; sleep 0.2; done) >/dev/null 2>&1 </dev/null &`

func newMoving(t *testing.T, change ...func(*v1.VirtualMachineInstance)) *moving {
	t.Helper()
	m := &moving{t: t, said: make(chan string, 100), let: make(chan struct{}, 10), over: make(chan struct{})}
	vmi := tinyVMI("mover")
	for _, f := range change {
		f(vmi)
	}
	m.source = newPod(t, vmi)
	m.states = m.source.watch()
	if _, err := m.source.start(); err != nil {
		t.Fatal(err)
	}
	m.source.waitConsole("login:", bootTime)
	m.source.eventually(bootTime, "the guest agent", func() bool {
		_, err := m.run(m.source, "true")
		return err == nil
	})
	if _, err := m.run(m.source, counting); err != nil {
		t.Fatal(err)
	}
	m.target = newPod(t, vmi.DeepCopy(), "--migration-target")
	m.target.putCache()
	text, err := json.Marshal(vmi)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(network.Plan{Interfaces: m.source.interfaces()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.target.client.PrepareMigrationTarget(t.Context(),
		&pb.PrepareMigrationTargetRequest{VmiJson: text, NetworkPlanJson: plan}); err != nil {
		t.Fatal(err)
	}
	m.relay(names.SocketMigrationPeer, names.SocketLibvirt)
	m.relay(names.SocketMigrationMemory, names.SocketMigrationMemory)
	m.relay(names.SocketMigrationDisks, names.SocketMigrationDisks)
	m.relay(names.SocketMigrationImages, names.SocketMigrationImagesIn)
	m.relay(names.SocketMigrationHandoff, names.SocketMigrationHandoffIn)
	m.before = m.count(m.source)
	if _, err := m.source.client.Migrate(t.Context(), &pb.MigrateRequest{Uid: "m"}); err != nil {
		t.Fatal(err)
	}
	return m
}

// relay passes connections on, as the two virt-handlers do.
func (m *moving) relay(from, to string) {
	m.t.Helper()
	path := filepath.Join(m.source.dir, "run", from)
	listener, err := net.Listen("unix", path)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		m.t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			here, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", filepath.Join(m.target.dir, "run", to))
			held := from == names.SocketMigrationHandoff
			m.mu.Lock()
			refused := err != nil || held && m.cut
			if !refused {
				m.conns = append(m.conns, here, there)
			}
			m.mu.Unlock()
			if refused {
				here.Close()
				if err == nil {
					there.Close()
				}
				continue
			}
			work.Go(func() { m.pass(here, there, false) })
			work.Go(func() { m.pass(there, here, held) })
		}
	})
	m.t.Cleanup(func() {
		listener.Close()
		m.mu.Lock()
		for _, conn := range m.conns {
			conn.Close()
		}
		m.mu.Unlock()
		m.ended.Do(func() { close(m.over) })
		work.Wait()
	})
}

func (m *moving) pass(to, from net.Conn, held bool) {
	defer to.(*net.UnixConn).CloseWrite()
	if !held {
		_, _ = io.Copy(to, from) // its end is the connection's
		return
	}
	for r := bufio.NewReader(from); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		m.said <- strings.TrimSpace(line)
		select {
		case <-m.let:
		case <-m.over:
		}
		if _, err := io.WriteString(to, line); err != nil {
			return
		}
	}
}

// sever breaks the handoff's connection for good.
func (m *moving) sever() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = true
	for _, conn := range m.conns {
		conn.Close()
	}
}

// wordRun waits until the source has told the target to start the guest; it has not heard yet.
func (m *moving) wordRun() {
	m.t.Helper()
	select {
	case word := <-m.said:
		if word != "run" {
			m.t.Fatalf("the source says %q", word)
		}
	case <-time.After(2 * time.Minute):
		m.t.Fatal("the guest does not arrive")
	}
}

// run runs a script in the guest.
func (m *moving) run(p *pod, script string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	stream, err := p.client.Exec(ctx, &pb.ExecRequest{Command: []string{"sh", "-c", script}})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return strings.TrimSpace(out.String()), nil
		}
		if err != nil {
			return "", err
		}
		out.Write(got.GetOutput())
		if r := got.GetResult(); r != nil && r.ExitCode != 0 {
			return "", fmt.Errorf("exit code %d", r.ExitCode)
		}
	}
}

// count is how far the guest has counted in its memory.
func (m *moving) count(p *pod) (n int) {
	m.t.Helper()
	p.eventually(time.Minute, "the guest counts in its memory", func() bool {
		out, err := m.run(p, "cat /dev/shm/word /dev/shm/n")
		if err != nil {
			return false
		}
		word, number, _ := strings.Cut(out, "\n")
		if word != "kept" {
			m.t.Fatalf("the guest's memory has %q", out)
		}
		n, err = strconv.Atoi(number)
		return err == nil && n > m.before
	})
	return n
}

// goesOn checks that the guest runs at the source with its memory, and that the migration failed.
func (m *moving) goesOn() {
	m.t.Helper()
	state := m.source.waitState(m.states, time.Minute, "the migration has failed, and the guest runs",
		func(s *pb.GuestState) bool {
			return s.Migration.GetPhase() == pb.MigrationPhase_MIGRATION_PHASE_FAILED &&
				s.Lifecycle == pb.Lifecycle_LIFECYCLE_RUNNING
		})
	m.t.Logf("the migration failed: %s", state.Migration.Error)
	m.before = m.count(m.source)
	m.count(m.source)
	m.source.waitConsoleDoesNotBoot()
}

func (p *pod) waitConsoleDoesNotBoot() {
	p.t.Helper()
	if n := strings.Count(p.console(), "login:"); n != 1 {
		p.t.Errorf("the guest has booted %d times", n)
	}
}

// A guest moves: the source's QEMU is there, stopped, until the target says that it runs the guest.
func TestHandoff(t *testing.T) {
	m := newMoving(t)
	m.wordRun()
	m.source.waitStopped()
	began := time.Now()
	m.let <- struct{}{}
	code, message := m.source.waitExit(20 * time.Second)
	t.Logf("from run to the source's end: %v", time.Since(began))
	if code != 0 || !strings.Contains(message, "LIFECYCLE_MIGRATED") {
		t.Errorf("exit code %d, message %s", code, message)
	}
	m.count(m.target)
}

// The target's QEMU is killed between "arrived" and "run": the guest goes on at the source.
func TestTargetQEMUKilledBeforeRun(t *testing.T) {
	skipInShort(t)
	m := newMoving(t)
	m.wordRun()
	m.target.kill(m.target.process("qemu"), syscall.SIGKILL)
	m.goesOn()
}

// The target's whole launcher is killed between them: its termination message says that the guest never ran there, and
// virt-handler passes them on. Before, the guest stands still however long it takes.
func TestTargetLauncherKilledBeforeRun(t *testing.T) {
	m := newMoving(t)
	m.wordRun()
	m.target.kill(m.target.pid, syscall.SIGKILL)
	if _, message := m.target.waitExit(20 * time.Second); !strings.Contains(message, names.ReasonNeverRan) {
		t.Fatalf("the target's termination message is %q", message)
	}
	m.source.waitState(m.states, 20*time.Second, "the guest shows as paused", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_PAUSED && s.Reason == names.ReasonHandoff
	})
	m.source.waitStopped()
	if _, err := m.source.client.TakeOver(t.Context(), &pb.TakeOverRequest{}); err != nil {
		t.Fatal(err)
	}
	m.goesOn()
}

// The source's libvirtd is killed while the guest is handed over, and the new one does not let it go on; it goes on
// when the target's QEMU has ended.
func TestSourceLibvirtdKilledBeforeRun(t *testing.T) {
	skipInShort(t)
	m := newMoving(t)
	m.wordRun()
	m.source.kill(m.source.process("libvirtd"), syscall.SIGKILL)
	m.source.waitState(m.states, 20*time.Second, "the guest shows as paused", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_PAUSED && s.Reason == names.ReasonHandoff
	})
	m.target.kill(m.target.process("qemu"), syscall.SIGKILL)
	m.goesOn()
}

// The connection breaks before the target has heard: it is made again, and the guest moves.
func TestHandoffConnectionBreaks(t *testing.T) {
	skipInShort(t)
	m := newMoving(t)
	m.wordRun()
	m.sever()
	m.mu.Lock()
	m.cut = false
	m.mu.Unlock()
	for range 10 {
		m.let <- struct{}{}
	}
	if code, message := m.source.waitExit(30 * time.Second); code != 0 ||
		!strings.Contains(message, "LIFECYCLE_MIGRATED") {
		t.Errorf("exit code %d, message %s", code, message)
	}
	m.count(m.target)
}

// The source's launcher is killed while the guest is handed over: its termination message says so, and the target has
// the guest.
func TestSourceLauncherKilledBeforeRun(t *testing.T) {
	m := newMoving(t)
	m.wordRun()
	m.source.kill(m.source.pid, syscall.SIGKILL)
	if _, message := m.source.waitExit(20 * time.Second); !strings.Contains(message, "LIFECYCLE_MIGRATED") {
		t.Fatalf("the source's termination message is %q", message)
	}
	if _, err := m.target.client.TakeOver(t.Context(), &pb.TakeOverRequest{}); err != nil {
		t.Fatal(err)
	}
	m.count(m.target)
}

// waitStopped waits until SIGSTOP has stopped the pod's QEMU: a thread that waits for a processor shows as running
// until it has one, though it does nothing more.
func (p *pod) waitStopped() {
	p.t.Helper()
	p.eventually(10*time.Second, "the pod's QEMU is stopped", func() bool {
		return processState(p.process("qemu")) == "T"
	})
}

// processState is the letter of a process's state.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:min(1, len(rest))]
}
