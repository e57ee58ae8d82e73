package clonecontroller

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
)

// The functions of this file take what the API server answers to a creation. An error that they return ends the step,
// and it is tried again.

// madeSnapshot takes the answer to the creation of the temporary snapshot.
func (s *Step) madeSnapshot(view *View, err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return s.failed(view, fmt.Errorf("failed creating snapshot %s for clone %s: %w", s.CreateSnapshot.Name,
		view.Clone.Name, err))
}

// madeCopy takes the answer to the creation of an object of a copied snapshot.
func (s *Step) madeCopy(view *View, object client.Object, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return frame.ErrStale // it is looked at next time
	}
	return s.part(view, fmt.Errorf("failed creating %T %s for clone %s: %w", object, object.GetName(),
		view.Clone.Name, err))
}

// madeRestore takes the answer to the creation of the restore.
func (s *Step) madeRestore(view *View, err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return s.part(view, fmt.Errorf("failed creating restore %s for clone %s: %w", s.CreateRestore.Name,
		view.Clone.Name, err))
}

// part takes the error of the creation of a part of the copy. One that is malformed ends the clone: another try would
// be refused as well.
func (s *Step) part(view *View, err error) error {
	if !frame.Malformed(err) {
		return s.failed(view, err)
	}
	failed := view.fail(reasonRestoreFailed, err.Error())
	s.Events, s.Status = failed.Events, failed.Status
	return nil
}

// failed has the clone's conditions say what the API server refused, a quota for example, and returns the error.
func (s *Step) failed(view *View, err error) error {
	if frame.Refused(err) && view.Clone.DeletionTimestamp == nil {
		s.refused = view.saying(err.Error())
	}
	return err
}
