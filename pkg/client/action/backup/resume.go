package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
)

// A run that is killed leaves the part, and the export and the snapshot in the cluster. The next run of the same export
// takes all three over, as the note beside the part names them, verifies what is in the part, and goes on. Where one of
// them is another by then it deletes what is left, and begins anew.

// begun is what is noted of an export.
type begun struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	// Temporary is the name of what was made, UID the export's; Snapshot says that a snapshot was made.
	Temporary string    `json:"temporary"`
	UID       types.UID `json:"uid"`
	Snapshot  bool      `json:"snapshot,omitempty"`
	// Created is the file's, and Volumes of how many its index has room for.
	Created time.Time `json:"created"`
	Volumes int       `json:"volumes"`
	// Ready is since when the export was ready as the first disk was whole; of no disk it is nil.
	Ready *metav1.Time `json:"ready,omitempty"`
	// Disks are whole. Point is where the one after them is, with so many bytes in the file, of which Sum is the
	// checksum; nil for one of which nothing is there.
	Disks []Disk        `json:"disks,omitempty"`
	Point *export.Point `json:"point,omitempty"`
	Bytes int64         `json:"bytes,omitempty"`
	Sum   string        `json:"sum,omitempty"`
}

// errAnew is the error of an export that does not go on.
var errAnew = errors.New("the export begins anew")

// pointOf returns where the disk i is; nil where it is to begin.
func (b *begun) pointOf(i int) *export.Point {
	if b == nil || i != len(b.Disks) || b.Point == nil || !b.Point.Valid() {
		return nil
	}
	return b.Point
}

// notes writes what another run needs to go on. A nil one does nothing.
type notes struct {
	begun
	to   *Part
	each time.Duration
	last time.Time
}

// keepNotes notes from now on how far the export is, if somebody can go on with what it writes to.
func (e *exporting) keepNotes(to Storage, w *Writer, p plan) {
	part, ok := to.(*Part)
	if !ok || !e.made {
		return
	}
	e.notes = &notes{to: part, each: e.NoteEach, begun: begun{
		Namespace: e.Namespace, Kind: e.Kind, Name: e.Name, Temporary: e.Temporary, UID: e.uid, Snapshot: e.snapshot,
		Created: w.created, Volumes: len(p.disks) + len(p.left),
	}}
}

// mark notes how far the disk of an entry is, from time to time.
func (n *notes) mark(e *Entry, at export.Point) error {
	if n == nil {
		return nil
	}
	n.Point, n.Bytes, n.Sum = &at, e.size, hex.EncodeToString(e.sum.Sum(nil))
	if time.Since(n.last) < n.each {
		return nil
	}
	n.last = time.Now()
	return n.to.Note(&n.begun)
}

// whole notes that a disk is whole. It is written with the next one's.
func (n *notes) whole(disk Disk, served *v1beta1.VirtualMachineExport) {
	if n == nil {
		return
	}
	n.Disks, n.Point, n.Bytes, n.Sum = append(n.Disks, disk), nil, 0, ""
	if condition := conditions.Find(served.Status.Conditions, v1beta1.ConditionReady); condition != nil {
		n.Ready = &condition.LastTransitionTime
	}
}

// goOn goes on with what a run has left that was killed. The error is errAnew when there is nothing of the kind, or it
// is of no use; nothing of it is left then.
func goOn(ctx context.Context, c *client.Client, to *Part, o ExportOptions) (out *Exported, err error) {
	was := &begun{}
	if !to.Noted(was) {
		return nil, errAnew
	}
	if was.Namespace != o.Namespace || was.Kind != o.Kind || was.Name != o.Name {
		o.Note(fmt.Sprintf("%s is of another export, of %s %s/%s, and is overwritten", to.Name(), was.Kind,
			was.Namespace, was.Name))
		return nil, errAnew
	}
	there, err := export.Get(ctx, c, was.Namespace, was.Temporary)
	switch {
	case err == nil && there.UID == was.UID && there.DeletionTimestamp == nil:
	case err == nil || apierrors.IsNotFound(err):
		o.Note("what " + to.Name() + " was read from is not there any more, so the export begins anew")
		return nil, errAnew
	default: // it may be there
		to.noted = true
		return nil, &leftError{err}
	}
	o.Temporary = was.Temporary
	from := &exporting{
		ExportOptions: o, c: c, made: true, uid: was.UID, snapshot: was.Snapshot, was: was,
		notes: &notes{to: to, each: o.NoteEach, begun: *was},
	}
	defer func() {
		gone := from.remove(ctx)
		if gone != nil && errors.Is(err, errAnew) {
			o.Note(gone.Error())
			return
		}
		err = errors.Join(err, gone)
	}()
	to.noted = true
	if was.Ready != nil {
		from.served = asOf(there, *was.Ready)
	}
	out, err = from.goOn(ctx, to)
	var altered *alteredError
	if errors.As(err, &altered) {
		o.Note(fmt.Sprintf("%s, so the export begins anew", altered))
		return nil, errAnew
	}
	return out, err
}

