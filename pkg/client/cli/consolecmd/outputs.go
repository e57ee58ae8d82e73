package consolecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/virtkit/virtkit/pkg/client/action/console"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// A recording of what is seen at no terminal says the size that guests assume.
const (
	defaultWidth  = 80
	defaultHeight = 24
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

// outputs opens all that gets what the guest writes; done closes it.
func (o *Options) outputs(ctx context.Context, term *screen) (out io.Writer, done func() error, err error) {
	writers := []io.Writer{o.Factory.IO.RawOut()}
	var closers []func() error
	done = func() error {
		var failed []error
		for i := len(closers) - 1; i >= 0; i-- {
			failed = append(failed, closers[i]())
		}
		return errors.Join(failed...)
	}
	if o.Log != "" {
		file, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("open the log: %w", err)
		}
		writers, closers = append(writers, file), append(closers, file.Close)
	}
	if o.Record != "" {
		recorder, end, err := o.recorder(ctx, term)
		if err != nil {
			return nil, nil, errors.Join(err, done())
		}
		writers, closers = append(writers, recorder), append(closers, end)
	}
	if len(writers) == 1 {
		return writers[0], done, nil
	}
	return io.MultiWriter(writers...), done, nil
}

// recorder begins a recording, which follows the size of the terminal.
func (o *Options) recorder(ctx context.Context, term *screen) (*console.Recorder, func() error, error) {
	file, err := os.OpenFile(o.Record, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open the recording: %w", err)
	}
	width, height, ok := term.Size()
	if !ok {
		width, height = defaultWidth, defaultHeight
	}
	recorder, err := console.NewRecorder(file, o.Factory.Now, width, height, o.Name)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var resizing sync.WaitGroup
	var failed error
	resizing.Go(func() {
		term.Resizes(ctx, func(width, height int) { failed = errors.Join(failed, recorder.Resize(width, height)) })
	})
	return recorder, func() error {
		cancel()
		resizing.Wait()
		return errors.Join(failed, recorder.Close(), file.Close())
	}, nil
}
