package uploadcontroller

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

var pods = schema.GroupResource{Resource: "pods"}

func TestCreated(t *testing.T) {
	terminating := apierrors.NewForbidden(pods, "a", errors.New("x"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	quota := apierrors.NewForbidden(pods, "a", errors.New("exceeded\nquota"))
	const refused = `the upload's pod is refused: pods "a" is forbidden: exceeded quota`
	for name, tc := range map[string]struct {
		err         error
		before, say string
		again       time.Duration
		want        string
	}{
		"made":                    {},
		"namespace goes":          {err: terminating},
		"is there":                {err: apierrors.NewAlreadyExists(pods, "a"), again: again},
		"refused":                 {err: quota, say: refused, again: again},
		"refused, which was said": {err: quota, before: refused, again: again},
		"no answer":               {err: errors.New("timeout"), want: "create the upload's pod: timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			view, step := View{Request: &uploads.Request{ID: "id", Size: 5}, Now: now}, Step{}
			view.State = &uploads.State{Message: tc.before}
			err := step.created(view, tc.err)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
				t.Errorf("error %v", err)
			}
			var want *uploads.State
			if tc.say != "" {
				want = &uploads.State{ID: "id", Phase: uploads.Pending, Size: 5, Message: tc.say}
			}
			if !reflect.DeepEqual(step.Say, want) || step.RequeueAfter != tc.again {
				t.Errorf("says %+v, again after %s", step.Say, step.RequeueAfter)
			}
		})
	}
}

// TestApply: a step's writes, in order, and what is written when the API server refuses the pod.
func TestApply(t *testing.T) {
	request := &uploads.Request{ID: "0123456789abcdef", Size: 5, Since: now}
	earlier, planned := pod(corev1.PodRunning, nil), Pod(claimOf(false), request, Facts{})
	for name, tc := range map[string]struct {
		refuse bool
		step   Step
		want   []string
	}{
		"a pod": {step: Step{Create: planned.DeepCopy()}, want: []string{"create Pod " + planned.Name}},
		"is refused": {true, Step{Create: planned.DeepCopy()}, []string{
			"create Pod " + planned.Name,
			`patch PersistentVolumeClaim c (the upload's pod is refused: pods "a" is forbidden: quota, under way)`,
		}},
		"an end, and pods of earlier uploads": {
			step: Step{
				Delete: []*corev1.Pod{earlier},
				End:    &uploads.State{Phase: uploads.Cancelled, Message: "done"},
				Labels: map[string]string{"a": "b"},
			},
			want: []string{"delete Pod p", "patch PersistentVolumeClaim c (done, labelled)"},
		},
		"a state": {
			step: Step{Say: &uploads.State{Phase: uploads.Pending, Message: "waits"}},
			want: []string{"patch PersistentVolumeClaim c (waits, under way)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := frametest.New(t, nil)
			if tc.refuse {
				server.Refuse(0, apierrors.NewForbidden(pods, "a", errors.New("quota")))
			}
			server.Note = func(object client.Object) string {
				state := uploads.StateOf(object.GetAnnotations())
				if state == nil {
					return ""
				}
				note := state.Message
				if object.GetLabels()["a"] == "b" {
					note += ", labelled"
				}
				if uploads.RequestOf(object.GetAnnotations()) != nil {
					note += ", under way"
				}
				return note
			}
			claim := claimOf(false)
			claim.Annotations = map[string]string{uploads.AnnotationRequest: uploads.Encode(request)}
			r := &Reconciler{Client: server, writes: frame.NewWrites(server)}
			view := View{Claim: claim, Request: request, Now: now}
			if err := r.apply(t.Context(), view, &tc.step); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(server.Writes, tc.want) {
				t.Errorf("writes %q, want %q", server.Writes, tc.want)
			}
		})
	}
}
