package whycmd

import (
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

// outcome returns the error that the program ends with: the code of the reports and errors that are not ok when they
// share one. It does not repeat what the reports say, which has been printed.
func outcome(reports []*why.Report, errs []error, migrate bool) error {
	said := utilerrors.NewAggregate(errs)
	for _, r := range reports {
		if err := exit(r, migrate); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	if len(errs) == 1 {
		return errs[0]
	}
	code := cli.ExitCode(utilerrors.NewAggregate(errs))
	if said == nil {
		return &cli.ExitError{Code: code}
	}
	return &cli.ExitError{Code: code, Err: said}
}

// withoutMissing makes errors of the reports about what does not exist: as text they have nothing to explain. Programs
// that read a report get it.
func (o *Options) withoutMissing(reports []*why.Report, errs []error) ([]*why.Report, []error) {
	var found []*why.Report
	for _, r := range reports {
		if !missing(r) {
			found = append(found, r)
			continue
		}
		cause := r.Causes[0]
		text := printable.Line(cause.Message)
		if len(cause.Fixes) > 0 && !strings.HasSuffix(text, "?") {
			text += "; see `" + printable.Line(strings.Join(cause.Fixes, "` and `")) + "`"
		}
		errs = append(errs, &absentError{action.Advice(o.Factory.Program, text)})
	}
	return found, errs
}

// absentError is an action.ErrNotFound that says what may have been meant.
type absentError struct{ text string }

func (e *absentError) Error() string        { return e.text }
func (e *absentError) Is(target error) bool { return target == action.ErrNotFound }

// missing reports that what the report is about does not exist.
func missing(r *why.Report) bool { return len(r.Causes) > 0 && r.Causes[0].Reason == "NotFound" }

// exit returns the report's exit code as an error without text, since the report has been printed.
func exit(r *why.Report, migrate bool) error {
	code, verdict := cli.ExitOK, r.Verdict
	if r.Connection != nil {
		verdict = r.Connection.Verdict
	}
	switch {
	case migrate && r.Migration != nil && r.Migration.Possible:
	case migrate:
		code = cli.ExitFailure
	case verdict == why.Broken:
		code = cli.ExitFailure
	case verdict == why.Waiting:
		code = cli.ExitTimeout
	case r.Connection != nil && verdict == why.Unknown:
		code = cli.ExitNotAllowed
	}
	if missing(r) {
		code = cli.ExitNotFound
	}
	if code == cli.ExitOK {
		return nil
	}
	return &cli.ExitError{Code: code}
}
