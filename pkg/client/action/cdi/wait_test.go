package cdi

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// claimOf is a claim as the API server has it.
func claimOf(annotations map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{
		"name": "disk", "namespace": "ns", "uid": "u", "resourceVersion": "7", "annotations": annotations,
	}}
}

func volumeOf(phase string, annotations map[string]any) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "disk", "namespace": "ns", "annotations": annotations},
		"spec":     map[string]any{"source": map[string]any{"upload": map[string]any{}}},
		"status":   map[string]any{"phase": phase},
	}
}

// TestThere has what comes of a target that is there: the image, or why not.
func TestThere(t *testing.T) {
	target := map[string]any{AnnotationTarget: "", annotationPodReady: "true", annotationContentType: "kubevirt"}
	plain := claimOf(map[string]any{annotationPodReady: "true"}) // as if CDI were quick
	pod := func(phase string) map[string]any {
		return map[string]any{"items": []any{map[string]any{
			"metadata": map[string]any{"name": "virt-launcher-web"}, "status": map[string]any{"phase": phase},
			"spec": map[string]any{"volumes": []any{map[string]any{
				"name": "disk", "persistentVolumeClaim": map[string]any{"claimName": "disk"},
			}}},
		}}}
	}
	own := pod("Running")
	own["items"].([]any)[0].(map[string]any)["metadata"] = map[string]any{
		"name": "cdi-upload-disk", "ownerReferences": []any{map[string]any{"uid": "u", "controller": true}},
	}
	native := maps.Clone(target)
	native[uploads.AnnotationState] = uploads.Encode(uploads.State{Phase: uploads.Succeeded})
	const (
		pods  = "/api/v1/namespaces/ns/pods"
		bound = ` {"metadata":{"annotations":{"cdi.kubevirt.io/storage.bind.immediate.requested":""}}}`
	)
	pending := func(annotations map[string]any) map[string]any {
		claim := claimOf(annotations)
		claim["status"] = map[string]any{"phase": "Pending"}
		return claim
	}
	for name, test := range map[string]struct {
		objects map[string]map[string]any
		change  func(*Options)
		err     string
		changed string // lines
	}{
		"a claim for an upload": {objects: map[string]map[string]any{claimPath: claimOf(target)}},
		"a claim of somebody's": {
			objects: map[string]map[string]any{claimPath: plain},
			err:     "it is there already, and was not made for an upload, or has been used since: its disk",
		},
		"a claim that is given": {
			objects: map[string]map[string]any{claimPath: plain, pods: pod("Succeeded")},
			change:  func(o *Options) { o.Replace, o.Create = true, nil },
			changed: claimPath + ` {"metadata":{"annotations":{"cdi.kubevirt.io/storage.contentType":"kubevirt",` +
				`"cdi.kubevirt.io/storage.pod.ready":null,"cdi.kubevirt.io/storage.pod.restarts":null,` +
				`"cdi.kubevirt.io/storage.upload.target":""}}}`,
		},
		"a claim of a running VM": {
			objects: map[string]map[string]any{claimPath: plain, pods: pod("Running")},
			change:  func(o *Options) { o.Replace, o.Create = true, nil },
			err:     "pod virt-launcher-web uses it; stop the VM or delete the pod first",
		},
		"a claim for an upload, of a running VM": {
			objects: map[string]map[string]any{claimPath: claimOf(target), pods: pod("Running")},
			err:     "pod virt-launcher-web uses it; stop the VM or delete the pod first",
		},
		"a claim for an upload, with CDI's pod": {
			objects: map[string]map[string]any{claimPath: claimOf(target), pods: own},
		},
		"a claim that is being uploaded to through the API server": {
			objects: map[string]map[string]any{claimPath: claimOf(map[string]any{
				uploads.AnnotationRequest: uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 1}),
			})},
			change: func(o *Options) { o.Replace, o.Create = true, nil },
			err:    "an image is being uploaded to it through the API server; wait, or end that with --cancel",
		},
		"a claim with an image through the API server": {
			objects: map[string]map[string]any{claimPath: claimOf(native)},
			err:     "an image was uploaded to it through the API server, and its disk would be replaced",
		},
		"a claim with an image through the API server, that is given": {
			objects: map[string]map[string]any{claimPath: claimOf(native)},
			change:  func(o *Options) { o.Replace, o.Create = true, nil },
			changed: claimPath + ` {"metadata":{"annotations":{"upload.virtkit.io/state":null},"resourceVersion":"7"}}`,
		},
		"a claim with an image": {
			objects: map[string]map[string]any{
				claimPath: claimOf(map[string]any{AnnotationTarget: "", annotationPodPhase: "Succeeded"}),
			},
			err: "it has an image already",
		},
		"an archive to a claim for an image": {
			objects: map[string]map[string]any{claimPath: claimOf(target)},
			change:  func(o *Options) { o.Archive = true }, err: "it is for an image, and takes no archive",
		},
		"no claim, no size": {
			change: func(o *Options) { o.Create = nil }, err: "it is not found; give --size to have it made",
		},
		"no claim, and one is given": {
			change: func(o *Options) { o.Replace, o.Create = true, nil }, err: "ns/disk: it is not found",
		},
		"a claim, no DataVolume": {
			objects: map[string]map[string]any{claimPath: plain},
			change:  func(o *Options) { o.DataVolume = true },
			err:     "claim ns/disk is there already, and no DataVolume has made it",
		},
		"a DataVolume": {
			objects: map[string]map[string]any{volumePath: volumeOf("UploadReady", nil), claimPath: claimOf(target)},
			change:  func(o *Options) { o.DataVolume = true },
		},
		"a DataVolume that is imported": {
			objects: map[string]map[string]any{volumePath: {"spec": map[string]any{"source": map[string]any{
				"blank": map[string]any{},
			}}}},
			change: func(o *Options) { o.DataVolume = true }, err: "it is not filled by an upload",
		},
		"a DataVolume with an image": {
			objects: map[string]map[string]any{volumePath: volumeOf("Succeeded", nil)},
			change:  func(o *Options) { o.DataVolume = true }, err: "it has an image already",
		},
		"a DataVolume of a populator, bound": {
			objects: map[string]map[string]any{
				volumePath: volumeOf("UploadReady", map[string]any{annotationUsePopulator: "true"}),
				claimPath:  {"status": map[string]any{"phase": "Bound"}},
			},
			change: func(o *Options) { o.DataVolume = true }, err: "it has an image already",
		},
		"a DataVolume of a populator": {
			objects: map[string]map[string]any{
				volumePath: volumeOf("UploadReady", map[string]any{annotationUsePopulator: "true"}),
				claimPath:  claimOf(map[string]any{annotationPrime: "prime"}),
				"/api/v1/namespaces/ns/persistentvolumeclaims/prime": claimOf(target),
			},
			change: func(o *Options) { o.DataVolume = true },
		},
		"a DataVolume that waits for a pod": {
			objects: map[string]map[string]any{volumePath: volumeOf("WaitForFirstConsumer", nil)},
			change:  func(o *Options) { o.DataVolume = true }, err: "add --force-bind",
		},
		"a claim that is to be bound now": {
			objects: map[string]map[string]any{claimPath: pending(target)},
			change:  func(o *Options) { o.ForceBind = true }, changed: claimPath + bound,
		},
		"a claim that gets labels": {
			objects: map[string]map[string]any{claimPath: claimOf(target)},
			change:  func(o *Options) { o.Labels = map[string]string{"a": "b"} },
			changed: claimPath + ` {"metadata":{"labels":{"a":"b"}}}`,
		},
		"a claim that has them": {
			objects: map[string]map[string]any{claimPath: {"metadata": map[string]any{
				"annotations": target, "labels": map[string]any{"a": "b", "c": "d"},
			}}},
			change: func(o *Options) { o.Labels = map[string]string{"a": "b"} },
		},
		"a claim that is bound": {
			objects: map[string]map[string]any{claimPath: {
				"metadata": claimOf(target)["metadata"], "status": map[string]any{"phase": "Bound"},
			}},
			change: func(o *Options) { o.ForceBind = true },
		},
		"a DataVolume that is to be bound now": {
			objects: map[string]map[string]any{
				volumePath: volumeOf("UploadReady", nil), // as if CDI were quick
				claimPath:  pending(map[string]any{}),
			},
			change:  func(o *Options) { o.DataVolume, o.ForceBind = true, true },
			changed: claimPath + bound + "\n" + volumePath + bound,
		},
		"a DataVolume that was to be bound at once": {
			objects: map[string]map[string]any{
				volumePath: volumeOf("UploadReady", map[string]any{claims.BindAtOnce: ""}),
				claimPath:  pending(map[string]any{claims.BindAtOnce: ""}),
			},
			change: func(o *Options) { o.DataVolume, o.ForceBind = true, true },
		},
		"a DataVolume that has failed": {
			objects: map[string]map[string]any{volumePath: volumeOf("Failed", nil)},
			change:  func(o *Options) { o.DataVolume = true }, err: "CDI could not fill it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for at, object := range test.objects {
				w.objects[at] = runtime.DeepCopyJSON(object)
			}
			_, err := w.upload(test.change)
			if test.err == "" && (err != nil || w.got != image) ||
				test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || w.tokens > 0) {
				t.Errorf("%v, %d bytes", err, len(w.got))
			}
			if len(w.made) > 0 || strings.Join(w.changed, "\n") != test.changed {
				t.Errorf("made %q, changed %q", w.made, w.changed)
			}
		})
	}
}

