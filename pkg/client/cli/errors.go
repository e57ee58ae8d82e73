package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// Exit codes, a contract with scripts; see docs/output.md.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitNotAllowed  = 4
	ExitTimeout     = 8
	ExitInterrupted = 130
	// ExitLost is OpenSSH's for the same: no program in a guest should end with it.
	ExitLost = 255
)

// UsageError is a command line that cannot be meant: a flag or argument is unknown, missing or
// contradicts another.
type UsageError struct{ msg string }

func (e *UsageError) Error() string { return e.msg }

// UsageErrorf makes a UsageError.
func UsageErrorf(format string, args ...any) error {
	return &UsageError{msg: fmt.Sprintf(format, args...)}
}

// Joined returns the errors that there are as one: of several an aggregate, which Explain gives a line each, and whose
// exit code is 1 unless they agree.
func Joined(errs ...error) error {
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return utilerrors.NewAggregate(errs) // nil of none
}

// ExitError ends the program with a code of its own, for example the guest's. Err is shown unless nil.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the program's exit code for err.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	if many := utilerrors.Aggregate(nil); errors.As(err, &many) {
		return commonCode(many.Errors())
	}
	var usage *UsageError
	switch {
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, action.ErrTimeout), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err),
		errors.Is(err, context.DeadlineExceeded) && !isNetwork(err):
		return ExitTimeout
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, action.ErrLost):
		return ExitLost
	case errors.Is(err, action.ErrNotInstalled), client.NoPath(err):
		return ExitFailure
	case apierrors.IsNotFound(err), errors.Is(err, action.ErrNotFound):
		return ExitNotFound
	case isDenial(err):
		return ExitFailure
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return ExitNotAllowed
	}
	return ExitFailure
}

// commonCode returns the code that all errs share, or ExitFailure.
func commonCode(errs []error) int {
	code := ExitOK
	for i, err := range errs {
		c := ExitCode(err)
		if i > 0 && c != code {
			return ExitFailure
		}
		code = c
	}
	return code
}
