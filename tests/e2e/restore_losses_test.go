//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// loseBase deletes the snapshot that is restored.
func (h *hardy) loseBase(t *testing.T) {
	t.Helper()
	if err := h.Client.Delete(t.Context(), h.snapshot); err != nil {
		t.Fatal(err)
	}
	h.settledSnapshot(t, gone)
}

// baseAgain takes the snapshot that is restored once more when a case has deleted it. The VM runs then.
func (h *hardy) baseAgain(t *testing.T) {
	t.Helper()
	if len(h.snapshots(t)) > 0 {
		return
	}
	h.start(t)
	h.goesOn(t)
	h.base(t)
}

// loseCut deletes the last VolumeSnapshot of the snapshot that is restored, of which no claim is made yet. The restore
// says so, and waits until it is deleted. What is left of the snapshot is no use to other cases.
func (h *hardy) loseCut(t *testing.T) {
	t.Helper()
	cut := &snapshotsv1.VolumeSnapshot{}
	cut.Namespace = h.ns
	cut.Name = fmt.Sprintf("vmsnapshot-%s-volume-%s", h.snapshot.UID, written[len(written)-1])
	if err := h.Client.Delete(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the restore says what it lacks", func() string {
		if err := h.Client.Get(t.Context(), client.ObjectKeyFromObject(h.restore), h.restore); err != nil {
			return err.Error()
		}
		// It looks at the snapshot first, which is not ready any more once virt-controller has seen its loss.
		said := fmt.Sprintf("%+v", h.restore.Status.Conditions)
		if !strings.Contains(said, "missing volumeSnapshot "+cut.Name) && !strings.Contains(said, " not ready") {
			return said
		}
		return ""
	})
	h.cancel(t)
	h.settledRestore(t, gone)
	h.loseBase(t)
}

// discarded deletes a restore that has failed: the claims that it has made go with it.
func (h *hardy) discarded(t *testing.T) {
	t.Helper()
	if err := h.Client.Delete(t.Context(), h.restore); err != nil {
		t.Fatal(err)
	}
	h.settledRestore(t, gone)
	eventually(t, 30*time.Second, "no claim is left of it", func() string {
		for name := range h.claims(t) {
			if !h.before[name] {
				return "claim " + name
			}
		}
		return ""
	})
}
