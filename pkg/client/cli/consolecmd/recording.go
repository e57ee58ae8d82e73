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

// recording is the file of --record. It is begun with the first connection, beside a recording that is there already,
// which it replaces when the session ends: a console that cannot be opened takes nothing from it.
type recording struct {
	path, title string
	now         func() time.Time
	ctx         context.Context
	term        *screen

	recorder *console.Recorder
	finish   func() error
	err      error // why there is none
	told     bool  // a Write has returned err
}

// begin begins the recording, once.
func (r *recording) begin() {
	if r.recorder == nil && r.err == nil {
		r.err = r.open()
	}
}

func (r *recording) open() error {
	out, keep, drop, err := r.file()
	if err != nil {
		return fmt.Errorf("open the recording: %w", err)
	}
	width, height, ok := r.term.Size()
	if !ok {
		width, height = defaultWidth, defaultHeight
	}
	recorder, err := console.NewRecorder(out, r.now, width, height, r.title)
	if err != nil {
		return errors.Join(err, drop())
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
		return errors.Join(failed, recorder.Close(), keep())
	}
	return nil
}

// file opens what is written until the session ends: a file beside the one that is wanted, or a device. keep gives it
// its name, drop removes it.
func (r *recording) file() (out io.Writer, keep, drop func() error, err error) {
	if info, err := os.Stat(r.path); err == nil && !info.Mode().IsRegular() {
		device, err := os.OpenFile(r.path, os.O_WRONLY, 0)
		if err != nil {
			return nil, nil, nil, err
		}
		return device, device.Close, device.Close, nil
	}
	file, err := part.Open(r.path, 0o600)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := errors.Join(file.Forget(), file.Truncate(0)); err != nil { // one that was killed has left it
		return nil, nil, nil, errors.Join(err, file.Leave())
	}
	return file, file.Finish, file.Discard, nil
}

// Write records what the guest writes.
func (r *recording) Write(p []byte) (int, error) {
	if r.begin(); r.err != nil {
		r.told = true
		return 0, r.err
	}
	return r.recorder.Write(p)
}

// end gives the recording its name.
func (r *recording) end() error {
	switch {
	case r.finish != nil:
		return r.finish()
	case r.told:
		return nil
	}
	return r.err
}
