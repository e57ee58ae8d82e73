package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	// triesAfterCut is how often a download that has begun is tried again, in vain each time, whatever Retries says:
	// the pod may have been evicted.
	triesAfterCut = 5
	// maxWords bounds what is read of a server's refusal, bytes.
	maxWords = 1 << 10
)

// Download is a volume of an export that is to be downloaded.
type Download struct {
	Namespace, Name string
	// Volume may be empty for an export with one.
	Volume string
	// Raw decompresses.
	Raw bool
	Reach
	// Retries is how often a request that fails is repeated.
	Retries int
	// Pause is between two tries.
	Pause time.Duration
	// Readiness is how long to wait for the export.
	Readiness time.Duration
	// Report, which may not be nil, is told what is waited for, Show how far the disk is, of total bytes; a total below
	// 0 is not known.
	Report func(string)
	Show   func(done, total int64)
}

// Output takes a download. Begin is called before anything is written, again when it begins anew, which an output that
// cannot refuses. Skip is Write of so many zeros.
type Output interface {
	io.Writer
	Begin() error
	Skip(n int64) error
}

// Result is what was downloaded.
type Result struct {
	// Bytes is the size of the disk, or of the archive as it came.
	Bytes int64
	// Format is what came.
	Format v1beta1.ExportVolumeFormat
	// Size is the size of the disk, as the server says it; below 0 when it does not.
	Size int64
	// Export is the export as it was then.
	Export *v1beta1.VirtualMachineExport
}

// final is an error that no other try mends.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// fetch is a download under way.
type fetch struct {
	Download
	api API
	out Output
	// export is as it was when the download began.
	export *v1beta1.VirtualMachineExport
	// tag and size are the disk's; size is below 0 for a server that does not say it, which cannot go on.
	tag  string
	size int64
	// done is how much of the disk there is.
	done int64

	format v1beta1.ExportVolumeFormat
}

// Run downloads. It fails when the disk may have changed meanwhile.
func (d Download) Run(ctx context.Context, api API, out Output) (Result, error) {
	f := &fetch{Download: d, api: api, out: out, size: -1}
	for tries := 0; ; {
		before := f.done
		err := f.try(ctx)
		if err == nil {
			return Result{Bytes: f.done, Format: f.format, Size: f.size, Export: f.export}, nil
		}
		var end final
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		if tries++; f.done > before {
			tries = 1
		}
		allowed := d.Retries
		if f.size >= 0 {
			allowed = max(allowed, triesAfterCut)
		}
		if errors.As(err, &end) || tries > allowed {
			return Result{}, err
		}
		d.Report("the download was cut: " + err.Error())
		if err := action.Sleep(ctx, d.Pause); err != nil {
			return Result{}, err
		}
	}
}

// try waits for the export, and downloads what is missing.
func (f *fetch) try(ctx context.Context) error {
	export, err := Wait(ctx, f.api, f.Namespace, f.Name, f.Readiness, f.Report)
	if err != nil {
		return final{err}
	}
	if f.export != nil && export.UID != f.export.UID {
		return final{fmt.Errorf("VirtualMachineExport %s/%s was deleted meanwhile, and is another one now", f.Namespace,
			f.Name)}
	}
	f.export = export
	server, err := reach(ctx, f.api, export, f.Reach)
	if err != nil {
		return final{err}
	}
	defer server.close()
	address, format, err := choose(server.link, f.Volume)
	if err != nil {
		return final{err}
	}
	f.format = format
	header := http.Header{}
	if f.size >= 0 {
		if address, err = from(address, f.done); err != nil {
			return final{err}
		}
		header.Set("If-Match", f.tag)
	}
	response, err := server.get(ctx, address, header)
	if err != nil {
		return unreachable(err)
	}
	defer response.Body.Close()
	if err := refusal(response); err != nil {
		return err
	}
	if f.size < 0 {
		if err := f.begin(response); err != nil {
			return err
		}
	}
	if f.size < 0 {
		err = f.copy(response)
	} else {
		err = f.members(response.Body)
	}
	if err != nil {
		return err
	}
	return f.stillReady(ctx)
}

// from returns an address with the offset in the disk at which the download is to go on.
func from(address string, offset int64) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("the export's address %q is none: %w", address, err)
	}
	query := u.Query()
	query.Set(names.ExportOffset, strconv.FormatInt(offset, 10))
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// unreachable tells a certificate that is not believed from a server that may be back soon.
func unreachable(err error) error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	if errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &name) {
		return final{fmt.Errorf("the server is not the export's: %w", err)}
	}
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return final{err}
	}
	return err
}

