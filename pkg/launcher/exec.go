package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/hypervisor"
	"github.com/virtkit/virtkit/pkg/launcher/agent"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const (
	// maxPrograms is how many programs of virt-handler's may run in the guest at once.
	maxPrograms = 16
	// pollFirst and pollMost are the ends of the back-off between two questions whether a program has ended.
	pollFirst = 10 * time.Millisecond
	pollMost  = 500 * time.Millisecond
	// silence is how long the agent may not answer before a program counts as lost.
	silence = time.Minute
	// transfer bounds one exchange with the agent in which megabytes may pass a slow channel.
	transfer = 30 * time.Second
	// cleanUp bounds the end of a program that nobody waits for any more.
	cleanUp = 10 * time.Second
	// chunk is how much output is in a message, bytes.
	chunk = 256 << 10
)

// asker gives a function that asks the guest agent, if there is a guest.
func (s *service) asker(ctx context.Context) (func(command string) (string, error), error) {
	if !s.guest.exists() {
		return nil, status.Error(codes.FailedPrecondition, "the guest has not been started")
	}
	conn, err := s.guest.connection(ctx)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return func(command string) (string, error) { return conn.Agent(ctx, command) }, nil
}

// agentStatus gives an error of the agent its code.
func agentStatus(err error) error {
	var refusal *hypervisor.AgentError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hypervisor.ErrNoDomain):
		return status.Error(codes.FailedPrecondition, "the guest does not run any more")
	case errors.Is(err, hypervisor.ErrNoAgent):
		return status.Error(codes.FailedPrecondition, err.Error()+"; is qemu-guest-agent running in the guest?")
	case errors.Is(err, hypervisor.ErrTooLarge):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.As(err, &refusal):
		return status.Error(codes.FailedPrecondition, "the guest agent refuses: "+refusal.Message)
	case status.Code(err) != codes.Unknown:
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// AskAgent implements the contract.
func (s *service) AskAgent(ctx context.Context, _ *pb.AskAgentRequest) (*pb.AskAgentResponse, error) {
	ask, err := s.asker(ctx)
	if err != nil {
		return nil, err
	}
	info, err := agent.AskInfo(ask)
	if err != nil {
		return nil, agentStatus(err)
	}
	data, err := json.Marshal(info)
	return &pb.AskAgentResponse{InfoJson: data}, agentStatus(err)
}

// Exec implements the contract.
func (s *service) Exec(req *pb.ExecRequest, stream grpc.ServerStreamingServer[pb.ExecResponse]) error {
	if err := agent.CheckExec(req.Command, req.Input); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	default:
		return status.Errorf(codes.ResourceExhausted, "%d commands run in this guest at once, which is the most; wait for one of them", maxPrograms)
	}
	pid, err := s.startProgram(stream.Context(), req)
	if err != nil {
		return err
	}
	ended, err := s.awaitProgram(stream.Context(), pid)
	if stream.Context().Err() != nil {
		s.endProgram(pid)
		return stream.Context().Err()
	}
	if err != nil {
		return err
	}
	for output := ended.Output; len(output) > 0; output = output[min(chunk, len(output)):] {
		if err := stream.Send(&pb.ExecResponse{What: &pb.ExecResponse_Output{Output: output[:min(chunk, len(output))]}}); err != nil {
			return err
		}
	}
	for output := ended.ErrorOutput; len(output) > 0; output = output[min(chunk, len(output)):] {
		if err := stream.Send(&pb.ExecResponse{What: &pb.ExecResponse_ErrorOutput{ErrorOutput: output[:min(chunk, len(output))]}}); err != nil {
			return err
		}
	}
	return stream.Send(&pb.ExecResponse{What: &pb.ExecResponse_Result{Result: &pb.ExecResult{
		ExitCode: int32(ended.ExitCode), Signal: int32(ended.Signal), Truncated: ended.Truncated,
	}}})
}

// startProgram starts a program once: when the agent's answer is lost, nobody knows whether it runs.
func (s *service) startProgram(ctx context.Context, req *pb.ExecRequest) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, transfer)
	defer cancel()
	ask, err := s.asker(ctx)
	if err != nil {
		return 0, err
	}
	reply, err := ask(agent.Exec(req.Command, req.Input))
	var refusal *hypervisor.AgentError
	if errors.As(err, &refusal) && agent.IsNoProgram(refusal.Message) {
		return 0, status.Error(codes.NotFound, refusal.Message)
	}
	if err != nil {
		return 0, agentStatus(err)
	}
	pid, err := agent.ParseExec(reply)
	return pid, agentStatus(err)
}

// awaitProgram waits for a program's end. An agent that does not answer for a while is busy, or its guest is
// paused.
func (s *service) awaitProgram(ctx context.Context, pid int64) (agent.ExecStatus, error) {
	lastAnswer := time.Now()
	for pause := pollFirst; ; pause = min(pause*3/2, pollMost) {
		select {
		case <-ctx.Done():
			return agent.ExecStatus{}, ctx.Err()
		case <-s.guest.ended():
			return agent.ExecStatus{}, status.Error(codes.FailedPrecondition, "the guest has ended, and the command with it")
		case <-time.After(pause):
		}
		ended, err := s.askProgram(ctx, pid)
		switch {
		case errors.Is(err, hypervisor.ErrNoAgent) && time.Since(lastAnswer) < silence:
			continue
		case errors.Is(err, hypervisor.ErrTooLarge):
			return ended, status.Errorf(codes.ResourceExhausted,
				"the command has ended, but its output is more than about %d MiB and lost, with its exit code; let it write to a file in the guest", agent.MaxOutput>>20)
		case err != nil:
			return ended, agentStatus(err)
		case ended.Exited:
			return ended, nil
		}
		lastAnswer = time.Now()
	}
}

func (s *service) askProgram(ctx context.Context, pid int64) (agent.ExecStatus, error) {
	// Not ctx's end: a reply that comes too late is lost, and a program's end is told once.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), transfer)
	defer cancel()
	ask, err := s.asker(ctx)
	if err != nil {
		return agent.ExecStatus{}, err
	}
	reply, err := ask(agent.AskExec(pid))
	if err != nil {
		return agent.ExecStatus{}, err
	}
	return agent.ParseExecStatus(reply)
}

// endProgram ends a program that nobody waits for: it asks it to, then forces it. That needs kill in the guest,
// which Windows does not have; there, the program goes on.
func (s *service) endProgram(pid int64) {
	ctx, cancel := context.WithTimeout(s.life, cleanUp)
	defer cancel()
	for _, signal := range []string{"TERM", "KILL"} {
		err := s.signalProgram(ctx, signal, pid)
		if err == nil {
			err = s.reap(ctx, pid)
		}
		if err == nil {
			return
		}
		s.options.Log.Info("a command in the guest goes on that nobody waits for", "signal", signal, "err", err)
	}
}

// reap waits for the end of a program that was told to end, since the agent keeps its output until then.
func (s *service) reap(ctx context.Context, pid int64) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUp/3)
	defer cancel()
	_, err := s.awaitProgram(ctx, pid)
	return err
}

func (s *service) signalProgram(ctx context.Context, signal string, pid int64) error {
	ask, err := s.asker(ctx)
	if err != nil {
		return err
	}
	reply, err := ask(agent.Exec([]string{"kill", "-" + signal, strconv.FormatInt(pid, 10)}, nil))
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	killer, err := agent.ParseExec(reply)
	if err != nil {
		return err
	}
	_, err = s.awaitProgram(ctx, killer)
	return err
}