// TestNotReady has what is said when CDI's pod does not come.
func TestNotReady(t *testing.T) {
	pending := claimOf(map[string]any{AnnotationTarget: ""})
	pending["status"] = map[string]any{"phase": "Pending"}
	warned := map[string]any{"items": []any{corev1.Event{
		LastTimestamp: metav1.Unix(1, 0), Message: "the pool is full",
	}}}
	for name, test := range map[string]struct {
		claim, events map[string]any
		force         bool
		why           string
	}{
		"late": {claim: pending, why: "the claim is not bound; if its storage class waits for a first pod; add " +
			"--force-bind"},
		"bound at once": {claim: pending, force: true, why: "CDI says nothing of it"},
		"full":          {claim: pending, events: warned, why: "the pool is full"},
		"no image of the pod": {
			claim: claimOf(map[string]any{AnnotationTarget: "", annotationRunning: "ErrImagePull"}),
			why:   "CDI says: ErrImagePull",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.objects[claimPath] = runtime.DeepCopyJSON(test.claim)
			w.objects["/api/v1/namespaces/ns/events"] = test.events
			var said []string
			_, err := w.upload(func(o *Options) {
				o.Patience, o.ForceBind = 50*time.Millisecond, test.force
				o.Waits = func(why string) { said = append(said, why) }
			})
			if !errors.Is(err, action.ErrTimeout) || !strings.Contains(err.Error(), test.why) {
				t.Error(err)
			}
			if len(said) != 1 || !strings.Contains(said[0], test.why) {
				t.Errorf("said %q", said)
			}
		})
	}
}

// TestWritten has what becomes of an image that was sent.
func TestWritten(t *testing.T) {
	for name, test := range map[string]struct {
		settle func(*world)
		dv     bool
		err    string
	}{
		"the DataVolume says so": {dv: true, settle: func(w *world) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.objects[volumePath] = volumeOf("Succeeded", nil)
		}},
		"the DataVolume fails": {dv: true, err: "CDI could not fill it", settle: func(w *world) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.objects[volumePath] = volumeOf("Failed", nil)
		}},
		"the pod begins anew": {err: "CDI could not use the image: Unable to process data", settle: func(w *world) {
			w.annotate(annotationRunning, "Unable to process data")
			w.annotate(annotationPodRestarts, "1")
		}},
		"it is deleted": {err: "it was deleted while CDI wrote the image to it", settle: func(w *world) {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.objects, claimPath)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle = func() { test.settle(w) }
			stage, err := w.upload(func(o *Options) { o.DataVolume = test.dv })
			if test.err == "" && (err != nil || stage != Done) ||
				test.err != "" && (err == nil || stage != Sent || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%v, %v", stage, err)
			}
		})
	}
}
