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
	if err := o.note(termination{Lifecycle: state.Lifecycle.String(), Reason: state.Reason}); err != nil {
		o.Log.Warn("the guest's end is not known to who was not watching", "err", err)
	}
	if state.Lifecycle == pb.Lifecycle_LIFECYCLE_CRASHED {
		return fmt.Errorf("the guest crashed: %s", state.Reason)
	}
	return nil
}

// note writes the termination message; the zero one is none.
func (o Options) note(t termination) error {
	var b []byte
	if t != (termination{}) {
		var err error
		if b, err = json.Marshal(t); err != nil {
			return fmt.Errorf("write the termination message: %w", err)
		}
	}
	if err := os.WriteFile(o.TerminationLog, b, 0o600); err != nil {
		return fmt.Errorf("write the termination message: %w", err)
	}
	return nil
}