// asOf returns an export as it was when it was ready since a time.
func asOf(there *v1beta1.VirtualMachineExport, ready metav1.Time) *v1beta1.VirtualMachineExport {
	out := there.DeepCopy()
	out.Status = &v1beta1.VirtualMachineExportStatus{Phase: v1beta1.Ready, Conditions: []v1beta1.Condition{{
		Type: v1beta1.ConditionReady, LastTransitionTime: ready,
	}}}
	return out
}

// alteredError is why what is left is not gone on with.
type alteredError struct{ sentence string }

func (a *alteredError) Error() string { return a.sentence }

func (e *exporting) goOn(ctx context.Context, to *Part) (*Exported, error) {
	s, err := e.again(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.plan(ctx, e.c)
	if err != nil {
		return nil, err
	}
	other := &alteredError{fmt.Sprintf("VM %s/%s is not as it was when %s was begun", e.Namespace, e.Name, to.Name())}
	if len(p.disks)+len(p.left) != e.was.Volumes || len(p.disks) < len(e.was.Disks) || s.runs ||
		len(e.was.Disks) > 0 && e.served == nil {
		return nil, other
	}
	for i := range e.was.Disks {
		if is, was := &p.disks[i], &e.was.Disks[i]; is.Volume != was.Volume || is.Claim != was.Claim {
			return nil, other
		}
	}
	text, err := encodeVM(p.vm)
	if err != nil {
		return nil, err
	}
	w := NewWriter(to, e.was.Created, e.was.Volumes)
	vm := Member{File: vmFile, Bytes: int64(len(text)), SHA256: sumOf(text)}
	members := []Member{vm}
	for i := range e.was.Disks {
		members = append(members, e.was.Disks[i].Member)
	}
	for i, member := range members {
		err := w.over(ctx, to, member, func(done int64) { e.Show("verify "+member.File, done, member.Bytes) })
		if errors.Is(err, errNotAsWritten) && i == 0 {
			return nil, other
		}
		if errors.Is(err, errNotAsWritten) {
			return nil, &alteredError{to.Name() + " is not as it was written"}
		}
		if err != nil {
			return nil, err
		}
	}
	e.Note(fmt.Sprintf("going on with %s, which has %d bytes", to.Name(), w.at+e.was.Bytes))
	return e.write(ctx, w, s, p, vm)
}

// again looks at what is exported once more: the snapshot that the run before has taken, or the same VM.
func (e *exporting) again(ctx context.Context) (*source, error) {
	if !e.snapshot {
		return e.settled(ctx, e.c)
	}
	taken, err := snapshot.GetReady(ctx, e.c, e.Namespace, e.Temporary)
	var unready *snapshot.NotReadyError
	if apierrors.IsNotFound(err) || errors.As(err, &unready) {
		return nil, &alteredError{fmt.Sprintf("snapshot %s/%s is not there any more", e.Namespace, e.Temporary)}
	}
	if err != nil {
		return nil, err
	}
	return ofSnapshot(ctx, e.c, taken)
}

var errNotAsWritten = errors.New("it is not as it was written")

// over goes over a member that is in the file already. Errors: errNotAsWritten.
func (w *Writer) over(ctx context.Context, in io.ReaderAt, m Member, show func(done int64)) error {
	header, err := w.header(m.File, m.Bytes)
	if err != nil {
		return err
	}
	there := make([]byte, len(header))
	if _, err := in.ReadAt(there, w.at); errors.Is(err, io.EOF) || err == nil && !bytes.Equal(there, header) {
		return errNotAsWritten
	} else if err != nil {
		return err
	}
	entry := w.Entry(m.File)
	if err := entry.restore(ctx, in, m.Bytes, m.SHA256, show); err != nil {
		return err
	}
	w.at = entry.end()
	return nil
}

// goOn makes what is in the file already the beginning of the member. Errors: errNotAsWritten.
func (e *Entry) goOn(ctx context.Context, in io.ReaderAt, size int64, sum string) error {
	if err := e.restore(ctx, in, size, sum, func(int64) {}); err != nil {
		return err
	}
	return e.w.to.Truncate(e.start + size)
}

// restore goes over the beginning of a member that is in the file already. Errors: errNotAsWritten.
func (e *Entry) restore(ctx context.Context, in io.ReaderAt, size int64, sum string, show func(done int64)) error {
	e.size, e.sum = size, sha256.New()
	buffer := make([]byte, 1<<20)
	for done := int64(0); done < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := in.ReadAt(buffer[:min(size-done, int64(len(buffer)))], e.start+done)
		_, _ = e.sum.Write(buffer[:n]) // never fails
		if done += int64(n); errors.Is(err, io.EOF) && done < size {
			return errNotAsWritten
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		show(done)
	}
	if hex.EncodeToString(e.sum.Sum(nil)) != sum {
		return errNotAsWritten
	}
	return nil
}
