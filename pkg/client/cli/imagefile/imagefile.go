// Package imagefile sends a file with an image to a claim, for `virtctl image-upload`, `image pull` and `image import`:
// the flags that they share, the look at the file, and the progress of the upload.
package imagefile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/copybar"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Options of every command that sends an image.
type Options struct {
	Claim       upload.Claim
	Block       bool
	Quiet       bool
	WaitSeconds uint
	// Watcher is told how far it is, instead of a terminal; nil tells the terminal.
	Watcher Watcher
}

// Watcher is told how far a copy is, step after step.
type Watcher interface {
	// Begin takes where a step begins: what was done before is no speed.
	Begin(step string, done, total int64)
	// Show takes how far it is; a total below 0 is not known.
	Show(step string, done, total int64)
	// End ends the last step.
	End()
}

// The values of flags that are not given.
const (
	DefaultAccessMode  = "ReadWriteOnce"
	DefaultWaitSeconds = 300
)

var accessModes = []string{"ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod"}

// Help is what the flags' help says where the commands differ.
type Help struct {
	// Claim is the claim that the flags are of, with its article.
	Claim string
	// Size and Block are appended to the help of --size and --block-volume.
	Size, Block string
}

// AddFlags adds the flags.
func (o *Options) AddFlags(cmd *cobra.Command, help Help) {
	flags := cmd.Flags()
	flags.StringVar(&o.Claim.Size, "size", "", "Size of "+help.Claim+", such as 10Gi"+help.Size)
	flags.StringVar(&o.Claim.StorageClass, "storage-class", "",
		"Storage class of "+help.Claim+"; the cluster's default unless given")
	flags.StringVar(&o.Claim.AccessMode, "access-mode", DefaultAccessMode, "Access mode of "+help.Claim)
	flags.BoolVar(&o.Block, "block-volume", false, "Make a claim that is a block device"+help.Block)
	flags.UintVar(&o.WaitSeconds, "wait-secs", DefaultWaitSeconds, "Seconds to wait while the upload does not go on")
	flags.BoolVarP(&o.Quiet, "quiet", "q", false, "Show no progress")
	cli.CompleteFlag(cmd, "access-mode", accessModes...)
}

// ValidateAccessMode reports an access mode that there is not.
func (o *Options) ValidateAccessMode() error {
	if !slices.Contains(accessModes, o.Claim.AccessMode) {
		return cli.UsageErrorf("--access-mode: %q is not one of %s", o.Claim.AccessMode,
			strings.Join(accessModes, ", "))
	}
	return nil
}

// ValidateSize reports a size, if there is one, that is none.
func (o *Options) ValidateSize() error {
	if o.Claim.Size == "" {
		return nil
	}
	size, err := resource.ParseQuantity(o.Claim.Size)
	switch {
	case err != nil || size.Sign() <= 0:
		return cli.UsageErrorf("--size: %q is not a size; write one such as 10Gi", o.Claim.Size)
	case size.Value() < 1<<20:
		return cli.UsageErrorf("--size: %s is %d bytes; write a size with its unit, such as %sGi", o.Claim.Size,
			size.Value(), strings.TrimRight(o.Claim.Size, "mkKMGTPEi"))
	}
	return nil
}

// File is an open file with an image.
type File struct {
	*os.File
	Image upload.Image
	// Found is what the file says of its disk.
	Found imageformat.Info
}

// Open opens the file at path and looks at it, so that one which would be refused is not sent. name is what the user
// calls it. format is what the image is, or empty to find it out; a VHD without a header is known by its name alone.
func Open(path, name string, format imageformat.Format) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	opened, err := look(file, path, name, formatOf(name, format))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return opened, nil
}

// formatOf returns what an image of that name is said to be.
func formatOf(name string, format imageformat.Format) imageformat.Format {
	if format == "" && strings.HasSuffix(strings.ToLower(name), ".vhd") {
		return imageformat.VHD
	}
	return format
}

