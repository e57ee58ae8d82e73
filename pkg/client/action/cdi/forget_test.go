package cdi

import (
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// TestForget has what the claim says of an upload through the API server, of which CDI replaces the disk.
func TestForget(t *testing.T) {
	const gone = claimPath + ` {"metadata":{"annotations":{"upload.virtkit.io/state":null},"resourceVersion":"7"}}`
	failed := uploads.Encode(uploads.State{Phase: uploads.Failed})
	done := uploads.Encode(uploads.State{Phase: uploads.Succeeded})
	image := map[string]any{
		uploads.LabelImage: "debian", uploads.LabelImageVersion: "13", uploads.LabelPreference: "debian",
	}
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	conflicts := func(most int) func(int) error {
		return func(n int) error {
			if n < most {
				return apierrors.NewConflict(claims, "disk", nil)
			}
			return nil
		}
	}
	for name, test := range map[string]struct {
		says    map[string]any
		labels  map[string]any
		settle  func(*world)
		written func(int) error
		// changed are lines; stage and err are how the upload ends.
		changed string
		stage   Stage
		err     string
	}{
		"nothing": {stage: Done},
		"of one that failed": {
			says: map[string]any{uploads.AnnotationState: failed}, changed: gone, stage: Done,
		},
		"of one to come": {
			says: map[string]any{uploads.AnnotationMade: uploads.MadeFor, uploads.AnnotationImage: "debian/13"},
			changed: claimPath + ` {"metadata":{"annotations":{"image.virtkit.io/wanted":null,` +
				`"upload.virtkit.io/made":null},"resourceVersion":"7"}}`,
			stage: Done,
		},
		"of an image that was pulled": {
			says: map[string]any{uploads.AnnotationState: done}, labels: image, stage: Done,
			changed: claimPath + ` {"metadata":{"annotations":{"upload.virtkit.io/state":null},"labels":{` +
				`"image.virtkit.io/name":null,"image.virtkit.io/version":null},"resourceVersion":"7"}}`,
		},
		"of an image that was pulled, and the claim may not be changed": {
			says: map[string]any{uploads.AnnotationState: done}, labels: image, stage: Done, changed: "refused",
			written: func(int) error { return apierrors.NewForbidden(claims, "disk", nil) },
			err: "do so with `kubectl annotate pvc disk -n ns upload.virtkit.io/state-` and `kubectl label pvc disk " +
				"-n ns image.virtkit.io/name- image.virtkit.io/version-`",
		},
		"nothing, of a claim that was made for an image": {labels: image, stage: Done},
		"of one that failed, and CDI could not use the image": {
			says: map[string]any{uploads.AnnotationState: failed}, stage: Sent, err: "CDI could not use the image",
			settle: func(w *world) { w.annotate(annotationPodRestarts, "1") },
		},
		"of one that has begun since": {
			says: map[string]any{uploads.AnnotationState: failed}, stage: Done,
			settle: func(w *world) {
				w.annotate(uploads.AnnotationRequest, uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 1}))
				w.annotate(annotationPodPhase, succeeded)
			},
		},
		"of one that failed, while others change the claim": {
			says: map[string]any{uploads.AnnotationState: failed}, written: conflicts(2), stage: Done,
			changed: "refused\nrefused\n" + gone,
		},
		"of one that failed, while others change it all the time": {
			says: map[string]any{uploads.AnnotationState: failed}, written: conflicts(99), stage: Done,
			changed: strings.TrimSpace(strings.Repeat("refused\n", mostConflicts)),
			err:     "do so with `kubectl annotate pvc disk -n ns upload.virtkit.io/state-`",
		},
		"of one that failed, and the claim may not be changed": {
			says: map[string]any{uploads.AnnotationState: failed}, stage: Done, changed: "refused",
			written: func(int) error { return apierrors.NewForbidden(claims, "disk", nil) },
			err:     "do so with `kubectl annotate pvc disk -n ns upload.virtkit.io/state-`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			says := map[string]any{AnnotationTarget: "", annotationPodReady: "true", annotationContentType: "kubevirt"}
			maps.Copy(says, test.says)
			w.objects[claimPath], w.written = claimOf(says), test.written
			if test.labels != nil {
				w.objects[claimPath]["metadata"].(map[string]any)["labels"] = test.labels
			}
			if test.settle != nil {
				w.settle = func() { test.settle(w) }
			}
			stage, err := w.upload(func(o *Options) { o.Replace, o.Create = true, nil })
			if stage != test.stage || test.err == "" && err != nil ||
				test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%v, %v", stage, err)
			}
			if got := strings.Join(w.changed, "\n"); got != test.changed {
				t.Errorf("changed %q", got)
			}
		})
	}
}
