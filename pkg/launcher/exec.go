package launcher

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const (
	// maxPrograms is the number of virt-handler's programs that may run in the guest at once.
	maxPrograms = 16
	// pollFirst and pollMost are the ends of the back-off between two questions whether a program has ended.
	pollFirst = 10 * time.Millisecond
	pollMost  = 500 * time.Millisecond
	// silence is the time without an answer of the agent after which a program counts as lost.
	silence = time.Minute
	// transfer bounds one exchange with the agent in which megabytes may pass a slow channel.
	transfer = 30 * time.Second
	// cleanUp bounds the end of a program that nobody waits for any more.
	cleanUp = 10 * time.Second
	// chunk is the most output in one message, bytes.
	chunk = 256 << 10
)

// asker returns a function that asks the guest agent, if there is a guest.
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

// agentStatus adds a gRPC code to an error of the agent.
func agentStatus(err error) error {
	var refusal *hypervisor.AgentError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hypervisor.ErrNoDomain):
		return status.Error(codes.FailedPrecondition, notHere)
	case errors.Is(err, hypervisor.ErrPaused):
		return status.Error(codes.FailedPrecondition, "the guest is paused; its agent answers when it goes on")
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
	return &pb.AskAgentResponse{InfoJson: data, Load: agent.AskLoad(info, ask)}, agentStatus(err)
}

// Exec implements the contract.
func (s *service) Exec(req *pb.ExecRequest, stream grpc.ServerStreamingServer[pb.ExecResponse]) error {
	if err := agent.CheckExec(req.Command, req.Input); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	end, err := s.running.begin("commands run in this guest")
	if err != nil {
		return err
	}
	defer end()
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
		return lost(err)
	}
	for output := ended.Output; len(output) > 0; output = output[min(chunk, len(output)):] {
		if err := stream.Send(
			&pb.ExecResponse{What: &pb.ExecResponse_Output{Output: output[:min(chunk, len(output))]}},
		); err != nil {
			return err
		}
	}
	for output := ended.ErrorOutput; len(output) > 0; output = output[min(chunk, len(output)):] {
		if err := stream.Send(&pb.ExecResponse{
			What: &pb.ExecResponse_ErrorOutput{ErrorOutput: output[:min(chunk, len(output))]},
		}); err != nil {
			return err
		}
	}
	return stream.Send(&pb.ExecResponse{What: &pb.ExecResponse_Result{Result: &pb.ExecResult{
		ExitCode: int32(ended.ExitCode), Signal: int32(ended.Signal), Truncated: ended.Truncated,
	}}})
}

// lost returns the error for a program that was started and of which nobody knows how it ended. Output that is too
// large is lost, too, but its program has ended.
func lost(err error) error {
	if code := status.Code(err); code == codes.ResourceExhausted {
		return err
	}
	return status.Error(codes.DataLoss, status.Convert(err).Message())
}

// startProgram starts a program once: when the agent's answer is lost, nobody knows whether it runs.
func (s *service) startProgram(ctx context.Context, req *pb.ExecRequest) (int64, error) {
	command := agent.Exec(req.Command, req.Input)
	if len(command) <= hypervisor.MaxAgentCommand {
		return s.spawn(ctx, command)
	}
	// The command goes through without its input, which is put into a file first.
	dir, err := s.stageInput(ctx, req.Input)
	if err != nil {
		return 0, status.Errorf(codes.FailedPrecondition, "standard input of more than about 90 KiB goes through a "+
			"file in the guest's /tmp: %s", status.Convert(err).Message())
	}
	return s.spawn(ctx, agent.Exec(append([]string{"/bin/sh", "-c", fromFile, dir}, req.Command...), nil))
}

// fromFile is a script that runs its arguments with their input from the file input in the directory $0, which is gone
// before they run.
const fromFile = `exec <"$0/input" && rm -r "$0" && exec "$@"`

// spawn starts a program and gives its number.
func (s *service) spawn(ctx context.Context, command string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, transfer)
	defer cancel()
	ask, err := s.asker(ctx)
	if err != nil {
		return 0, err
	}
	reply, err := ask(command)
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

// stageInput writes input into a file of a new directory in the guest that only the agent's user can enter.
func (s *service) stageInput(ctx context.Context, input []byte) (dir string, err error) {
	dir = "/tmp/.virtkit-" + rand.Text()
	if err := s.succeed(ctx, "mkdir", "-m", "700", dir); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			cleaning, cancel := context.WithTimeout(s.life, cleanUp)
			defer cancel()
			if left := s.succeed(cleaning, "rm", "-r", dir); left != nil {
				s.options.Log.Info("a directory stays in the guest", "dir", dir, "err", left)
			}
		}
	}()
	return dir, agentStatus(s.writeFile(ctx, dir+"/input", input))
}

