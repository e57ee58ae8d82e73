// Package uploader is the server in the pod that takes the upload of one disk image: `virt-launcher upload`. It listens
// at a unix socket in the pod's run volume, to which the node's virt-handler leads one client at a time. The bytes go
// through a checksum, are decompressed, and become a raw disk: sparse and at once when they are raw, else by way of a
// file that qemu-img converts, confined, when imageformat accepts it. They come from the client, or are the disk of a
// container image that the pod has mounted; then clients only ask how far it is.
//
// A connection may be cut at any byte: the next one goes on where the pod is. Nothing on the claim looks like a disk
// before all of it is there and verified: disk.img gets its name at the end. The result is the container's termination
// message, which virt-controller writes to the claim.
package uploader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Options of one upload.
type Options struct {
	// Request is the upload.
	Request uploads.Request
	// ImageDirectory is where the container image is mounted whose disk is taken, called Image; "" takes bytes that
	// clients send. ImagePath is the disk's in it; "" means the only file below /disk.
	ImageDirectory, Image, ImagePath string
	// Socket is the socket to listen at.
	Socket string
	// Directory is the mount point of the claim's file system; Device is the claim's block device instead.
	Directory, Device string
	// Scratch is a directory for images that are to be converted to a device.
	Scratch string
	// Capacity is the claim's, bytes: no disk is larger. 0 is not known.
	Capacity int64
	// Overhead is the share of a claim that its file system needs for itself.
	Overhead float64
	// Idle is the time without a byte after which the upload is given up.
	Idle time.Duration
	// ConvertLimit bounds the time of a conversion.
	ConvertLimit time.Duration
	// Confined is the command that confines the program that follows.
	Confined []string
	// QEMUImg is the program that converts.
	QEMUImg string
	// TerminationLog is the file of the termination message.
	TerminationLog string
	Log            *slog.Logger
}

// diskImage is the name of the image on a claim with a file system. The others are the names of files of an upload
// under way.
const (
	diskImage  = disk.ClaimImage
	unfinished = ".virtkit-upload.img"
	staged     = ".virtkit-upload.staged"
)

// linger is the time that a client has to take the last message.
const linger = 5 * time.Second

// upload is one upload.
type upload struct {
	Options
	target target
	// image is the disk of a container image that is taken; nil for one that is sent.
	image *os.File

	mu      sync.Mutex
	state   uploads.State
	changed chan struct{} // closed at a change
	sender  *sender       // who sends now; nil for nobody
	heard   time.Time     // when the last byte came, or a sender left
	intake  *intake
	ended   chan struct{} // closed when the state is final
}

// Run takes the upload, and returns nil when the disk is there. The end of ctx gives it up.
func Run(ctx context.Context, o Options) error {
	u, err := begin(o)
	if err != nil {
		return o.end(uploads.State{
			ID: o.Request.ID, Phase: uploads.Failed, Message: uploads.OneLine(err.Error()), Size: o.Request.Size,
			Intact: true, Ended: time.Now(),
		})
	}
	listener, err := listen(o.Socket)
	if err != nil {
		return err
	}
	var serving, reading sync.WaitGroup
	serving.Go(func() { u.serve(listener) })
	if u.image != nil {
		reading.Go(u.takeImage)
	}
	u.watch(ctx)
	u.close()
	reading.Wait()
	_ = listener.Close() // Accept says so
	done := make(chan struct{})
	go func() {
		defer close(done)
		serving.Wait()
	}()
	select {
	case <-done:
	case <-time.After(linger):
	}
	return o.end(u.now())
}

// begin makes an upload that takes bytes.
func begin(o Options) (*upload, error) {
	t, err := openTarget(o)
	if err != nil {
		return nil, err
	}
	var image *os.File
	if o.ImageDirectory != "" {
		if image, o.Request.Size, err = openImage(o); err != nil {
			return nil, err
		}
	}
	u := &upload{
		image:   image,
		Options: o, target: t, changed: make(chan struct{}), ended: make(chan struct{}), heard: time.Now(),
		state: uploads.State{ID: o.Request.ID, Phase: uploads.Receiving, Size: o.Request.Size},
	}
	u.intake = newIntake(u)
	return u, nil
}

func listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old socket: %w", err)
	}
	// It gets its name when it answers.
	temporary := filepath.Join(filepath.Dir(socket), ".listening")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for virt-handler: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	return listener, os.Rename(temporary, socket)
}

// watch returns when the upload has ended, and ends it when nobody sends for too long or ctx ends.
func (u *upload) watch(ctx context.Context) {
	ticker := time.NewTicker(max(u.Idle/10, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-u.ended:
			return
		case <-ctx.Done():
			u.change(func(s *uploads.State) { s.Interrupted = true })
			u.fail(errors.New("the upload's pod was ended: repeat the upload"))
			return
		case <-ticker.C:
			u.mu.Lock()
			idle := u.state.Phase == uploads.Receiving && time.Since(u.heard) > u.Idle
			received, size := u.state.Received, u.state.Size
			u.mu.Unlock()
			if idle {
				u.fail(fmt.Errorf("no byte came for %s, and %d of %d were there: the upload has expired, repeat it",
					u.Idle, received, size))
				return
			}
		}
	}
}

// now returns the state.
func (u *upload) now() uploads.State {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// change changes the state, unless it is final, and wakes those who wait for that.
func (u *upload) change(what func(*uploads.State)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.state.Phase.Final() {
		return
	}
	what(&u.state)
	close(u.changed)
	u.changed = make(chan struct{})
	if u.state.Phase.Final() {
		u.state.Ended = time.Now().UTC().Truncate(time.Second)
		close(u.ended)
	}
}

// fail ends the upload without a disk.
func (u *upload) fail(err error) {
	u.Log.Info("upload failed", "err", err)
	u.change(func(s *uploads.State) {
		s.Phase, s.Message = uploads.Failed, uploads.OneLine(sentence(err))
	})
}

// close removes what an upload that failed has left, once nobody works at it.
func (u *upload) close() {
	intact := u.intake.stop() && u.target.untouched()
	if err := u.target.discard(); err != nil {
		u.Log.Warn("what was begun is not removed", "err", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.state.Phase == uploads.Failed {
		u.state.Intact = intact
	}
}

// end writes the termination message.
func (o Options) end(state uploads.State) error {
	if err := os.WriteFile(o.TerminationLog, []byte(uploads.Encode(state)), 0o600); err != nil {
		return fmt.Errorf("write the termination message: %w", err)
	}
	if state.Phase != uploads.Succeeded {
		return errors.New(state.Message)
	}
	return nil
}

// sentence returns an error as users are to read it.
func sentence(err error) string {
	var refused *imageformat.RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Reason
	case isFull(err):
		return errFull.Error()
	}
	return err.Error()
}
