package snapshotcontroller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// A look that nobody answers does not thaw the guest, whose memory may be being saved: a thaw would cancel that, and
// its failure be the snapshot's.
func TestSaveUnanswered(t *testing.T) {
	gone := schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachineinstances"}
	for name, tc := range map[string]struct {
		err   error
		thaws bool
	}{
		"virt-api is away":        {err: fmt.Errorf("freeze: %w", apierrors.NewServiceUnavailable("virt-api is away"))},
		"the connection broke":    {err: errors.New("unexpected EOF")},
		"nobody knows the guest":  {err: apierrors.NewNotFound(gone, "demo")},
		"too slow":                {err: apierrors.NewTimeoutError("too slow", 1)},
		"the launcher refuses":    {err: apierrors.NewConflict(gone, "demo", errors.New("it is paused")), thaws: true},
		"the launcher is too old": {err: apierrors.NewInternalError(errors.New("an older version")), thaws: true},
	} {
		view := saving(true, v1.HotplugVolumeMounted)
		recorded(FreezeRecord{Until: now.Add(time.Minute), Quiesced: snapshots.QuiescedPaused})(view.Content)
		s := newSite(t, -1, savedmemory.Saved{}, view.Content.DeepCopy())
		s.trouble = tc.err
		r := &Contents{
			Client: s, Recorder: record.NewFakeRecorder(100), Now: func() time.Time { return now }, Freezer: s,
			Memory: s, writes: frame.NewWrites(s),
		}
		step := NextContent(view)
		if err := r.apply(t.Context(), view, &step); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(s.asked, "thaw the guest"); got != tc.thaws {
			t.Errorf("%s: thawed: %t; %q", name, got, s.asked)
		}
		if got := message(step.Status); !strings.Contains(got, tc.err.Error()) || len(step.Create) != 0 {
			t.Errorf("%s: %q, creates %d", name, got, len(step.Create))
		}
		if window := recordOf(view.Content.Annotations); window.Thawed != tc.thaws ||
			window.Quiesced != snapshots.QuiescedPaused && !tc.thaws {
			t.Errorf("%s: %+v", name, window)
		}
		if !tc.thaws && step.RequeueAfter != saveLook {
			t.Errorf("%s: looks again after %s", name, step.RequeueAfter)
		}
	}
}
