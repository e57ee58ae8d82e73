package launcher

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// Backup programs such as Velero run a command in a pod before and after they snapshot its volumes. That of a launcher
// pod is virt-freezer, which KubeVirt's has, too: it freezes the guest's file systems and thaws them. It asks the
// launcher by the socket of the probes.

// quiesceFreeze and quiesceThaw are what virt-freezer asks for.
const (
	quiesceFreeze = "freeze"
	quiesceThaw   = "thaw"
)

// NewFreezerCommand returns the command `virt-freezer`.
func NewFreezerCommand() *cobra.Command {
	var freeze, thaw bool
	var name, namespace string
	seconds := int32(defaultUnfreeze / time.Second)
	runDir := names.RunDir
	cmd := &cobra.Command{
		Use:   names.VirtFreezer,
		Short: "Freeze the guest's file systems for a backup, or thaw them",
		Long: "A guest without an agent, or that does not run, is left alone, and that is no error. A guest that\n" +
			"nobody thaws is thawed after a time.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := probeRequest{
				Quiesce: quiesceThaw, Timeout: freezeTimeout, UnfreezeAfter: time.Duration(seconds) * time.Second,
			}
			if freeze {
				request.Quiesce = quiesceFreeze
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), request.Timeout+time.Second)
			defer cancel()
			answer, err := askLauncher(ctx, filepath.Join(runDir, names.SocketProbe), request)
			if err != nil {
				return err
			}
			if !answer.Passed {
				return errors.New(answer.Message)
			}
			fmt.Fprintln(cmd.OutOrStdout(), answer.Message)
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&freeze, "freeze", false, "freeze the guest's file systems")
	f.BoolVar(&thaw, "unfreeze", false, "thaw them")
	f.StringVar(&name, "name", "", "name of the VirtualMachineInstance; the pod has no other")
	f.StringVar(&namespace, "namespace", "", "its namespace")
	f.Int32Var(&seconds, "unfreezeTimeoutSeconds", seconds, "when the guest is thawed by itself; 0 is never")
	f.StringVar(&runDir, "run-dir", runDir, "where the launcher's sockets are")
	cmd.MarkFlagsOneRequired("freeze", "unfreeze")
	cmd.MarkFlagsMutuallyExclusive("freeze", "unfreeze")
	return cmd
}

// defaultUnfreeze is how long a guest is frozen for a backup program at most, unless that says how long.
const defaultUnfreeze = 5 * time.Minute

const noAgent = "the guest has no agent: nothing to do"

// quiesce does what virt-freezer asks for. What cannot be frozen because no agent is there, or because nothing runs,
// is backed up as it is: the program would call its backup failed otherwise.
func (p *prober) quiesce(ctx context.Context, r probeRequest) probeAnswer {
	s := p.service
	state := s.guest.snapshot()
	switch {
	case !s.guest.exists(), state.GetLifecycle().Final():
		return probeAnswer{Passed: true, Message: "no guest runs: nothing to do"}
	case state.GetLifecycle() == pb.Lifecycle_LIFECYCLE_PAUSED:
		return probeAnswer{Passed: true, Message: "the guest is paused: nothing to do"}
	case !state.GetAgentConnected() && r.Quiesce == quiesceFreeze:
		return probeAnswer{Passed: true, Message: noAgent}
	}
	var err error
	did := "the guest's file systems are frozen"
	switch r.Quiesce {
	case quiesceFreeze:
		_, err = s.Freeze(ctx, &pb.FreezeRequest{UnfreezeAfter: durationpb.New(r.UnfreezeAfter)})
	case quiesceThaw:
		did = "the guest's file systems are thawed"
		_, err = s.Unfreeze(ctx, &pb.UnfreezeRequest{})
	default:
		err = fmt.Errorf("unknown request %q", r.Quiesce)
	}
	switch {
	case err != nil && !state.GetAgentConnected(): // it was asked, since it may have frozen the guest before it went
		return probeAnswer{Passed: true, Message: noAgent}
	case err != nil:
		return probeAnswer{Message: printable(status.Convert(err).Message(), maxProbeMessage)}
	}
	return probeAnswer{Passed: true, Message: did}
}
