package launcher

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/virtkit/virtkit/pkg/launcher/credentials"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// fakeAgent is a guest agent with one file and programs that do what their name says.
type fakeAgent struct {
	mu     sync.Mutex
	frozen bool
	input  []byte // of the last program, or of the file
	// noShell is a guest that has none.
	noShell  bool
	commands []string
	programs map[int64][]string
	asked    map[int64]int
	keys     map[string][]string
}

// ends reports whether a command ends the first program that was started.
func ends(command string) bool {
	return command == "kill -TERM 101" ||
		strings.HasPrefix(command, "/bin/sh -c tree()") && strings.HasSuffix(command, " 101")
}

func (a *fakeAgent) reply(command string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var c struct {
		Execute   string
		Arguments struct {
			Path, Username string
			Arg, Keys      []string
			InputData      []byte `json:"input-data"`
			Buf            []byte `json:"buf-b64"`
			PID            int64
		}
	}
	if err := json.Unmarshal([]byte(command), &c); err != nil {
		return "", err
	}
	if a.programs == nil {
		a.programs, a.asked, a.keys = map[int64][]string{}, map[int64]int{}, map[string][]string{}
	}
	switch c.Execute {
	case "guest-exec":
		program := append([]string{c.Arguments.Path}, c.Arguments.Arg...)
		if a.noShell && program[0] == "/bin/sh" {
			return "",
				&hypervisor.AgentError{Message: "Failed to execute child process “/bin/sh” (No such file or directory)"}
		}
		a.commands = append(a.commands, strings.Join(program, " "))
		if program[0] == "nonsense" {
			return "",
				&hypervisor.AgentError{
					Message: "Failed to execute child process “nonsense” (No such file or directory)",
				}
		}
		if len(c.Arguments.InputData) > 0 {
			a.input = c.Arguments.InputData
		}
		pid := int64(100 + len(a.commands))
		a.programs[pid] = program
		return fmt.Sprintf(`{"return":{"pid":%d}}`, pid), nil
	case "guest-exec-status":
		program := a.programs[c.Arguments.PID]
		a.asked[c.Arguments.PID]++
		switch {
		case program == nil:
			return "", &hypervisor.AgentError{Message: "PID 1 does not exist"}
		case program[0] == "hang" && !slices.ContainsFunc(a.commands, ends), a.asked[c.Arguments.PID] < 3:
			if program[0] == "slow" {
				return "", fmt.Errorf("%w: busy", hypervisor.ErrNoAgent)
			}
			return `{"return":{"exited":false}}`, nil
		case program[0] == "huge":
			return "", fmt.Errorf("%w: string too long", hypervisor.ErrTooLarge)
		}
		out := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("o"), chunk+1))
		return fmt.Sprintf(
			`{"return":{"exited":true,"exitcode":3,"out-data":%q,"err-data":"ZXJy","err-truncated":true}}`,
			map[bool]string{true: out}[program[0] == "talk"]), nil
	case "guest-file-open":
		a.input = nil
		return `{"return":7}`, nil
	case "guest-file-write":
		n := min(len(c.Arguments.Buf), 50_000) // a part of it
		a.input = append(a.input, c.Arguments.Buf[:n]...)
		return fmt.Sprintf(`{"return":{"count":%d,"eof":false}}`, n), nil
	case "guest-file-close":
		return `{"return":{}}`, nil
	case "guest-fsfreeze-status":
		return fmt.Sprintf(`{"return":%q}`, map[bool]string{true: "frozen", false: "thawed"}[a.frozen]), nil
	case "guest-fsfreeze-freeze":
		if a.frozen {
			return "", &hypervisor.AgentError{Message: "disabled"}
		}
		a.frozen = true
		return `{"return":1}`, nil
	case "guest-fsfreeze-thaw":
		a.frozen = false
		return `{"return":1}`, nil
	case "guest-ssh-add-authorized-keys":
		if c.Arguments.Username == "ghost" {
			return "", &hypervisor.AgentError{Message: "no such user"}
		}
		a.keys[c.Arguments.Username] = c.Arguments.Keys
		return `{"return":{}}`, nil
	case "guest-info":
		return `{"return":{"version":"10.0.2"}}`, nil
	case "guest-get-fsinfo":
		return `{"return":[{"name":"vda1","mountpoint":"/","type":"ext4","used-bytes":1,"total-bytes":2,"disk":[{"bus-type":"virtio"}]}]}`, nil
	}
	return "", &hypervisor.AgentError{Message: "unknown"}
}

