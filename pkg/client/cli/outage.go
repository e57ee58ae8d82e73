package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/outage"
)

// ReportOutages is a context in which what follows the cluster says on standard error that it has no answer for a
// while, and that it has one again.
func (f *Factory) ReportOutages(ctx context.Context) context.Context {
	return outage.With(ctx, &outage.Reporter{
		Lost: func(err error) {
			f.IO.say("warning: %s; goes on when it answers", Unanswered(err, f.Connection()))
		},
		Back: func(after time.Duration) {
			f.IO.say("note: there is an answer again, after %s", max(after, time.Second).Round(time.Second))
		},
		Now: f.Now,
	})
}

// Unanswered says of a server that had answered before that it does not now.
func Unanswered(err error, c Connection) string {
	if !isNetwork(err) {
		return Explain(err, c)
	}
	server := "the API server"
	if c.Server != "" {
		server += " at " + c.Server
	}
	return fmt.Sprintf("%s does not answer%s: %s", server, c.where(), networkCause(err))
}
