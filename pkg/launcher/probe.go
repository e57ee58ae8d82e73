package launcher

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// A probe of the kubelet's that only the guest agent can answer is a program in this container, `virt-launcher probe`,
// which asks the launcher over a socket of its own: a line of JSON there, a line of JSON back. It is no gRPC, since a
// client of that would make the launcher larger, and each probe slower, for one question.

// probeRequest is the request of a probe.
type probeRequest struct {
	// Command is to run in the guest and end with 0; without one the guest agent is to answer.
	Command []string `json:"command,omitempty"`
	// Arrived asks for nothing but that there is a guest, and waits for it. Pods of earlier versions ask by this key.
	Arrived bool `json:"arrived,omitempty"`
	// Quiesce is what virt-freezer asks for in place of a probe, and UnfreezeAfter when a guest that it has frozen is
	// thawed by itself; 0 is never.
	Quiesce       string        `json:"quiesce,omitempty"`
	UnfreezeAfter time.Duration `json:"unfreezeAfter,omitempty"`
	// Timeout bounds the probe.
	Timeout time.Duration `json:"timeout"`
}

// probeAnswer is its result; Message says why it did not pass.
type probeAnswer struct {
	Passed  bool   `json:"passed"`
	Message string `json:"message,omitempty"`
}

const (
	// maxProbes is the number of probes that are answered at once; the kubelet makes one of a kind after the other.
	maxProbes = 8
	// maxProbeLine bounds a request, and maxProbeMessage what is reported of a failure, bytes.
	maxProbeLine    = 128 << 10
	maxProbeMessage = 1 << 10
)

// prober answers probes.
type prober struct {
	service *service
	mu      sync.Mutex
	// last has how each probe went when it was last really asked.
	last map[string]bool
}

func newProber(s *service) *prober { return &prober{service: s, last: map[string]bool{}} }

// listenForProbes opens the socket.
func listenForProbes(runDir string) (net.Listener, error) {
	return listen(filepath.Join(runDir, names.SocketProbe))
}

// serve answers until ctx ends.
func (p *prober) serve(ctx context.Context, listener net.Listener) {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var answering sync.WaitGroup
	defer answering.Wait()
	slots := make(chan struct{}, maxProbes)
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() == nil {
				p.service.options.Log.Warn("cannot answer probes any more", "err", err)
			}
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return
		}
		answering.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			p.answer(ctx, conn)
		})
	}
}

// answer answers one client. When it hangs up, as a probe that the kubelet has given up does, its command in the guest
// is ended.
func (p *prober) answer(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(conn, maxProbeLine)).ReadBytes('\n')
	var request probeRequest
	if err != nil || json.Unmarshal(line, &request) != nil || request.Timeout <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, request.Timeout)
	defer cancel()
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		_, _ = conn.Read(make([]byte, 1)) // nothing comes but the end
		cancel()
	}()
	if err := json.NewEncoder(conn).Encode(p.probe(ctx, request)); err != nil {
		p.service.options.Log.Debug("a probe has not waited for its answer", "err", err)
	}
	conn.Close()
	<-listening
}

// probe answers one request. A guest that cannot be asked, because it is moving to another node or its file systems are
// frozen, keeps its last answer.
func (p *prober) probe(ctx context.Context, r probeRequest) probeAnswer {
	if r.Quiesce != "" {
		return p.quiesce(ctx, r)
	}
	g := p.service.guest
	state, changed := g.watch()
	for r.Arrived && state.Lifecycle == pb.Lifecycle_LIFECYCLE_NONE && ctx.Err() == nil {
		select {
		case <-changed:
		case <-ctx.Done():
		}
		state, changed = g.watch()
	}
	switch {
	case state.Lifecycle == pb.Lifecycle_LIFECYCLE_NONE:
		return probeAnswer{Message: "there is no guest yet"}
	case r.Arrived:
		return probeAnswer{Passed: true}
	case state.Lifecycle.Final():
		return probeAnswer{Message: "the guest has ended"}
	}
	key := strings.Join(r.Command, "\x00")
	silent := g.leaving() || len(r.Command) > 0 && state.FsfreezeStatus == frozen
	if silent {
		return p.before(key)
	}
	err := p.ask(ctx, r.Command)
	if err != nil && g.leaving() {
		return p.before(key) // it has left while it was asked
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.last[key]; known || len(p.last) < maxProbes {
		p.last[key] = err == nil
	}
	if err != nil {
		return probeAnswer{Message: printable(status.Convert(err).Message(), maxProbeMessage)}
	}
	return probeAnswer{Passed: true}
}

func (p *prober) before(key string) probeAnswer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if passed, known := p.last[key]; known && !passed {
		return probeAnswer{Message: "the guest cannot be asked now, and it had failed before"}
	}
	return probeAnswer{Passed: true}
}

// ask asks the guest agent.
func (p *prober) ask(ctx context.Context, command []string) error {
	s := p.service
	if len(command) == 0 {
		ask, err := s.asker(ctx)
		if err != nil {
			return err
		}
		_, err = ask(agent.Command("guest-ping", nil))
		return agentStatus(err)
	}
	if err := agent.CheckExec(command, nil); err != nil {
		return err
	}
	pid, err := s.spawn(ctx, agent.Exec(command, nil))
	if err != nil {
		return err
	}
	ended, err := s.awaitProgram(ctx, pid)
	switch {
	case ctx.Err() != nil:
		s.endProgram(pid)
		return errors.New("the command has not ended in time")
	case err != nil:
		return err
	case ended.Signal != 0:
		return fmt.Errorf("the command was ended by signal %d", ended.Signal)
	case ended.ExitCode != 0:
		said := ended.ErrorOutput
		if len(said) == 0 {
			said = ended.Output
		}
		return fmt.Errorf("the command ended with %d: %s", ended.ExitCode, said[:min(len(said), maxProbeMessage)])
	}
	return nil
}

// printable makes one line of what a guest may have written.
func printable(s string, most int) string {
	words := strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " ")))
	line := []rune(strings.Join(words, " "))
	return string(slices.Clip(line[:min(len(line), most)]))
}
