package consolecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/console"
	"github.com/virtkit/virtkit/pkg/client/action/part"
)

// A recording of what is seen at no terminal says the size that guests assume.
const (
	defaultWidth  = 80
	defaultHeight = 24
)

// recording is the file of --record. It is written beside a recording that is there already, from the first connection
// on, and replaces that when the session ends: a console that cannot be opened takes nothing from it, nor does one of
// which nothing was seen, or a recording that is not whole.
type recording struct {
	path, title string
	now         func() time.Time
	ctx         context.Context
	term        *screen

	file     *part.File // nil for a device
	recorder *console.Recorder
	finish   func() error
	err      error // why there is none
	lost     error // why it is not whole
}

// take takes the file, and writes nothing yet: one that another session writes is refused before the console is opened,
// which would end that session.
func (r *recording) take() error {
	if info, err := os.Stat(r.path); err == nil && !info.Mode().IsRegular() {
		return nil
	}
	file, err := part.Open(r.path, 0o600)
	if errors.Is(err, part.ErrBusy) {
		return fmt.Errorf("--record: %w; end that one, or name another file", err)
	}
	if err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	r.file = file
	return nil
}

// begin begins the recording, once. Its error is that of the session.
func (r *recording) begin() error {
	if r.recorder == nil && r.err == nil {
		r.err = r.open()
	}
	return r.err
}

func (r *recording) open() error {
	out, keep, leave, err := r.output()
	if err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	width, height, ok := r.term.Size()
	if !ok {
		width, height = defaultWidth, defaultHeight
	}
	recorder, err := console.NewRecorder(out, r.now, width, height, r.title)
	if err != nil {
		return errors.Join(err, leave())
	}
	ctx, cancel := context.WithCancel(r.ctx)
	var resizing sync.WaitGroup
	var failed error
	resizing.Go(func() {
		r.term.Resizes(ctx, func(width, height int) { failed = errors.Join(failed, recorder.Resize(width, height)) })
	})
	r.recorder, r.finish = recorder, func() error {
		cancel()
		resizing.Wait()
		if r.lost == nil {
			failed = errors.Join(failed, recorder.Close())
		}
		switch {
		case r.lost != nil, failed != nil:
			return errors.Join(failed, leave())
		case r.file != nil && recorder.Empty():
			if _, err := os.Stat(r.path); err == nil {
				return r.file.Discard()
			}
		}
		return keep()
	}
	return nil
}

// output returns what is written until the session ends. keep gives it its name, and leave leaves what was recorded, as
// it is not whole, where it is.
func (r *recording) output() (out io.Writer, keep, leave func() error, err error) {
	if r.file == nil {
		device, err := os.OpenFile(r.path, os.O_WRONLY, 0)
		if err != nil {
			return nil, nil, nil, err
		}
		return device, device.Close, device.Close, nil
	}
	if err := errors.Join(r.file.Forget(), r.file.Truncate(0)); err != nil { // one that was killed has left it
		return nil, nil, nil, err
	}
	leave = func() error {
		return errors.Join(fmt.Errorf("%s is not written, as the recording is not whole; what there is of it is in %s",
			r.path, r.file.Name()), r.file.Leave())
	}
	return r.file, r.file.Finish, leave, nil
}

// Write records what the guest writes.
func (r *recording) Write(p []byte) (int, error) {
	if err := r.begin(); err != nil {
		return 0, err
	}
	n, err := r.recorder.Write(p)
	if err != nil {
		r.lost = err
	}
	return n, err
}

// end gives the recording its name. Of one that was not begun only what an earlier session has left stays.
func (r *recording) end() error {
	if r.finish != nil {
		return r.finish()
	}
	if r.file == nil {
		return nil
	}
	if info, err := r.file.Stat(); err == nil && info.Size() > 0 {
		return r.file.Leave()
	}
	return r.file.Discard()
}
