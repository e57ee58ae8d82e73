package consolecmd

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/virtkit/virtkit/pkg/client/action/console"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// complete reads what is to be typed.
func (o *Options) complete() error {
	for _, text := range o.Send {
		read, err := console.Unescape(text)
		if err != nil {
			return cli.UsageErrorf("--send: %s", err)
		}
		o.texts = append(o.texts, read)
	}
	return nil
}

// outputs is all that gets what the guest writes. done closes it, and connected hears that the console is open, maybe
// again; its error ends the session.
type outputs struct {
	io.Writer
	done      func() error
	connected func() error
}

// outputs opens all that gets what the guest writes.
func (o *Options) outputs(ctx context.Context, term *screen) (*outputs, error) {
	writers := []io.Writer{o.Factory.IO.RawOut()}
	var closers []func() error
	connected := func() error { return nil }
	done := func() error {
		var failed []error
		for i := len(closers) - 1; i >= 0; i-- {
			failed = append(failed, closers[i]())
		}
		return errors.Join(failed...)
	}
	if o.Log != "" {
		file, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, cli.UsageErrorf("--log: %s", cli.WhyUnwritable(o.Log, err))
		}
		writers, closers = append(writers, file), append(closers, file.Close)
	}
	if o.Record != "" {
		if err := cli.CheckOutput("--record", o.Record); err != nil {
			return nil, errors.Join(err, done())
		}
		r := &recording{path: o.Record, title: o.Name, now: o.Factory.Now, ctx: ctx, term: term}
		if err := r.take(); err != nil {
			return nil, errors.Join(err, done())
		}
		writers, closers = append(writers, r), append(closers, r.end)
		connected = r.begin
	}
	if len(writers) == 1 {
		return &outputs{writers[0], done, connected}, nil
	}
	return &outputs{io.MultiWriter(writers...), done, connected}, nil
}
