package exportcontroller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"kubevirt.io/api/export/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

var kind = schema.GroupResource{Resource: "things"}

func TestMade(t *testing.T) {
	taken, busy := apierrors.NewAlreadyExists(kind, "x"), errors.New("busy")
	for name, tc := range map[string]struct {
		got  error
		want string
	}{
		"made":                    {made("pod", "p", nil), ""},
		"another has the name":    {made("pod", "p", taken), "create pod p: the name is taken"},
		"not made":                {made("pod", "p", busy), "create the pod: busy"},
		"made now":                {madeBefore("claim c", nil), ""},
		"an earlier step made it": {madeBefore("claim c", taken), ""},
		"neither now nor earlier": {madeBefore("claim c", busy), "create claim c: busy"},
	} {
		if got := fmt.Sprint(tc.got); (tc.want != "" || tc.got != nil) && got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestCreated(t *testing.T) {
	terminating := apierrors.NewForbidden(kind, "x", errors.New("x"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	quota := fmt.Errorf("create the pod: %w", apierrors.NewForbidden(kind, "x", errors.New("exceeded quota")))
	for name, tc := range map[string]struct {
		err   error
		says  string
		fails bool
	}{
		"made":      {},
		"a quota":   {err: quota, says: `create the pod: things "x" is forbidden: exceeded quota`},
		"a webhook": {err: apierrors.NewBadRequest("no"), says: "no"},
		"another has the name": {
			err:  made("pod", "p", apierrors.NewAlreadyExists(kind, "p")),
			says: "create pod p: the name is taken",
		},
		"the namespace goes": {err: terminating, fails: true},
		"no answer":          {err: errors.New("busy"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			view := ofVM()
			step := Step{Status: view.initial(), Events: []Event{{Reason: eventPodCreated}}}
			step.RequeueAfter = time.Hour
			if err := step.created(&view, tc.err); (err != nil) != tc.fails || tc.fails && !errors.Is(err, tc.err) {
				t.Errorf("error %v", err)
			}
			says := ""
			if c := conditions.Find(step.Status.Conditions, v1beta1.ConditionReady); c != nil &&
				c.Reason == exports.ReasonRefused {
				says = c.Message
			}
			if says != tc.says || (len(step.Events) == 0) != (tc.says != "") ||
				(step.RequeueAfter == again) != (tc.says != "") {
				t.Errorf("says %q, events %v, again after %s", says, step.Events, step.RequeueAfter)
			}
		})
	}
}

// writesOf are what the step of a view writes, in order, where the write of a number is refused.
func writesOf(t *testing.T, view View, refuse int) []string {
	t.Helper()
	server := frametest.New(t, []func(*runtime.Scheme) error{v1beta1.AddToScheme})
	server.Refuse(refuse, apierrors.NewForbidden(kind, "x", errors.New("no")))
	server.Note = func(object client.Object) string {
		switch object := object.(type) {
		case *corev1.Service:
			if identity := identityOf(object); identity != nil {
				return "certificate in " + identity.Secret
			}
		case *v1beta1.VirtualMachineExport:
			if object.Status != nil {
				ready := conditions.Find(object.Status.Conditions, v1beta1.ConditionReady)
				return strings.TrimSuffix(ready.Reason+": "+ready.Message, ": ")
			}
		}
		return ""
	}
	r := &Reconciler{Client: server, Recorder: record.NewFakeRecorder(9), writes: frame.NewWrites(server)}
	view.Export, view.Token = view.Export.DeepCopy(), "token"
	view.Service, view.Pod = view.Service.DeepCopy(), view.Pod.DeepCopy()
	var err error
	if view.Issued, err = issue(view.Export, "abcde", now); err != nil {
		t.Fatal(err)
	}
	step := Next(view)
	if err := r.apply(t.Context(), view, &step); refuse < 0 && err != nil {
		t.Errorf("after %q: %v", server.Writes, err)
	}
	return server.Writes
}

// TestApply: in which order a step is carried out, and what is written still after a write that is refused, as
// testdata/writes.golden has it.
func TestApply(t *testing.T) {
	var out strings.Builder
	for _, tc := range []struct {
		name string
		view View
	}{
		{"an export of a VM", ofVM()},
		{"its Service has a certificate", served(ofVM())},
		{"its Service lost it", changed(served(ofVM()), func(v *View) { v.Service.Annotations = nil })},
		{"an export of a claim", served(ofClaim())},
		{"an export of a snapshot", ofSnapshot()},
		{"the pod failed", withPod(ofVM(), corev1.PodFailed, false, nil)},
		{"its time is over", changed(ofVM(), func(v *View) { v.Now = now.Add(24 * time.Hour) })},
	} {
		out.WriteString(tc.name + "\n" +
			frametest.Story(t, func(refuse int) []string { return writesOf(t, tc.view, refuse) }))
	}
	golden(t, "writes.golden", out.String())
}