// refusal returns the error that a server answered instead of the volume, nil if it sends the volume.
func refusal(r *http.Response) error {
	if r.StatusCode == http.StatusOK {
		return nil
	}
	words, err := io.ReadAll(io.LimitReader(r.Body, maxWords))
	if err != nil {
		return fmt.Errorf("the export's server answers %s: %w", r.Status, err)
	}
	err = fmt.Errorf("the export's server answers %s: %s", r.Status, strings.TrimSpace(string(words)))
	switch r.StatusCode {
	case http.StatusPreconditionFailed:
		return final{errors.New("the disk has changed since the download began; repeat the command")}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest:
		return final{err}
	}
	return err
}

// begin opens the output, and learns whether the download can go on when it is cut.
func (f *fetch) begin(r *http.Response) error {
	if err := f.out.Begin(); err != nil {
		return final{err}
	}
	text := r.Header.Get(names.HeaderDiskSize)
	tag := r.Header.Get("ETag")
	if text == "" || tag == "" || f.format != v1beta1.KubeVirtGz {
		return nil
	}
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 {
		return final{fmt.Errorf("the export's server says that the disk has %q bytes", text)}
	}
	f.size, f.tag = size, tag
	return nil
}

// members writes the members of a compressed disk as they come.
func (f *fetch) members(body io.Reader) error {
	in, raw := newMembers(body), &bytes.Buffer{}
	f.Show(f.done, f.size)
	for {
		packed, err := in.next(raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if f.done+int64(raw.Len()) > f.size {
			return final{fmt.Errorf("the server sends more than the %d bytes of the disk", f.size)}
		}
		if err := f.write(packed, raw.Bytes()); err != nil {
			return final{err}
		}
		f.done += int64(raw.Len())
		f.Show(f.done, f.size)
	}
	if f.done < f.size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (f *fetch) write(packed, raw []byte) error {
	if !f.Raw {
		_, err := f.out.Write(packed)
		return err
	}
	return writeSparse(f.out, raw)
}

// block is how many zeros become a hole, bytes.
const block = 64 << 10

var zeros [block]byte

// writeSparse writes data, and skips zeros.
func writeSparse(out Output, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), block)
		var err error
		if bytes.Equal(data[:n], zeros[:n]) {
			err = out.Skip(int64(n))
		} else {
			_, err = out.Write(data[:n])
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// copy writes what a server sends that says no size: an archive, or the disk of another server than virtkit's.
func (f *fetch) copy(r *http.Response) error {
	f.done = 0
	total := r.ContentLength
	in := io.Reader(&counter{of: f, in: r.Body, total: total})
	if f.Raw && f.format != v1beta1.KubeVirtRaw {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("read what is compressed: %w", err)
		}
		in = unpacked
	}
	buffer := make([]byte, block)
	for {
		n, err := io.ReadFull(in, buffer)
		if n > 0 {
			write := writeSparse
			if !f.Raw {
				write = func(out Output, data []byte) error { _, err := out.Write(data); return err }
			}
			if err := write(f.out, buffer[:n]); err != nil {
				return final{err}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF) && n > 0:
			// The last part, unless it was cut: the next read says.
		case err != nil:
			return err
		}
	}
}

// counter counts what has come.
type counter struct {
	of    *fetch
	in    io.Reader
	total int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.of.done += int64(n)
	c.of.Show(c.of.done, c.total)
	return n, err
}

// stillReady fails when the export has stopped meanwhile.
func (f *fetch) stillReady(ctx context.Context) error { return Unbroken(ctx, f.api, f.export) }

// Unbroken fails when an export has stopped since it was as was, which it does when somebody starts to use the disk.
// What a snapshot is restored to is nobody's.
func Unbroken(ctx context.Context, api API, was *v1beta1.VirtualMachineExport) error {
	if was.Spec.Source.Kind == exports.KindSnapshot {
		return nil
	}
	now, err := Get(ctx, api, was.Namespace, was.Name)
	if err != nil {
		return final{fmt.Errorf("whether the disk was the same all the time cannot be said: %w", err)}
	}
	before := conditions.Find(was.Status.Conditions, v1beta1.ConditionReady)
	is := now.Status != nil && now.UID == was.UID && now.Status.Phase == v1beta1.Ready
	if is && before != nil {
		condition := conditions.Find(now.Status.Conditions, v1beta1.ConditionReady)
		is = condition != nil && condition.LastTransitionTime.Equal(&before.LastTransitionTime)
	}
	if !is {
		return final{errors.New("the export has stopped meanwhile, so the disk may have changed while it was read; " +
			"stop the VM and repeat the command, or export a snapshot")}
	}
	return nil
}
