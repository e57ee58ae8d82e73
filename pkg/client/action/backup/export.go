package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// LabelExport is on the snapshot and the export that are there for a file alone: the VM's name.
const LabelExport = "backup.virtkit.io/export"

// deleting is how long the deletion of what was made may take, also of a user who has ended the program meanwhile.
const deleting = 30 * time.Second

// ExportOptions are the options of an export.
type ExportOptions struct {
	Namespace string
	// Kind is exports.KindVM or KindSnapshot, Name the name of one.
	Kind, Name string
	// Temporary is the name of the export that is made, and of the snapshot.
	Temporary string
	// Lifetime is the longest that they stay if nobody deletes them.
	Lifetime time.Duration
	// Readiness is how long to wait for the export's pod, Taking how long for the snapshot.
	Readiness, Taking time.Duration
	// Pause is between two tries of a request.
	Pause time.Duration
	// NoteEach is how often it is noted how far the export is; one that is killed loses so much.
	NoteEach time.Duration
	// Now is when the file is begun.
	Now time.Time
	// Report is told what is waited for, Show how far a disk is, and Note what a user should know.
	Report, Note func(string)
	Show         func(name string, done, total int64)
}

// Exported is a file that was written.
type Exported struct {
	Index Index
	Bytes int64
	// Needs are objects that the VM names and the file does not have, as KIND NAME.
	Needs []string
}

// Export writes a VM and its disks. Nothing that it made stays in the cluster, whatever happens: what cannot be deleted
// is named, an errLeft, and goes when its time is over. A storage that is a Part may have what a run has left that was
// killed: the export goes on there if what that one read from is there still.
func Export(ctx context.Context, c *client.Client, to Storage, o ExportOptions) (*Exported, error) {
	if part, ok := to.(*Part); ok {
		done, err := goOn(ctx, c, part, o)
		if !errors.Is(err, errAnew) {
			return done, err
		}
		if err := part.Forget(); err != nil {
			return nil, err
		}
	}
	return exportAnew(ctx, c, to, o)
}

