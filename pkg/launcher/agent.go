package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// frozen is the agent's word for frozen file systems, thawed its word for others.
const frozen, thawed = "frozen", "thawed"

// wakeAgent makes askAgent ask now.
func (g *guest) wakeAgent() {
	select {
	case g.asked <- struct{}{}:
	default:
	}
}

// wakeAgentAfter makes askAgent ask in a while.
func (g *guest) wakeAgentAfter(rest time.Duration) { time.AfterFunc(rest, g.wakeAgent) }

// askAgent asks the guest agent for what the guest alone knows: when the agent connects, and from time to time. It has
// a goroutine of its own because an agent that hangs blocks it for seconds.
func (g *guest) askAgent(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.asked:
		case <-tick.C:
		}
		// A guest that is stopped to move cannot answer.
		if !g.snapshot().AgentConnected || g.leaving() {
			continue
		}
		conn, err := g.connection(ctx)
		if err != nil {
			return
		}
		if err := g.learn(ctx, conn); err != nil && !errors.Is(err, errLeaving) &&
			!errors.Is(err, hypervisor.ErrPaused) {
			g.log.Warn("the guest agent does not answer", "err", err)
		}
	}
}

// setFrozen records what the agent has answered to a freeze or a thaw: frozen or thawed.
func (g *guest) setFrozen(status string) {
	g.update(func(s *pb.GuestState) {
		g.freezes++
		s.FsfreezeStatus = status
	})
}

// setFreeze records a freeze that ends by itself, or that there is none.
func (g *guest) setFreeze(freeze *pb.Freeze) {
	g.update(func(s *pb.GuestState) { s.Freeze = freeze })
}

// errLeaving is an agent that is not asked.
var errLeaving = errors.New("the guest is moving to another node")

// learn asks the agent everything. An agent that does not know a command (an old one, or one that is
// forbidden to) leaves that part empty.
func (g *guest) learn(ctx context.Context, conn hypervisor.Connection) error {
	g.mu.Lock()
	freezes := g.freezes
	g.mu.Unlock()
	report, err := agent.Ask(func(command string) (string, error) {
		if g.leaving() {
			return "", errLeaving
		}
		return conn.Agent(ctx, command)
	})
	if g.leaving() {
		err = errLeaving // of some parts nothing may be known
	}
	if err != nil {
		return err
	}
	var osJSON, interfacesJSON []byte
	if report.OS != nil {
		if osJSON, err = json.Marshal(report.OS); err != nil {
			return err
		}
	}
	if report.Interfaces != nil {
		if interfacesJSON, err = json.Marshal(report.Interfaces); err != nil {
			return err
		}
	}
	g.update(func(s *pb.GuestState) {
		if !s.AgentConnected {
			return // it went away meanwhile
		}
		s.AgentVersion = report.Version
		if g.freezes == freezes {
			s.FsfreezeStatus = report.FreezeStatus
		} // else the answer may be older than the freeze or the thaw
		if report.FreezeStatus == frozen && osJSON == nil && interfacesJSON == nil {
			return // the agent of a frozen guest refuses to say; what is known stays
		}
		s.AgentLacks = report.Lacks // of a frozen one, almost all
		s.GuestOsJson = osJSON
		s.InterfacesJson = interfacesJSON
	})
	return nil
}
