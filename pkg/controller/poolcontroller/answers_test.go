package poolcontroller

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/pools"
)

func TestRevisionMade(t *testing.T) {
	kind := schema.GroupResource{Resource: "controllerrevisions"}
	p := newPool(t, "")
	its, others := &appsv1.ControllerRevision{}, &appsv1.ControllerRevision{}
	its.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, pools.Kind)}
	its.Name, others.Name = "web-3", "web-3"
	terminating := apierrors.NewForbidden(kind, "web-3", errors.New("x"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	taken := apierrors.NewAlreadyExists(kind, "web-3")
	for name, tc := range map[string]struct {
		there *appsv1.ControllerRevision
		err   error
		want  string
	}{
		"made":              {its, nil, ""},
		"namespace goes":    {its, terminating, ""},
		"made a moment ago": {its, taken, ""},
		"another's": {
			others, taken, `ControllerRevision "web-3" exists and does not belong to this pool; delete it`,
		},
		"no answer": {its, errors.New("timeout"), "create ControllerRevision: timeout"},
	} {
		err := revisionMade(p, tc.there, tc.err)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || err.Error() != tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOutcome(t *testing.T) {
	kind := schema.GroupResource{Resource: "virtualmachines"}
	type answer struct {
		reason string
		err    error
	}
	quota, busy := errors.New("quota"), errors.New("busy")
	conflict := fmt.Errorf("update VM a: %w", apierrors.NewConflict(kind, "a", nil))
	gone := fmt.Errorf("release VM a: %w", apierrors.NewNotFound(kind, "a"))
	for name, tc := range map[string]struct {
		answers []answer
		failure Failure
		errs    int
	}{
		"all done":  {answers: []answer{{ReasonFailedScaleIn, nil}, {ReasonFailedScaleOut, nil}}},
		"one fails": {[]answer{{ReasonFailedUpdate, busy}}, Failure{ReasonFailedUpdate, "busy"}, 1},
		"the first is reported": {
			[]answer{{ReasonFailedScaleOut, quota}, {ReasonFailedUpdate, busy}},
			Failure{ReasonFailedScaleOut, "quota"},
			2,
		},
		"another wrote meanwhile": {
			[]answer{{ReasonFailedUpdate, conflict}, {ReasonFailedScaleIn, gone}}, Failure{}, 2,
		},
		"another wrote, and one fails": {
			[]answer{{ReasonFailedUpdate, conflict}, {ReasonFailedPruning, busy}},
			Failure{ReasonFailedPruning, "busy"},
			2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := machines(t, "web-0", "web-1", "web-2")
			view := View{Pool: newPool(t, ""), Selector: labels.Everything(), Machines: all}
			step := Step{Release: []*v1.VirtualMachine{all[1].VM}, Delete: []*v1.VirtualMachine{all[2].VM}}
			out := outcome{made: []*v1.VirtualMachine{{}, {}}}
			for _, answer := range tc.answers {
				out.add(answer.reason, answer.err)
			}
			status := out.status(view, &step, now)
			var failure Failure
			if c := conditions.Find(status.Conditions, v1beta1.VirtualMachinePoolReplicaFailure); c != nil {
				failure = Failure{c.Reason, c.Message}
			}
			if failure != tc.failure || len(out.errs) != tc.errs || status.Replicas != 4 {
				t.Errorf("%+v, errors %v, %d replicas", failure, out.errs, status.Replicas)
			}
		})
	}
}

// TestPreserve: the disks of the VMs that are too many outlive them where the pool says so, and Look knows when they
// may have to.
func TestPreserve(t *testing.T) {
	const preserve = "{replicas: 1, scaleInStrategy: {proactive: {statePreservation: Offline, " +
		"selectionPolicy: {sortPolicy: DescendingOrder}}}}"
	for name, tc := range map[string]struct {
		spec     string
		machines []string
		change   func(*v1beta1.VirtualMachinePool)
		reads    bool
		kept     string
	}{
		"too many": {spec: preserve, machines: []string{"web-0", "web-1", "web-2"}, reads: true, kept: "web-2 web-1"},
		"enough":   {spec: preserve, machines: []string{"web-0"}},
		"paused": {
			spec: preserve, machines: []string{"web-0", "web-1"},
			change: func(p *v1beta1.VirtualMachinePool) { p.Spec.Paused = true },
		},
		"nothing is preserved": {
			spec:     "{replicas: 1, scaleInStrategy: {proactive: {statePreservation: Disabled}}}",
			machines: []string{"web-0", "web-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := View{
				Pool: newPool(t, tc.spec), Selector: labels.Everything(), Machines: machines(t, tc.machines...),
				Revisions: revisions, Now: now, Shuffle: func(int, func(i, j int)) {},
			}
			if tc.change != nil {
				tc.change(view.Pool)
			}
			for i := range view.Machines {
				m := &view.Machines[i]
				m.VM.UID = types.UID(m.VM.Name)
				m.Disks = []client.Object{
					&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk-of-" + m.VM.Name}},
				}
			}
			if got := preserves(view); got != tc.reads {
				t.Errorf("the disks are read: %t", got)
			}
			step := Next(view)
			var kept []string
			for _, vm := range step.Delete {
				if disks := step.Keep[vm.UID]; len(disks) == 1 && disks[0].GetName() == "disk-of-"+vm.Name {
					kept = append(kept, vm.Name)
				}
			}
			if got := strings.Join(kept, " "); got != tc.kept || step.Preserve != (tc.kept != "") {
				t.Errorf("keeps the disks of %q, preserve %t", got, step.Preserve)
			}
		})
	}
}

func TestDiskNames(t *testing.T) {
	vm := &v1.VirtualMachine{}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "root"}}}
	vm.Spec.Template.Spec.Volumes = []v1.Volume{
		{Name: "a", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}},
		{Name: "b", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}},
		{Name: "c", VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}},
	}
	if got := diskNames(vm); !reflect.DeepEqual(got, []string{"root", "data"}) {
		t.Errorf("%q", got)
	}
}
