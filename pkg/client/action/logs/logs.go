// Package logs reads what a guest, its QEMU and its launcher have written, and goes on reading over restarts.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// Source is whose log is read.
type Source string

// Serial is what the guest wrote to its first serial port, QEMU what QEMU complained of, Launcher the pod's own log.
const (
	Serial   Source = "serial"
	QEMU     Source = "qemu"
	Launcher Source = "launcher"
)

// Sources are all of them.
var Sources = []Source{Serial, QEMU, Launcher}

// overlap is how much of what was read last is shown to the server after a break, to go on from there.
const overlap = 128

// retry is the pause before a log is opened again.
const retry = 500 * time.Millisecond

// Options of a reading.
type Options struct {
	Source Source
	// Tail is how many lines of the past, all if negative. Since is from when on, all if zero.
	Tail  int64
	Since time.Time
	// Follow goes on with what is added, also by a guest that is started again.
	Follow bool
	// Timestamps and Previous are for the launcher alone: the kubelet adds the time of each line; the log of the
	// container before.
	Timestamps, Previous bool
	// Note, which may be nil, is called with what the log does not have.
	Note func(string)
}

// Copy writes the log to w. Without Follow the guest must run, but for the launcher's log, which is there while its pod
// is.
func Copy(ctx context.Context, c *client.Client, namespace, name string, o Options, w io.Writer) error {
	r := &reading{client: c, namespace: namespace, name: name, options: o, w: w, outage: outage.Follow(ctx)}
	defer r.outage.End()
	if o.Source == Launcher {
		return r.launcher(ctx)
	}
	for {
		err := r.once(ctx)
		if err != nil && (!o.Follow || !r.mayCome(err)) || !o.Follow {
			return err
		}
		if off := (*notRunningError)(nil); errors.As(err, &off) && r.uid == "" && o.Note != nil {
			o.Note(fmt.Sprintf("VM %s/%s does not run; its log is shown once it does", namespace, name))
		}
		if gone, err := r.again(ctx); gone || err != nil {
			return err
		}
	}
}

type reading struct {
	client          *client.Client
	namespace, name string
	options         Options
	w               io.Writer

	// last is the end of what was read, of the instance uid.
	last []byte
	uid  string
	// outage says that the API server gives no answer; that a log cannot be opened is no sign of that.
	outage *outage.Follower
}

// once reads until the server ends it.
func (r *reading) once(ctx context.Context) error {
	vmi, err := r.client.VMI(ctx, r.namespace, r.name)
	if err != nil {
		return r.noInstance(ctx, err)
	}
	r.outage.Answered()
	if uid := string(vmi.UID); uid != r.uid {
		first := r.uid == ""
		r.uid, r.last = uid, nil
		if note := Elsewhere(vmi, r.options.Since); note != "" && r.options.Note != nil {
			r.options.Note(note)
		}
		if !first {
			// a guest that was started while we looked is wanted whole
			r.options.Tail, r.options.Since = -1, time.Time{}
		}
	}
	query := url.Values{}
	if r.last == nil {
		if r.options.Tail >= 0 {
			query.Set("tail", strconv.FormatInt(r.options.Tail, 10))
		}
		if !r.options.Since.IsZero() {
			query.Set("since", r.options.Since.UTC().Format(time.RFC3339))
		}
	}
	if r.options.Follow {
		query.Set("follow", "true")
	}
	body, err := r.client.GuestLog(ctx, r.namespace, r.name, string(r.options.Source), query, r.last)
	if err != nil {
		return fmt.Errorf("open the log of %s/%s: %w", r.namespace, r.name, err)
	}
	defer body.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := r.w.Write(buffer[:n]); err != nil {
				return &writeError{err}
			}
			r.last = append(r.last, buffer[:n]...)
			r.last = slices.Clone(r.last[max(0, len(r.last)-overlap):])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log of %s/%s: %w", r.namespace, r.name, err)
		}
	}
}

