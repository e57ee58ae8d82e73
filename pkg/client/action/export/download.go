package export

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	// triesAfterCut is how often a download that has begun is tried again, in vain each time, whatever Retries says,
	// when the server answers: the pod may have been evicted.
	triesAfterCut = 5
	// DefaultPatience is how long a download that has begun outlives that nobody answers.
	DefaultPatience = 5 * time.Minute
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
	// QCOW2 downloads the volume as a qcow2 image.
	QCOW2 bool
	// OVA downloads the VM with its disks as an archive for other hypervisors, instead of a volume.
	OVA bool
	// From is where a run before has come to; nil for a download that begins. Its output has all before it.
	From *Point
	Reach
	// Retries is how often a request that fails is repeated.
	Retries int
	// Pause is between two tries. Patience is how long a download that has begun is tried again, since the last byte
	// of it, when there is no answer.
	Pause, Patience time.Duration
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

// Marker is an Output that is told where another run could go on: it has all before the point.
type Marker interface{ Mark(Point) error }

// Result is what was downloaded.
type Result struct {
	// Bytes is the size of the disk, or of the archive or image as it came.
	Bytes int64
	// Format is what came.
	Format v1beta1.ExportVolumeFormat
	// Size is the size of the disk, as the server says it; below 0 when it does not.
	Size int64
	// Export is the export as it was then.
	Export *v1beta1.VirtualMachineExport
	// NotIncluded says what of the VM is not in its OVA.
	NotIncluded []string
}

// final is an error that no other try mends.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// ErrChanged is the reason of a download that cannot go on, not in another run either: its beginning may be of other
// content than its rest.
var ErrChanged = errors.New("the disk may have changed since the download began")

func changed(format string, arguments ...any) error {
	return final{&changedError{fmt.Sprintf(format, arguments...)}}
}

// changedError is an ErrChanged with a sentence of its own.
type changedError struct{ sentence string }

func (c *changedError) Error() string { return c.sentence }

// Is makes it an ErrChanged.
func (c *changedError) Is(target error) bool { return target == ErrChanged }

// fetch is a download under way.
type fetch struct {
	Download
	api API
	out Output
	// export is as it was when the download began.
	export *v1beta1.VirtualMachineExport
	// tag and size are the content's: the disk's, or those of the image as it comes when it comes by ranges. size is
	// below 0 for a server that does not say them, which cannot go on.
	tag    string
	size   int64
	ranges bool
	// disk is the size of the disk, below 0 if it is not known.
	disk int64
	// done is how much of the content there is, progressed when some of it came last, or the export was ready, or a
	// request was cut that had waited for the server to read the disk; waited is how often that was.
	done       int64
	progressed time.Time
	waited     int
	// resumed says that nothing of this run has come yet.
	resumed bool

	format      v1beta1.ExportVolumeFormat
	notIncluded []string
}

// Run downloads. It fails when the disk may have changed meanwhile.
func (d Download) Run(ctx context.Context, api API, out Output) (Result, error) {
	f := &fetch{Download: d, api: api, out: out, size: -1, disk: -1, progressed: time.Now()}
	f.resume()
	for tries := 0; ; {
		before := f.done
		err := f.try(ctx)
		if err == nil {
			return Result{
				Bytes: f.done, Format: f.format, Size: f.disk, Export: f.export, NotIncluded: f.notIncluded,
			}, nil
		}
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		if errors.Is(err, errAnew) {
			f.anew()
			continue
		}
		if tries++; f.done > before {
			tries = 1
		}
		if !f.again(err, tries) {
			return Result{}, err
		}
		d.Report("the download was cut: " + err.Error())
		if err := action.Sleep(ctx, d.Pause); err != nil {
			return Result{}, err
		}
	}
}

// again reports whether a download is tried again after so many tries that brought nothing.
func (f *fetch) again(err error, tries int) bool {
	var end final
	var answer *answerError
	switch {
	case errors.As(err, &end):
		return false
	case tries <= f.Retries:
		return true
	case f.size < 0:
		return f.unanswered(err) && time.Since(f.progressed) < f.Patience
	}
	return tries <= triesAfterCut || !errors.As(err, &answer) && time.Since(f.progressed) < f.Patience
}

