package launcher

import (
	"encoding/json"
	"fmt"
	"os"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// termination is the container's termination message, for virt-handler when it was not watching.
type termination struct {
	Lifecycle string `json:"lifecycle"`
	Reason    string `json:"reason"`
}

// report writes the termination message and gives the error that the process ends with: none after
// an orderly end, so that the exit code is 0.
func report(state *pb.GuestState, o Options) error {
	b, err := json.Marshal(termination{Lifecycle: state.Lifecycle.String(), Reason: state.Reason})
	if err != nil {
		return fmt.Errorf("write the termination message: %w", err)
	}
	if err := os.WriteFile(o.TerminationLog, b, 0o600); err != nil {
		o.Log.Warn("cannot write the termination message", "err", err)
	}
	if state.Lifecycle == pb.Lifecycle_LIFECYCLE_CRASHED {
		return fmt.Errorf("the guest crashed: %s", state.Reason)
	}
	return nil
}