// program is what came back of one.
type program struct {
	out, err string
	result   *pb.ExecResult
}

func (l *life) exec(ctx context.Context, input []byte, command ...string) (p program, err error) {
	stream, err := l.client.Exec(ctx, &pb.ExecRequest{Command: command, Input: input})
	for err == nil {
		var m *pb.ExecResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		p.out += string(m.GetOutput())
		p.err += string(m.GetErrorOutput())
		if m.GetResult() != nil {
			p.result = m.GetResult()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return p, err
}

func TestExec(t *testing.T) {
	l := begin(t)
	if _, err := l.exec(t.Context(), nil, "id"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the start: %v", err)
	}
	agent := &fakeAgent{}
	l.memory.agent = agent.reply
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	p, err := l.exec(t.Context(), []byte("in"), "talk", "a b")
	if err != nil || len(p.out) != chunk+1 || p.err != "err" || p.result.GetExitCode() != 3 ||
		!p.result.GetTruncated() || string(agent.input) != "in" {
		t.Errorf("%d bytes, %q, %v, %v", len(p.out), p.err, p.result, err)
	}
	if p, err := l.exec(t.Context(), nil, "slow"); err != nil || p.result.GetExitCode() != 3 {
		t.Errorf("an agent that is busy for a while: %v, %v", p.result, err)
	}
	for command, want := range map[string]codes.Code{
		"nonsense": codes.NotFound,
		"huge":     codes.ResourceExhausted,
		"":         codes.InvalidArgument,
	} {
		if _, err := l.exec(t.Context(), nil, command); status.Code(err) != want {
			t.Errorf("%q: %v, want %v", command, err, want)
		}
	}
	info, err := l.client.AskAgent(t.Context(), &pb.AskAgentRequest{})
	if err != nil || !strings.Contains(string(info.InfoJson), `"mountPoint":"/"`) {
		t.Errorf("%s, %v", info.GetInfoJson(), err)
	}
	l.end(t)
}

// A program whose guest goes away is lost: nobody knows how it ended, while one that never began is refused.
func TestExecLost(t *testing.T) {
	l := begin(t)
	agent := &fakeAgent{}
	l.memory.agent = agent.reply
	l.mustStart()
	l.memory.agent = func(command string) (string, error) {
		if strings.Contains(command, "guest-exec-status") {
			return "", &hypervisor.AgentError{Message: "PID 101 does not exist"}
		}
		return agent.reply(command)
	}
	if _, err := l.exec(t.Context(), nil, "id"); status.Code(err) != codes.DataLoss {
		t.Errorf("the agent forgot it: %v", err)
	}
	l.memory.agent = func(string) (string, error) { return "", hypervisor.ErrNoAgent }
	if _, err := l.exec(t.Context(), nil, "id"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("never begun: %v", err)
	}
	l.end(t)
}

// Input that libvirt would break goes through a file.
func TestExecMuchInput(t *testing.T) {
	l := begin(t)
	agent := &fakeAgent{}
	l.memory.agent = agent.reply
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	input := bytes.Repeat([]byte("0123456789"), 50_000)
	// mkdir of this fake ends with code 3, like all its programs.
	if _, err := l.exec(t.Context(), input, "talk"); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "mkdir in the guest: err") {
		t.Errorf("no directory: %v", err)
	}
	l.memory.agent = func(command string) (string, error) {
		reply, err := agent.reply(command)
		return strings.Replace(reply, `"exitcode":3`, `"exitcode":0`, 1), err
	}
	if _, err := l.exec(t.Context(), input, "talk", "x"); err != nil || !bytes.Equal(agent.input, input) {
		t.Errorf("%d bytes of %d, %v", len(agent.input), len(input), err)
	}
	last := agent.commands[len(agent.commands)-1]
	if !strings.HasPrefix(last, "/bin/sh -c "+fromFile+" /tmp/.virtkit-") || !strings.HasSuffix(last, " talk x") {
		t.Errorf("ran %s", last)
	}
	l.end(t)
}

// Whoever leaves takes the program along.
func TestExecCancelled(t *testing.T) {
	for _, agent := range []*fakeAgent{{}, {noShell: true}} {
		testExecCancelled(t, agent)
	}
}

func testExecCancelled(t *testing.T, agent *fakeAgent) {
	t.Helper()
	l := begin(t)
	l.memory.agent = agent.reply
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.exec(ctx, nil, "hang"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		agent.mu.Lock()
		killed := slices.ContainsFunc(agent.commands, ends)
		agent.mu.Unlock()
		if killed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not killed: %q", agent.commands)
		}
	}
	l.end(t)
}

