package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/outage"
)

// ReportOutages returns a context whose followers of the cluster print on standard error that they have had no answer
// for a while, and that they have one again.
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

// Unanswered returns the sentence that a server that had answered before does not answer now.
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
