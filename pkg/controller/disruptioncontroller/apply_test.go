package disruptioncontroller

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
)

// TestApply: what a step writes, in order, and which answers end it.
func TestApply(t *testing.T) {
	kind := schema.GroupResource{Resource: "poddisruptionbudgets"}
	terminating := apierrors.NewForbidden(kind, "x", errors.New("x"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "uid"}}
	older := Budget(vmi, 1)
	older.Name, older.UID = "older", "older"
	name := Name(vmi)
	creates := []string{"create PodDisruptionBudget " + name}
	two, failed := intstr.FromInt32(2), errors.New("somebody else's")
	for what, tc := range map[string]struct {
		step   Step
		answer error
		want   []string
		fails  error
	}{
		"protect":            {step: Step{Create: Budget(vmi, 1)}, want: creates},
		"it is there":        {Step{Create: Budget(vmi, 1)}, apierrors.NewAlreadyExists(kind, name), creates, nil},
		"the namespace goes": {Step{Create: Budget(vmi, 1)}, terminating, creates, nil},
		"it is refused":      {Step{Create: Budget(vmi, 1)}, failed, creates, failed},
		"a pod more":         {step: Step{MinAvailable: &two}, want: []string{"patch PodDisruptionBudget " + name}},
		"no more":            {step: Step{Delete: true}, want: []string{"delete PodDisruptionBudget " + name}},
		"older ones go first": {
			step: Step{Others: []*policyv1.PodDisruptionBudget{older}, Create: Budget(vmi, 1)},
			want: []string{"delete PodDisruptionBudget older", creates[0]},
		},
		"an older one does not go": {
			Step{Others: []*policyv1.PodDisruptionBudget{older}, Create: Budget(vmi, 1)},
			failed,
			[]string{"delete PodDisruptionBudget older"},
			failed,
		},
		"somebody else has the name": {step: Step{Failed: failed}, fails: failed},
	} {
		t.Run(what, func(t *testing.T) {
			server := frametest.New(t, nil)
			server.Refuse(0, tc.answer)
			r := &Reconciler{Client: server, Recorder: record.NewFakeRecorder(9), writes: frame.NewWrites(server)}
			err := r.apply(t.Context(), View{VMI: vmi, Budget: Budget(vmi, 1)}, &tc.step)
			if !errors.Is(err, tc.fails) {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(server.Writes, tc.want) {
				t.Errorf("writes %q, want %q", server.Writes, tc.want)
			}
		})
	}
}