func exportAnew(ctx context.Context, c *client.Client, to Storage, o ExportOptions) (out *Exported, err error) {
	s, err := o.settled(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := o.noteLeft(ctx, c, s.vm.Name); err != nil {
		return nil, err
	}
	p, err := s.plan(ctx, c)
	if err != nil {
		return nil, err
	}
	from := &exporting{ExportOptions: o, c: c}
	if len(p.disks) > 0 {
		defer func() { err = errors.Join(err, from.remove(ctx)) }()
		taken, err := from.make(ctx, s)
		if err != nil {
			return nil, err
		}
		if taken != s { // the VM may have changed before the snapshot was taken
			s = taken
			if p, err = s.plan(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	w := NewWriter(to, o.Now, len(p.disks)+len(p.left))
	from.keepNotes(to, w, p)
	vm, err := writeVM(w, p.vm)
	if err != nil {
		return nil, err
	}
	return from.write(ctx, w, s, p, vm)
}

// plan is what of a source a file will have.
type plan struct {
	vm    *v1.VirtualMachine
	disks []Disk
	// left says what it will not have.
	left []string
}

func (s *source) plan(ctx context.Context, c *client.Client) (p plan, err error) {
	if p.vm, err = s.expanded(ctx, c); err != nil {
		return p, err
	}
	p.disks, p.left, err = s.disks(ctx, c, p.vm)
	return p, err
}

// write writes the disks and the index of a file that has the VM.
func (e *exporting) write(ctx context.Context, w *Writer, s *source, p plan, vm Member) (*Exported, error) {
	index := Index{Namespace: e.Namespace, Name: p.vm.Name, NotIncluded: p.left, VM: vm}
	if s.taken != nil {
		index.Snapshot, index.Indications = s.taken.Name, snapshot.Indications(s.taken)
	}
	var err error
	if index.Disks, err = e.read(ctx, w, p.disks); err != nil {
		return nil, err
	}
	size, err := w.Finish(&index)
	if err != nil {
		return nil, err
	}
	return &Exported{Index: index, Bytes: size, Needs: Needs(p.vm)}, nil
}

// Write exports to a part, which becomes the file when all is in it, and else is removed; it stays where what it was
// read from could not be deleted, so that another run can go on.
func Write(ctx context.Context, c *client.Client, part *Part, o ExportOptions) (*Exported, error) {
	done, err := Export(ctx, c, part, o)
	switch {
	case err == nil:
		return done, part.Finish()
	case errors.Is(err, errLeft) && part.noted:
		o.Note(part.Name() + " stays; the same command goes on there as long as what it is read from is there")
		return nil, errors.Join(err, part.Leave())
	}
	return nil, errors.Join(err, part.Discard())
}

// Temporary returns the name of what is made for the export of a VM or snapshot.
func Temporary(name, random string) string {
	return "backup-" + names.Shorten(name, names.MaxLabel-14) + "-" + random
}

// settled looks at what is exported once a VM runs or is stopped: a snapshot is taken of no guest that starts or stops.
func (o *ExportOptions) settled(ctx context.Context, c *client.Client) (*source, error) {
	began, noted := time.Now(), false
	for {
		s, err := look(ctx, c, o.Namespace, o.Kind, o.Name)
		if err != nil || s.between == "" {
			return s, err
		}
		of := fmt.Sprintf("VM %s/%s is %s", o.Namespace, o.Name, s.between)
		if time.Since(began) >= o.Readiness {
			return nil, fmt.Errorf("%w after %s: %s, and is exported when it runs or is stopped; `virtctl why %s "+
				"-n %s` says what it waits for, `virtctl stop %[4]s -n %[5]s` stops it", action.ErrTimeout, o.Readiness,
				of, o.Name, o.Namespace)
		}
		if !noted {
			noted = true
			o.Note(of + "; the export waits until it runs or is stopped")
		}
		if err := action.Sleep(ctx, o.Pause); err != nil {
			return nil, err
		}
	}
}

func writeVM(w *Writer, vm *v1.VirtualMachine) (Member, error) {
	text, err := encodeVM(vm)
	if err != nil {
		return Member{}, err
	}
	return w.whole(vmFile, text)
}

func encodeVM(vm *v1.VirtualMachine) ([]byte, error) {
	text, err := json.MarshalIndent(vm, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the VM: %w", err)
	}
	return append(text, '\n'), nil
}

// noteLeft says of snapshots that another export has made: it is under way, or was killed.
func (o *ExportOptions) noteLeft(ctx context.Context, c *client.Client, vm string) error {
	list, err := snapshot.List(ctx, c, o.Namespace, LabelExport+"="+names.LabelValue(vm), vm)
	switch {
	case errors.Is(err, snapshot.ErrNoKinds):
		return nil
	case err != nil:
		return err
	}
	for i := range list.Items {
		name := list.Items[i].Name
		if list.Items[i].DeletionTimestamp != nil {
			continue // of one that has just ended
		}
		o.Note(fmt.Sprintf("snapshot %s of VM %s/%s is another export's, which is under way or was killed; "+
			"`virtctl vmexport delete %[1]s -n %[2]s` deletes it, and else it goes with its VirtualMachineExport",
			name, o.Namespace, vm))
	}
	return nil
}

// exporting is what an export has made.
type exporting struct {
	ExportOptions
	c *client.Client
	// snapshot says that there may be one.
	snapshot bool
	made     bool
	// uid is the export's.
	uid types.UID
	// notes has what another run needs to go on; nil where none can.
	notes *notes
	// was is where a run that was killed has come to; nil for an export that begins.
	was *begun
	// served is the export as it was when the first disk was read.
	served *v1beta1.VirtualMachineExport
}

// make makes the export, and of a VM that runs a snapshot. The snapshot belongs to the export: whoever is killed, both
// go when the export's time is over. It returns what is exported.
func (e *exporting) make(ctx context.Context, s *source) (*source, error) {
	of := export.Source{Kind: e.Kind, Name: e.Name}
	if s.runs {
		of = export.Source{Kind: exports.KindSnapshot, Name: e.Temporary}
	}
	labels := map[string]string{LabelExport: names.LabelValue(s.vm.Name)}
	e.made = true
	made, err := export.Create(ctx, e.c, export.New(export.Request{
		Namespace: e.Namespace, Name: e.Temporary, Source: of, TTL: e.Lifetime, Labels: labels,
	}), false)
	if apierrors.IsAlreadyExists(err) {
		e.made = false // it is somebody else's
	}
	if err != nil {
		return s, err
	}
	if e.uid = made.UID; !s.runs {
		return s, nil
	}
	object := snapshot.New(e.Namespace, s.vm.Name, e.Temporary, snapshot.Options{})
	object.Labels = labels
	owner := metav1.OwnerReference{
		APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: exports.Kind, Name: made.Name, UID: made.UID,
	}
	object.OwnerReferences = []metav1.OwnerReference{owner}
	e.snapshot = true
	if _, err := snapshot.Create(ctx, e.c, object, false); err != nil {
		e.snapshot = !apierrors.IsAlreadyExists(err)
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, e.Taking)
	defer cancel()
	taken, err := snapshot.Wait(waiting, e.c, e.Namespace, e.Temporary, e.Report)
	if err != nil {
		return nil, err
	}
	return ofSnapshot(ctx, e.c, taken)
}

// remove deletes what was made.
func (e *exporting) remove(ctx context.Context) error {
	if !e.made {
		return nil
	}
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleting)
	defer cancel()
	var all error
	gone := func(what string, err error) {
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		err = &leftError{
			fmt.Errorf("%s %s/%s is left, at most for %s: %w", what, e.Namespace, e.Temporary, e.Lifetime, err),
		}
		if all = errors.Join(all, err); interrupted {
			e.Note(err.Error()) // nobody prints the errors of what was interrupted
		}
	}
	gone("VirtualMachineExport", export.Delete(ctx, e.c, e.Namespace, e.Temporary, "", false))
	if e.snapshot {
		gone("snapshot", snapshot.Delete(ctx, e.c, e.Namespace, e.Temporary, "", false))
	}
	return all
}

// errLeft is something in the cluster that could not be deleted.
var errLeft = errors.New("something is left")

// leftError is an errLeft with its reason.
type leftError struct{ error }

func (l *leftError) Unwrap() error        { return l.error }
func (l *leftError) Is(target error) bool { return target == errLeft }

// read reads the disks, one after the other.
func (e *exporting) read(ctx context.Context, w *Writer, disks []Disk) ([]Disk, error) {
	there := 0
	if e.was != nil {
		there = copy(disks, e.was.Disks)
	}
	for i := there; i < len(disks); i++ {
		if err := e.readDisk(ctx, w, &disks[i], e.was.pointOf(i)); err != nil {
			return nil, err
		}
		e.notes.whole(disks[i], e.served)
	}
	if len(disks) == 0 {
		return nil, nil
	}
	// The disks are of one moment only when nobody used one meanwhile, also between two.
	return disks, export.Unbroken(ctx, e.c, e.served)
}

// readDisk reads a disk, from a point on that is in the file already; nil for none.
func (e *exporting) readDisk(ctx context.Context, w *Writer, disk *Disk, from *export.Point) error {
	entry := w.Entry(diskFile(disk.Volume))
	if from != nil {
		err := entry.goOn(ctx, e.notes.to, e.was.Bytes, e.was.Sum)
		switch {
		case errors.Is(err, errNotAsWritten):
			e.Note(fmt.Sprintf("volume %s is not as it was written to %s, and begins anew", disk.Volume,
				e.notes.to.Name()))
			from = nil
		case err != nil:
			return err
		}
	}
	entry.mark = e.notes.mark
	download := export.Download{
		Namespace: e.Namespace, Name: e.Temporary, Volume: disk.Claim, Pause: e.Pause, Readiness: e.Readiness,
		From: from, Reach: export.Reach{Inside: true}, Patience: export.DefaultPatience, Report: e.Report,
		Show: func(done, total int64) { e.Show(disk.Volume, done, total) },
	}
	result, err := download.Run(ctx, e.c, entry)
	if err != nil {
		return fmt.Errorf("read volume %s: %w", disk.Volume, err)
	}
	if result.Format != v1beta1.KubeVirtGz || result.Size <= 0 {
		return fmt.Errorf("read volume %s: the export's server does not serve it as a disk of a known size",
			disk.Volume)
	}
	if disk.Member, err = entry.End(); err != nil {
		return err
	}
	disk.DiskSize = result.Size
	if e.served == nil {
		e.served = result.Export
	}
	return nil
}
