package uploadcontroller

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/service/frame"
)

// created takes the API server's answer to the creation of the upload's pod. That a quota or a policy refuses it is the
// state of the upload, and tried again. An error ends the step.
func (s *Step) created(view View, err error) error {
	switch {
	case err == nil, frame.Ending(err):
		return nil
	case apierrors.IsAlreadyExists(err): // its event comes, unless it is another owner's
		s.RequeueAfter = again
		return nil
	case frame.Refused(err):
		s.say(view, "the upload's pod is refused: "+err.Error())
		s.RequeueAfter = again
		return nil
	}
	return fmt.Errorf("create the upload's pod: %w", err)
}