// try waits for the export, and downloads what is missing.
func (f *fetch) try(ctx context.Context) error {
	export, err := Wait(ctx, f.api, f.Namespace, f.Name, f.Readiness, f.Report)
	if err != nil {
		return f.ended(err)
	}
	if f.export != nil && export.UID != f.export.UID {
		return changed("VirtualMachineExport %s/%s was deleted meanwhile, and is another one now", f.Namespace, f.Name)
	}
	if f.export == nil {
		f.progressed = time.Now()
	}
	f.export = export
	way := f.Reach
	way.measures = f.QCOW2 || f.OVA
	server, err := reach(ctx, f.api, export, way)
	if err != nil {
		return f.ended(err)
	}
	defer server.close()
	address, format, err := f.choose(server.link)
	if err != nil {
		return final{err}
	}
	if f.resumed && format != f.format {
		return errAnew
	}
	f.format = format
	header := http.Header{}
	if f.size >= 0 {
		if address, err = f.rest(address, header); err != nil {
			return final{err}
		}
	}
	switch {
	case f.QCOW2:
		f.Report("its server reads the disk, and sends the image after that")
	case f.OVA:
		f.Report("its server reads the disks, and sends the OVA after that")
	}
	asked := time.Now()
	response, err := server.get(ctx, address, header)
	if err != nil {
		if f.waited < triesAfterCut && time.Since(asked) > f.Pause {
			f.waited++
			f.progressed = time.Now()
		}
		return unreachable(err)
	}
	defer response.Body.Close()
	if err := f.take(response); err != nil {
		return err
	}
	return f.stillReady(ctx)
}

// ended makes an error final, unless it is that the API server, which has answered before, does not answer now, or does
// not lead to the export's server.
func (f *fetch) ended(err error) error {
	if f.unanswered(err) {
		return err
	}
	return final{err}
}

// unanswered reports whether an API server that had answered before does not answer.
func (f *fetch) unanswered(err error) bool {
	var unread *unreadError
	return f.export != nil && errors.As(err, &unread) && client.Passing(err)
}

// take writes what a server answers.
func (f *fetch) take(r *http.Response) error {
	f.notIncluded = r.Header.Values(names.HeaderNotIncluded)
	if f.size >= 0 {
		whole, err := f.goesOn(r)
		if err != nil || whole {
			return err
		}
	} else {
		if err := refusal(r); err != nil {
			return err
		}
		if err := f.begin(r); err != nil {
			return err
		}
	}
	f.resumed = false
	switch {
	case f.size < 0:
		return f.copy(r)
	case f.ranges:
		return f.parts(r.Body)
	}
	return f.members(r.Body)
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

// answerError is an answer of the export's server that is not what was asked for.
type answerError struct{ error }

func (a *answerError) Unwrap() error { return a.error }

// refusal returns the error that a server answered instead of the volume, nil if it sends the volume.
func refusal(r *http.Response) error {
	if r.StatusCode == http.StatusOK {
		return nil
	}
	words, err := io.ReadAll(io.LimitReader(r.Body, maxWords))
	if err != nil {
		return fmt.Errorf("the export's server answers %s: %w", r.Status, err)
	}
	err = &answerError{fmt.Errorf("the export's server answers %s: %s", r.Status, strings.TrimSpace(string(words)))}
	switch r.StatusCode {
	case http.StatusPreconditionFailed:
		return changed("the disk has changed since the download began; repeat the command")
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusBadRequest,
		http.StatusRequestedRangeNotSatisfiable, http.StatusUnprocessableEntity:
		return final{err}
	}
	return err
}

// begin opens the output, and learns whether the download can go on when it is cut.
func (f *fetch) begin(r *http.Response) error {
	if err := f.out.Begin(); err != nil {
		return final{err}
	}
	f.done = 0
	if text := r.Header.Get(names.HeaderDiskSize); text != "" {
		size, err := strconv.ParseInt(text, 10, 64)
		if err != nil || size < 0 {
			return final{fmt.Errorf("the export's server says that the disk has %q bytes", text)}
		}
		f.disk = size
	}
	tag := r.Header.Get("ETag")
	switch {
	case tag == "" || strings.HasPrefix(tag, "W/"):
	case f.format == v1beta1.KubeVirtGz && f.disk >= 0:
		f.size, f.tag, f.ranges = f.disk, tag, false
	case byRanges(f.format) && r.ContentLength >= 0 && r.Header.Get("Accept-Ranges") == "bytes":
		f.size, f.tag, f.ranges = r.ContentLength, tag, true
	}
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
		if err := f.came(raw.Len()); err != nil {
			return err
		}
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
		err = fmt.Errorf("whether the disk was the same all the time cannot be said: %w", err)
		if client.Passing(err) {
			return err
		}
		return final{err}
	}
	before := conditions.Find(was.Status.Conditions, v1beta1.ConditionReady)
	is := now.Status != nil && now.UID == was.UID && now.Status.Phase == v1beta1.Ready
	if is && before != nil {
		condition := conditions.Find(now.Status.Conditions, v1beta1.ConditionReady)
		is = condition != nil && condition.LastTransitionTime.Equal(&before.LastTransitionTime)
	}
	if !is {
		return changed("the export has stopped meanwhile, so the disk may have changed while it was read; " +
			"stop the VM and repeat the command, or export a snapshot")
	}
	return nil
}
