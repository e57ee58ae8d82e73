package vmexportcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// target is where a download goes: a file beside the one that is wanted until all is there, or a stream.
type target struct {
	file *os.File
	// temporary says that the file is not the one that is wanted yet.
	temporary bool
	path      string
	// size is how long the file is to be, holes at its end included.
	size int64
	// out is a stream; written says that it has something of this download.
	out     io.Writer
	written bool
	// closed says that it has been finished or discarded.
	closed bool
}

// open makes a target of a path; "-" is out. random is a part of a name.
func open(path string, out io.Writer, random string) (*target, error) {
	if path == "-" {
		return &target{out: out}, nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, cli.UsageErrorf("--output: %s is a directory; name a file in it", path)
	case err == nil && !info.Mode().IsRegular():
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, cli.UsageErrorf("--output: %s", cli.WhyUnwritable(path, err))
		}
		return &target{out: file, file: file}, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, cli.UsageErrorf("--output: %s", cli.WhyUnwritable(path, err))
	}
	directory, name := filepath.Split(path)
	part := filepath.Join(directory, "."+name+"."+random+".part")
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, cli.UsageErrorf("--output: %s", cli.WhyUnwritable(path, err))
	}
	return &target{file: file, temporary: true, path: path}, nil
}

// Begin implements export.Output.
func (t *target) Begin() error {
	if !t.temporary {
		if t.written {
			return errors.New("what was written to the output cannot be taken back: repeat the command, to a file if " +
				"connections are cut often")
		}
		return nil
	}
	t.size = 0
	if err := t.file.Truncate(0); err != nil {
		return err
	}
	_, err := t.file.Seek(0, io.SeekStart)
	return err
}

func (t *target) Write(p []byte) (int, error) {
	t.written = true
	if t.temporary {
		n, err := t.file.Write(p)
		t.size += int64(n)
		return n, err
	}
	return t.out.Write(p)
}

// Skip implements export.Output: a file gets a hole.
func (t *target) Skip(n int64) error {
	if t.temporary {
		t.size += n
		_, err := t.file.Seek(n, io.SeekCurrent)
		return err
	}
	t.written = true
	_, err := t.out.Write(make([]byte, n))
	return err
}

// finish makes the file the one that is wanted.
func (t *target) finish() error {
	t.closed = true
	switch {
	case t.temporary:
		err := errors.Join(t.file.Truncate(t.size), t.file.Sync(), t.file.Close())
		if err == nil {
			err = os.Rename(t.file.Name(), t.path)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("write %s: %w", t.path, err), os.Remove(t.file.Name()))
		}
		return nil
	case t.file != nil:
		return t.file.Close()
	}
	return nil
}

// discard leaves nothing behind of a download that was not finished.
func (t *target) discard() error {
	switch {
	case t.closed:
		return nil
	case t.temporary:
		return errors.Join(t.file.Close(), os.Remove(t.file.Name()))
	case t.file != nil:
		return t.file.Close()
	}
	return nil
}
