package launcher

import (
	"fmt"
	"os"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
)

// report writes the termination message and gives the error that the process ends with: none after
// an orderly end, so that the exit code is 0.
func report(state *pb.GuestState, o Options) error {
	end := termination.Message{Lifecycle: state.Lifecycle, Reason: state.Reason, StateSaved: state.StateSaved}
	if err := o.note(end); err != nil {
		o.Log.Warn("the guest's end is not known to who was not watching", "err", err)
	}
	if state.Lifecycle == pb.Lifecycle_LIFECYCLE_CRASHED {
		return fmt.Errorf("the guest crashed: %s", state.Reason)
	}
	return nil
}

// note writes the termination message; the zero one is none.
func (o Options) note(message termination.Message) error {
	text, err := message.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.TerminationLog, text, 0o600); err != nil {
		return fmt.Errorf("write the termination message: %w", err)
	}
	return nil
}
