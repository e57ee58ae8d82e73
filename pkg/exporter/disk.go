package exporter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

// image is the disk of a volume, open.
type image struct {
	*os.File
	size int64
	// tag changes when the content does: a file's with its change time, a device's with each run of the server
	// unless nobody else writes to it.
	tag  string
	info fs.FileInfo
}

// errChanged is the reason for which an answer is cut short.
var errChanged = errors.New("the disk has changed while it was read")

// open opens a disk. A link on the claim is followed on the claim only, and what is no regular file is refused before
// it is opened: a pipe would wait for ever.
func (h *handler) open(volume Volume) (*image, error) {
	if volume.kind == device {
		file, err := os.Open(volume.Path)
		if err != nil {
			return nil, fmt.Errorf("open the device of volume %s: %w", volume.Name, err)
		}
		size, err := file.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("measure the device: %w", err), file.Close())
		}
		return &image{File: file, size: size, tag: fmt.Sprintf(`"%x-%s"`, size, h.instance)}, nil
	}
	root, err := os.OpenRoot(volume.Path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := openRegular(root, names.ExportRaw)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noDiskError(volume.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("open the disk of volume %s: %w", volume.Name, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	tag := fmt.Sprintf(`"%x-%x"`, info.Size(), info.ModTime().UnixNano())
	return &image{File: file, size: info.Size(), tag: tag, info: info}, nil
}

// noDiskError is an fs.ErrNotExist: the volume of this name is empty.
type noDiskError string

func (e noDiskError) Error() string {
	return fmt.Sprintf("volume %s has no disk yet, which the first start of a VM with it makes; start the VM once",
		string(e))
}

func (noDiskError) Is(target error) bool { return target == fs.ErrNotExist }

// openRegular opens a regular file below a root.
func openRegular(root *os.Root, name string) (*os.File, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	// Another may have put a pipe there since.
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no regular file", name), file.Close())
	}
	return file, nil
}

// unchanged fails when a file was written to since it was opened.
func (i *image) unchanged() error {
	if i.info == nil {
		return nil
	}
	now, err := i.Stat()
	if err != nil {
		return err
	}
	if now.Size() != i.info.Size() || !now.ModTime().Equal(i.info.ModTime()) {
		return errChanged
	}
	return nil
}

// Read fails instead of giving the end of a disk that has changed meanwhile.
func (i *image) Read(p []byte) (int, error) {
	n, err := i.File.Read(p)
	if n > 0 {
		at, seekErr := i.Seek(0, io.SeekCurrent)
		if seekErr != nil {
			return 0, seekErr
		}
		if at >= i.size {
			if err := i.unchanged(); err != nil {
				return 0, err
			}
		}
	}
	return n, err
}

// head sets the headers of both formats.
func (i *image) head(w http.ResponseWriter) {
	w.Header().Set("ETag", i.tag)
	w.Header().Set(names.HeaderDiskSize, strconv.FormatInt(i.size, 10))
}

// serveRaw serves a disk as it is, or ranges of it.
func (h *handler) serveRaw(w http.ResponseWriter, r *http.Request, volume Volume) error {
	i, err := h.open(volume)
	if err != nil {
		return err
	}
	defer i.Close()
	i.head(w)
	w.Header().Set("Content-Type", "application/octet-stream")
	// Not the file itself, which would be copied past Read.
	http.ServeContent(w, r, "", time.Time{}, struct {
		io.Reader
		io.Seeker
	}{i, i.File})
	return nil
}

// serveGzip serves a disk compressed, from some byte of it on.
func (h *handler) serveGzip(w http.ResponseWriter, r *http.Request, volume Volume) error {
	i, err := h.open(volume)
	if err != nil {
		return err
	}
	defer i.Close()
	offset, err := parseOffset(r.URL.Query().Get(names.ExportOffset), i.size)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	i.head(w)
	if want := r.Header.Get("If-Match"); want != "" && want != i.tag {
		http.Error(w, "the disk has changed since: begin anew", http.StatusPreconditionFailed)
		return nil
	}
	w.Header().Set("Content-Type", "application/gzip")
	if r.Method == http.MethodHead {
		return nil
	}
	if err := compress(w, i.File, offset, i.size); err != nil {
		return err
	}
	return i.unchanged()
}

// parseOffset reads from which byte of a disk on it is wanted; from the first unless the parameter says.
func parseOffset(text string, size int64) (int64, error) {
	if text == "" {
		return 0, nil
	}
	offset, err := strconv.ParseUint(text, 10, 63)
	if err != nil || int64(offset) > size {
		return 0, fmt.Errorf("%s: not a byte of the disk, which has %d", names.ExportOffset, size)
	}
	return int64(offset), nil
}