// Elsewhere returns, for a guest that has moved, a note that its log began there anew; empty for one that has not, or
// when nothing older is wanted.
func Elsewhere(vmi *v1.VirtualMachineInstance, since time.Time) string {
	ms := vmi.Status.MigrationState
	if !migrations.AtTarget(&vmi.Status) || ms.EndTimestamp == nil ||
		!since.IsZero() && since.After(ms.EndTimestamp.Time) {
		return ""
	}
	return fmt.Sprintf("%s/%s moved from %s to %s at %s; its log begins there", vmi.Namespace, vmi.Name,
		ms.SourceNode, ms.TargetNode, ms.EndTimestamp.UTC().Format(time.RFC3339))
}

// writeError is that the reader of ours has gone.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// noInstance returns the error for a machine whose instance could not be read; for a VM without one, that it does not
// run.
func (r *reading) noInstance(ctx context.Context, err error) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("look at instance %s/%s: %w", r.namespace, r.name, err)
	}
	if _, vmErr := r.client.VM(ctx, r.namespace, r.name); vmErr != nil {
		return fmt.Errorf("look at VM %s/%s: %w", r.namespace, r.name, vmErr)
	}
	return &notRunningError{fmt.Errorf("VM %s/%s does not run, and its logs are gone with its pod: %w", r.namespace,
		r.name, err)}
}

// notRunningError is a VM whose instance is not there, and may come.
type notRunningError struct{ error }

func (e *notRunningError) Unwrap() error { return e.error }

// mayCome reports whether a log that cannot be read now may be later.
func (r *reading) mayCome(err error) bool {
	var off *notRunningError
	if errors.As(err, &off) {
		return true
	}
	var write *writeError
	if errors.As(err, &write) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsBadRequest(err) {
		return false
	}
	return !apierrors.IsNotFound(err)
}

// again waits until the guest runs, or reports that its machine is gone, and so its log has ended.
func (r *reading) again(ctx context.Context) (gone bool, err error) {
	if err := action.Sleep(ctx, retry); err != nil {
		return false, err
	}
	_, err = wait.Until(ctx, r.client, r.namespace, r.name, wait.Running())
	switch {
	case errors.Is(err, action.ErrNotFound) || apierrors.IsNotFound(err):
		return true, nil
	case ctx.Err() == nil && r.uid != "" && client.Passing(err):
		r.outage.Lost(ctx, err)
		return false, nil // the server is away, and was there
	}
	return false, err
}

// launcher reads the log of the youngest launcher pod; with Follow until that ends.
func (r *reading) launcher(ctx context.Context) error {
	var pods corev1.PodList
	vmi, err := r.client.VMI(ctx, r.namespace, r.name)
	if err != nil {
		return r.noInstance(ctx, err)
	}
	err = r.client.Read(ctx, "/api/v1/namespaces/"+r.namespace+"/pods", url.Values{
		"labelSelector": {v1.CreatedByLabel + "=" + string(vmi.UID) + "," + names.LabelComponent + "=" +
			names.VirtLauncher},
	}, &pods)
	if err != nil {
		return fmt.Errorf("list the launcher's pods: %w", err)
	}
	own := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !life.Recorded(vmi, &pod) })
	if len(own) == 0 {
		return fmt.Errorf("instance %s/%s has no launcher pod yet; see why with `virtctl why %[2]s -n %[1]s`",
			r.namespace, r.name)
	}
	pod := slices.MaxFunc(own,
		func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	query := url.Values{}
	if r.options.Tail >= 0 {
		query.Set("tailLines", strconv.FormatInt(r.options.Tail, 10))
	}
	if !r.options.Since.IsZero() {
		query.Set("sinceTime", r.options.Since.UTC().Format(time.RFC3339))
	}
	for key, set := range map[string]bool{
		"follow": r.options.Follow, "timestamps": r.options.Timestamps,
		"previous": r.options.Previous,
	} {
		if set {
			query.Set(key, "true")
		}
	}
	body, err := r.client.PodLog(ctx, r.namespace, pod.Name, names.ContainerCompute, query)
	if err != nil {
		return fmt.Errorf("open the log of pod %s: %w", pod.Name, err)
	}
	defer body.Close()
	if _, err := io.Copy(r.w, body); err != nil {
		return fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	return nil
}