func look(file *os.File, path, name string, format imageformat.Format) (*File, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, unreadable(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, cli.UsageErrorf("%s is not a regular file; name one with an image", path)
	}
	out := &File{File: file, Image: upload.Image{ReaderAt: file, Size: info.Size(), Format: format}}
	if out.Found, err = out.Image.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if out.Found.Format == imageformat.Raw && out.Found.VirtualSize > 0 { // not one that is compressed
		if out.Image, err = out.Image.WithoutHoles(file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// OpenArchive opens a file whose content is not looked at.
func OpenArchive(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = unreadable(path, err)
	case !info.Mode().IsRegular():
		err = cli.UsageErrorf("%s is not a regular file; name an archive", path)
	case info.Size() == 0:
		err = fmt.Errorf("%s: the archive is empty", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &File{File: file, Image: upload.Image{ReaderAt: file, Size: info.Size()}}, nil
}

func unreadable(path string, err error) error {
	var of *os.PathError
	if errors.As(err, &of) {
		return &cli.ExitError{Code: cli.ExitUsage, Err: errors.New(cli.WhyUnreadable(path, of.Err))}
	}
	return err
}

// Send uploads as how says, and shows on a terminal how far the upload of title is. cancel is what the user is told
// about ending an upload that was interrupted; it may be empty.
func (o *Options) Send(
	ctx context.Context, f *cli.Factory, api upload.API, title, cancel string, how upload.Options,
) (uploads.State, error) {
	how.Session, how.Patience = upload.NewSession(), time.Duration(o.WaitSeconds)*time.Second
	ended := func() {}
	if bar := o.watcher(f); bar != nil {
		ended = bar.End
		size := how.Image.Size
		if how.ContainerDisk != nil {
			size = -1
		}
		bar.Show(title, 0, size)
		take := bar.Begin
		how.Show = func(s uploads.State) {
			if s.Received > 0 {
				take(title, s.Received, s.Size)
				take = bar.Show
			}
		}
	}
	how.Waits = func(why string) {
		ended() // the note has a line of its own
		fmt.Fprintf(f.IO.ErrOut, "note: %s: %s\n", title, why)
	}
	how.Again = func(why string) {
		ended()
		fmt.Fprintf(f.IO.ErrOut, "note: %s: %s; it begins anew with another pod\n", title, why)
	}
	state, err := upload.Run(ctx, api, how)
	ended() // before anything else is said: the bar's line is open until then
	switch {
	case err == nil || state.Phase.Final():
	case how.ContainerDisk != nil:
		f.IO.Interrupted(err, "the cluster goes on with it%s", cancel)
	case state.Phase != "": // it was asked for
		f.IO.Interrupted(err, "the upload goes on where it is when the command is repeated within ten minutes%s",
			cancel)
	}
	return state, err
}

// Progress returns what is told how many bytes of title were sent, from the start again with each try, and what ends
// the line that shows it. Neither does anything where nobody watches.
func (o *Options) Progress(f *cli.Factory, title string, size int64) (show func(sent int64), end func()) {
	bar := o.watcher(f)
	if bar == nil {
		return func(int64) {}, func() {}
	}
	return func(sent int64) { bar.Show(title, sent, size) }, bar.End
}

// watcher returns what is told how far a copy is; nil where nobody watches.
func (o *Options) watcher(f *cli.Factory) Watcher {
	switch {
	case o.Watcher != nil:
		return o.Watcher
	case !f.IO.ErrIsTTY || o.Quiet:
		return nil
	}
	return copybar.New(f.IO.RawErr(), f.Now, f.IO.LineWidth)
}

// Fetch downloads a source, and shows how far the download of title is.
func (o *Options) Fetch(
	ctx context.Context, f *cli.Factory, fetcher *images.Fetcher, title string, source *images.Source,
) (*images.File, error) {
	if bar := o.watcher(f); bar != nil {
		defer bar.End()
		take := bar.Begin
		fetcher.Show = func(have, size int64) {
			if size == 0 {
				size = -1
			}
			take(title, have, size)
			take = bar.Show
		}
	}
	return fetcher.Fetch(ctx, source)
}