// succeed runs a program in the guest that must end well.
func (s *service) succeed(ctx context.Context, command ...string) error {
	pid, err := s.spawn(ctx, agent.Exec(command, nil))
	if err != nil {
		return err
	}
	ended, err := s.awaitProgram(ctx, pid)
	switch {
	case err != nil:
		return err
	case ended.ExitCode != 0 || ended.Signal != 0:
		return status.Errorf(codes.FailedPrecondition, "%s in the guest: %s", command[0],
			strings.TrimSpace(string(ended.ErrorOutput)))
	}
	return nil
}

// goesOn is the error about a program in a guest that has moved.
const goesOn = movedAway + ", where the command goes on; its output and how it ends are lost, so look into the guest " +
	"before you run it again"

// awaitProgram waits for a program's end. An agent that does not answer for a while is busy, or its guest is
// paused, as at the end of a migration. A domain that is gone has ended or moved: the guest's end says which.
func (s *service) awaitProgram(ctx context.Context, pid int64) (agent.ExecStatus, error) {
	lastAnswer := time.Now()
	for pause := pollFirst; ; pause = min(pause*3/2, pollMost) {
		select {
		case <-ctx.Done():
			return agent.ExecStatus{}, ctx.Err()
		case <-s.guest.ended():
			if s.guest.isElsewhere() {
				return agent.ExecStatus{}, status.Error(codes.FailedPrecondition, goesOn)
			}
			return agent.ExecStatus{},
				status.Error(codes.FailedPrecondition, "the guest has ended, and the command with it")
		case <-time.After(pause):
		}
		ended, err := s.askProgram(ctx, pid)
		switch {
		case (errors.Is(err, hypervisor.ErrNoAgent) || errors.Is(err, hypervisor.ErrNoDomain)) &&
			time.Since(lastAnswer) < silence:
			continue
		case errors.Is(err, hypervisor.ErrTooLarge):
			return ended, status.Errorf(codes.ResourceExhausted,
				"the command has ended, but its output is more than about %d MiB and lost, with its exit code; let "+
					"it write to a file in the guest", agent.MaxOutput>>20)
		case err != nil:
			return ended, agentStatus(err)
		case ended.Exited:
			return ended, nil
		}
		lastAnswer = time.Now()
	}
}

func (s *service) askProgram(ctx context.Context, pid int64) (agent.ExecStatus, error) {
	// Not ctx's end: a reply that comes too late is lost, and a program's end is reported once.
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

// endTree is a script that ends the process $0 and those that come from it: it asks them to, and after three seconds
// forces those that are left. They stand still meanwhile, so that none starts another that is not seen. The agent
// starts programs in its own process group, so that there is none to signal. A kernel that does not show a process's
// children leaves the process alone.
const endTree = `tree() { kill -STOP "$1" 2>/dev/null; echo "$1"; for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do tree "$child"; done; }
all=$(tree "$0")
kill -TERM $all 2>/dev/null
kill -CONT $all 2>/dev/null
for second in 1 2 3; do
	left=
	for one in $all; do kill -0 "$one" 2>/dev/null && left="$left $one"; done
	[ -n "$left" ] || exit 0
	sleep 1
done
kill -KILL $left 2>/dev/null
exit 0`

// endProgram ends a program that nobody waits for, with what it has started: it asks it to, then forces it. A guest
// without a shell has to have kill, which ends the program alone. Windows has neither; there, it goes on.
func (s *service) endProgram(pid int64) {
	ctx, cancel := context.WithTimeout(s.life, cleanUp)
	defer cancel()
	number := strconv.FormatInt(pid, 10)
	for _, command := range [][]string{
		{"/bin/sh", "-c", endTree, number},
		{"kill", "-TERM", number},
		{"kill", "-KILL", number},
	} {
		err := s.succeed(ctx, command...)
		if err == nil {
			err = s.reap(ctx, pid)
		}
		if err == nil {
			return
		}
		s.options.Log.Info("a command in the guest goes on that nobody waits for", "by", command[0], "err", err)
	}
}

// reap waits for the end of a program that was asked to end, since the agent keeps its output until then.
func (s *service) reap(ctx context.Context, pid int64) error {
	ctx, cancel := context.WithTimeout(ctx, cleanUp/3)
	defer cancel()
	_, err := s.awaitProgram(ctx, pid)
	return err
}
