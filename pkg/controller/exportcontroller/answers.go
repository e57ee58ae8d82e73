package exportcontroller

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// The functions of this file take what the API server answers to creations.

// errTaken reports a name that another object has.
var errTaken = errors.New("the name is taken")

// made returns the error of an object that only this export may have made under its name.
func made(kind, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("create %s %s: %w", kind, name, errTaken)
	}
	return fmt.Errorf("create the %s: %w", kind, err)
}

// madeBefore returns the error of an object that an earlier step may have made.
func madeBefore(what string, err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create %s: %w", what, err)
}

// created takes the error of the creations. That a quota or a policy does not let the export have what it needs, or
// that a name is taken, is the export's status, and tried again; any other error ends the step.
func (s *Step) created(view *View, err error) error {
	if err == nil || !refused(err) {
		return err
	}
	s.RequeueAfter = min(s.RequeueAfter, again)
	s.Events = nil
	view.wait(s, exports.ReasonRefused, "%s", err.Error())
	return nil
}

// refused reports an error that says that the export cannot have what it needs.
func refused(err error) bool {
	if frame.Ending(err) {
		return false
	}
	return frame.Refused(err) || errors.Is(err, errTaken)
}
