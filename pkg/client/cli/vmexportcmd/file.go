package vmexportcmd

import (
	"errors"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/action/part"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// target is where a download goes: a file beside the one that is wanted until all is there, or a stream.
type target struct {
	// part is the file while it is not the one that is wanted.
	part *part.File
	// what is downloaded, for another run that goes on with it.
	what what
	// made is the UID of the export that was made for the download; empty for none.
	made types.UID
	now  func() time.Time
	note func(format string, arguments ...any)

	// size is how long the file is to be, holes at its end included, and sum the checksum of so much.
	size int64
	sum  uint32
	// last is the newest state that another run could go on with, noted when the file has it; nil for none.
	last *state
	// kept is the one that is noted, at noted.
	kept  *state
	noted time.Time
	// resumed says that the file has what the run before has left, and nothing of this one.
	resumed bool

	// out is a stream; written says that it has something of this download. device is what of it is to be closed.
	out     io.Writer
	device  *os.File
	written bool
	closed  bool
}

// CheckFile reports a path that cannot be written, before anything is done for what is to be in it.
func CheckFile(path string) error {
	if path == "-" {
		return nil
	}
	return cli.CheckOutput("--output", path)
}

// open makes a target of a path; "-" is out.
func open(path string, out io.Writer) (*target, error) {
	t := &target{now: time.Now, note: func(string, ...any) {}}
	if path == "-" {
		t.out = out
		return t, nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, cli.UsageErrorf("--output: %s is a directory; name a file in it", path)
	case err == nil && !info.Mode().IsRegular():
		if t.device, err = os.OpenFile(path, os.O_WRONLY, 0); err != nil {
			return nil, cli.UsageErrorf("--output: %s", cli.WhyUnwritable(path, err))
		}
		t.out = t.device
		return t, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, cli.UsageErrorf("--output: %s", cli.WhyUnwritable(path, err))
	}
	t.part, err = part.Open(path, 0o666)
	if errors.Is(err, part.ErrBusy) {
		return nil, err
	}
	if err != nil {
		return nil, cli.UsageErrorf("--output: %s", cli.WhyUnwritable(path, err))
	}
	return t, nil
}

// Begin implements export.Output.
func (t *target) Begin() error {
	if t.part == nil {
		if t.written {
			return errors.New("what was written to the output cannot be taken back: repeat the command, to a file if " +
				"connections are cut often")
		}
		return nil
	}
	if t.resumed {
		t.note("the disk may have changed since %s was written, so the download begins anew", t.part.Name())
	}
	t.size, t.sum, t.last, t.kept, t.resumed = 0, 0, nil, nil, false
	if err := errors.Join(t.part.Forget(), t.part.Truncate(0)); err != nil {
		return err
	}
	if t.made != "" {
		if err := t.take(t.made); err != nil {
			return err
		}
	}
	_, err := t.part.Seek(0, io.SeekStart)
	return err
}

func (t *target) Write(p []byte) (int, error) {
	if t.part == nil {
		t.written = true
		return t.out.Write(p)
	}
	n, err := t.part.Write(p)
	t.count(p[:n])
	return n, err
}

// Skip implements export.Output: a file gets a hole.
func (t *target) Skip(n int64) error {
	if t.part == nil {
		t.written = true
		_, err := t.out.Write(make([]byte, n))
		return err
	}
	_, err := t.part.Seek(n, io.SeekCurrent)
	for ; n > 0; n -= int64(len(zeros)) {
		t.count(zeros[:min(n, int64(len(zeros)))])
	}
	return err
}

// finish makes the file the one that is wanted.
func (t *target) finish() error {
	t.closed = true
	switch {
	case t.part != nil:
		if err := t.part.Truncate(t.size); err != nil {
			return errors.Join(err, t.part.Discard())
		}
		return t.part.Finish()
	case t.device != nil:
		return t.device.Close()
	}
	return nil
}

// discard leaves nothing behind of a download that was not finished.
func (t *target) discard() error {
	switch {
	case t.closed:
		return nil
	case t.part != nil:
		return t.part.Discard()
	case t.device != nil:
		return t.device.Close()
	}
	return nil
}
