package export

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// Point is where a download has come to, and of which content: another run goes on there as long as the server has the
// same.
type Point struct {
	// Format is what comes, Tag the content's ETag.
	Format v1beta1.ExportVolumeFormat `json:"format"`
	Tag    string                     `json:"etag"`
	// Done is how many bytes have come, of Size: of the disk, or of the image as it comes by ranges.
	Done int64 `json:"done"`
	Size int64 `json:"size"`
	// Disk is the size of the disk, bytes; below 0 if it is not known.
	Disk int64 `json:"disk"`
}

// Valid reports whether a point may be one of a download.
func (p *Point) Valid() bool { return p.Tag != "" && p.Size > 0 && p.Done > 0 && p.Done <= p.Size }

// errAnew is the reason for which a download does not go on where a run before has come to.
var errAnew = errors.New("the content is not what the run before has begun with")

// byRanges reports whether a format can come in ranges of bytes.
func byRanges(format v1beta1.ExportVolumeFormat) bool {
	return format == v1beta1.KubeVirtRaw || format == exports.FormatQCOW2 || format == exports.FormatOVA
}

// resume sets a download to where the run before has come to.
func (f *fetch) resume() {
	if f.From == nil || !f.From.Valid() {
		return
	}
	f.format, f.tag, f.done, f.size, f.disk = f.From.Format, f.From.Tag, f.From.Done, f.From.Size, f.From.Disk
	f.ranges, f.resumed = byRanges(f.format), true
}

// anew forgets where the run before has come to.
func (f *fetch) anew() {
	f.tag, f.done, f.size, f.disk, f.ranges, f.resumed = "", 0, -1, -1, false, false
}

// rest returns the address of what is missing, and sets the headers that ask for it.
func (f *fetch) rest(address string, header http.Header) (string, error) {
	header.Set("If-Match", f.tag)
	if f.ranges {
		header.Set("Range", fmt.Sprintf("bytes=%d-", f.done))
		return address, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("the export's address %q is none: %w", address, err)
	}
	query := u.Query()
	query.Set(names.ExportOffset, strconv.FormatInt(f.done, 10))
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// goesOn fails unless an answer is what is missing of the same content. It reports whether nothing is.
func (f *fetch) goesOn(r *http.Response) (whole bool, err error) {
	switch {
	case r.StatusCode == http.StatusPreconditionFailed && f.resumed:
		return false, errAnew
	case f.ranges && r.StatusCode == http.StatusRequestedRangeNotSatisfiable && f.done == f.size:
		return true, nil // If-Match has held
	case f.ranges && r.StatusCode == http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/%d", f.done, f.size-1, f.size)
		if got := r.Header.Get("Content-Range"); got != want {
			return false, final{fmt.Errorf("the server sends %q, and was asked for %q", got, want)}
		}
	case f.ranges && r.StatusCode == http.StatusOK:
		return false, final{errors.New("the server sends all of the disk, and was asked for the rest of it")}
	default:
		if err := refusal(r); err != nil {
			return false, err
		}
	}
	if got := r.Header.Get("ETag"); got != f.tag {
		if f.resumed {
			return false, errAnew
		}
		return false, changed("the disk has changed since the download began: its ETag is %s, and was %s", got, f.tag)
	}
	return false, nil
}

// partSize is how much of an image that comes by ranges is written at a time, bytes.
const partSize = 1 << 20

// parts writes what comes by ranges.
func (f *fetch) parts(body io.Reader) error {
	buffer := make([]byte, partSize)
	f.Show(f.done, f.size)
	for {
		n, err := io.ReadFull(body, buffer)
		if f.done+int64(n) > f.size {
			return final{fmt.Errorf("the server sends more than the %d bytes of the image", f.size)}
		}
		if n > 0 {
			if err := f.write(buffer[:n], buffer[:n]); err != nil {
				return final{err}
			}
			if err := f.came(n); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			return err
		case f.done < f.size:
			return io.ErrUnexpectedEOF
		default:
			return nil
		}
	}
}

// came notes that some of the content was written.
func (f *fetch) came(n int) error {
	f.done += int64(n)
	f.progressed = time.Now()
	f.Show(f.done, f.size)
	marker, ok := f.out.(Marker)
	if !ok {
		return nil
	}
	err := marker.Mark(Point{Format: f.format, Tag: f.tag, Done: f.done, Size: f.size, Disk: f.disk})
	if err != nil {
		return final{err}
	}
	return nil
}