// A real shell ends a program's children, and theirs, which hold its output.
func TestEndTree(t *testing.T) {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		t.Skip("no /proc here")
	}
	program := exec.CommandContext(t.Context(), "/bin/sh",
		"-c", "(sleep 4321; :) & sh -c 'sleep 4321; :' & echo ready; wait")
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, readErr := io.ReadAll(lines) // ends with the last of them
		_ = program.Wait()              // by a signal
		ended <- readErr
	}()
	if out, err := exec.CommandContext(t.Context(), "/bin/sh",
		"-c", endTree, strconv.Itoa(program.Process.Pid)).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%q, %v", out, err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("something is left")
	}
}

func (l *life) end(t *testing.T) {
	t.Helper()
	l.memory.end(hypervisor.End{Outcome: hypervisor.Shutdown, Reason: "shutdown"})
	if err := <-l.err; err != nil {
		t.Error(err)
	}
}

// What the agent has answered before a freeze is no news after it: a frozen guest would be let migrate.
func TestOldAnswerAfterAFreeze(t *testing.T) {
	m := newMemory()
	g := newGuest(m.dial, "", slog.New(slog.DiscardHandler))
	g.update(func(s *pb.GuestState) { s.AgentConnected = true })
	agent := &fakeAgent{}
	conn := frozenMeanwhile{agent: agent, guest: g}
	if err := g.learn(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if got := g.snapshot().GetFsfreezeStatus(); got != frozen {
		t.Errorf("after the freeze the guest is %q", got)
	}
	conn.guest = nil
	if err := g.learn(t.Context(), conn); err != nil || g.snapshot().GetFsfreezeStatus() != thawed {
		t.Errorf("asked again, it is %q, %v", g.snapshot().GetFsfreezeStatus(), err)
	}
}

// frozenMeanwhile is a guest, unless it is nil, that is frozen as soon as its agent has said that it is not.
type frozenMeanwhile struct {
	hypervisor.Connection
	agent *fakeAgent
	guest *guest
}

func (f frozenMeanwhile) Agent(_ context.Context, command string) (string, error) {
	reply, err := f.agent.reply(command)
	if f.guest != nil && strings.Contains(command, "guest-fsfreeze-status") {
		f.guest.setFrozen(frozen)
	}
	return reply, err
}

func TestFreeze(t *testing.T) {
	l := begin(t)
	agent := &fakeAgent{}
	l.memory.agent = agent.reply
	if _, err := l.client.Unfreeze(t.Context(), &pb.UnfreezeRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before the start: %v", err)
	}
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	isFrozen := func() bool { agent.mu.Lock(); defer agent.mu.Unlock(); return agent.frozen }
	for range 2 { // it is idempotent
		if _, err := l.client.Freeze(t.Context(),
			&pb.FreezeRequest{UnfreezeAfter: durationpb.New(time.Hour)}); err != nil || !isFrozen() {
			t.Fatalf("%v", err)
		}
	}
	if _, err := l.client.Unfreeze(t.Context(), &pb.UnfreezeRequest{}); err != nil {
		t.Fatal(err)
	}
	// A paused guest answers nobody; as soon as it goes on it can be frozen.
	freeze := func() error {
		_, err := l.client.Freeze(t.Context(), &pb.FreezeRequest{UnfreezeAfter: durationpb.New(time.Hour)})
		return err
	}
	if _, err := l.client.Pause(t.Context(), &pb.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := freeze(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "paused") ||
		isFrozen() {
		t.Errorf("a paused guest is frozen: %v", err)
	}
	if _, err := l.client.Unpause(t.Context(), &pb.UnpauseRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := freeze(); err != nil || !isFrozen() {
		t.Fatalf("right after the pause: %v", err)
	}
	// The launcher that it would go to knows nothing of the hour.
	if _, err := l.client.Migrate(t.Context(),
		&pb.MigrateRequest{Uid: "a"}); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "frozen") {
		t.Errorf("a frozen guest leaves: %v", err)
	}
	if _, err := l.client.Unfreeze(t.Context(), &pb.UnfreezeRequest{}); err != nil || isFrozen() {
		t.Fatalf("%v", err)
	}
	// Nobody unfreezes this one.
	if _, err := l.client.Freeze(t.Context(),
		&pb.FreezeRequest{UnfreezeAfter: durationpb.New(50 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); isFrozen(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("still frozen")
		}
	}
	l.end(t)
}

// Without an agent freezing is KubeVirt's internal error, in its words.
func TestFreezeWithoutAgent(t *testing.T) {
	l := begin(t)
	l.memory.agent = func(string) (string, error) {
		return "", fmt.Errorf("%w: QEMU guest agent is not connected", hypervisor.ErrNoAgent)
	}
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	_, frozen := l.client.Freeze(t.Context(), &pb.FreezeRequest{})
	_, thawed := l.client.Unfreeze(t.Context(), &pb.UnfreezeRequest{})
	for command, err := range map[string]error{"Freeze": frozen, "Unfreeze": thawed} {
		const why = "QEMU guest agent is not connected"
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "command "+command+" failed: ") ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", command, err)
		}
	}
	l.end(t)
}

func TestCredentialSync(t *testing.T) {
	dir := t.TempDir()
	write := func(key string) {
		if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "keys", "k"), []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ssh-rsa A")
	withGuest(t, func(t *testing.T, m *memory, g *guest) {
		agent := &fakeAgent{}
		m.agent = agent.reply
		k := newCredentialSync(g, dir, g.log)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.run(ctx) })
		defer running.Wait()
		defer cancel()
		k.set(credentials.Plan{Keys: map[string][]string{"root": {"keys"}}})
		mustCreate(t, g)
		synctest.Wait()
		if g.snapshot().AgentCredentials != nil {
			t.Error("applied without an agent")
		}
		m.change(func(d *hypervisor.Domain) { d.AgentConnected = true })
		synctest.Wait()
		if got := g.snapshot().AgentCredentials; got == nil || got.Failure != "" ||
			!slices.Equal(agent.keys["root"], []string{"ssh-rsa A"}) {
			t.Errorf("%v, %v", got, agent.keys)
		}
		write("ssh-rsa B") // the kubelet brings a new version
		time.Sleep(recheck + time.Second)
		synctest.Wait()
		if !slices.Equal(agent.keys["root"], []string{"ssh-rsa B"}) {
			t.Errorf("%v", agent.keys)
		}
		agent.keys = map[string][]string{} // the guest boots anew
		m.change(func(d *hypervisor.Domain) { d.AgentConnected = false })
		synctest.Wait()
		m.change(func(d *hypervisor.Domain) { d.AgentConnected = true })
		synctest.Wait()
		if !slices.Equal(agent.keys["root"], []string{"ssh-rsa B"}) {
			t.Errorf("after a boot: %v", agent.keys)
		}
		k.set(credentials.Plan{Keys: map[string][]string{"ghost": {"keys"}}})
		synctest.Wait()
		time.Sleep(recheck + time.Second)
		synctest.Wait()
		if got := g.snapshot().AgentCredentials.GetFailure(); got != "authorized keys of user ghost: no such user" {
			t.Errorf("%q", got)
		}
	})
}
