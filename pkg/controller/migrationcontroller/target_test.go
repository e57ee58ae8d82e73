package migrationcontroller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/written"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// The pod is planned with the claim for the guest's state that goes with it, and made where the guest keeps its CPU.
func TestPlan(t *testing.T) {
	taken := func(view *View) { view.StateTaken = true }
	view := situation()
	source, target := stateFrom, vmicontroller.MigrationStateClaimName(view.VMI, view.Migration.UID)
	for name, tc := range map[string]struct {
		changes      []func(*View)
		claim, event string
		mounts       string // none where no pod is planned
	}{
		"no state":              {changes: []func(*View){fresh}},
		"state that both reach": {changes: []func(*View){fresh, withState(corev1.ReadWriteMany)}, mounts: source},
		"state of one node": {
			changes: []func(*View){fresh, withState(corev1.ReadWriteOnce)}, claim: target, mounts: target,
		},
		"the claim was made": {
			changes: []func(*View){fresh, withState(corev1.ReadWriteOnce), ownState}, mounts: target,
		},
		"its name is taken": {
			changes: []func(*View){fresh, withState(corev1.ReadWriteOnce), taken},
			event: "Error creating the claim of the persistent state: PersistentVolumeClaim " + target +
				" exists already and is not this migration's",
		},
		"a network": {
			changes: []func(*View){fresh, func(view *View) { view.Facts.NetworkErr = errors.New("no such network") }},
			event:   "Error creating pod: no such network",
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := situation(tc.changes...)
			step := Next(view)
			if tc.event != "" {
				if step.Failed == nil || step.CreatePod || step.Pod != nil || step.CreateState != nil ||
					len(step.Events) != 1 || step.Events[0].Message != tc.event ||
					step.Status.Phase != view.Migration.Status.Phase {
					t.Errorf("%+v", step)
				}
				return
			}
			if !step.CreatePod || step.Pod == nil || step.Failed != nil {
				t.Fatalf("%+v", step)
			}
			claim := ""
			if step.CreateState != nil {
				claim = step.CreateState.Name
			}
			if claim != tc.claim {
				t.Errorf("claim %q", claim)
			}
			if tc.mounts != "" && !slices.ContainsFunc(step.Pod.Spec.Volumes, func(v corev1.Volume) bool {
				return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == tc.mounts
			}) {
				t.Errorf("volumes %+v", step.Pod.Spec.Volumes)
			}
		})
	}
}

// A claim that only waited for an upload waits no more when a disk is to be copied to it: that is written before there
// is a pod that does.
func TestUsed(t *testing.T) {
	view := situation(fresh, func(view *View) {
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = "awaited"
		view.VMI.Spec.Volumes = []v1.Volume{{
			Name: "root", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source},
		}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "awaited",
			Annotations: map[string]string{uploads.AnnotationMade: uploads.MadeFor, "mine": "x"},
		}}
		view.Facts.Claims = map[string]*corev1.PersistentVolumeClaim{"awaited": claim}
	})
	step := Next(view)
	if len(step.Used) != 1 || step.Used[0].Name != "awaited" {
		t.Fatalf("used are %+v", step.Used)
	}
	said := map[string]string{"mine": ""}
	api := interceptor.NewClient(fake.NewClientBuilder().WithObjects(step.Used[0].DeepCopy()).Build(),
		interceptor.Funcs{
			Create: func(ctx context.Context, under client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				var there corev1.PersistentVolumeClaim
				err := under.Get(ctx, client.ObjectKeyFromObject(step.Used[0]), &there)
				said = there.Annotations
				return err
			},
		})
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(step.Used[0]), step.Used[0]); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{
		Client: api, Live: api, writes: frame.NewWrites(api), Recorder: record.NewFakeRecorder(10),
		Created: &written.Creations{},
	}
	if err := r.createPod(t.Context(), view, &step); err != nil || !maps.Equal(said, map[string]string{"mine": "x"}) {
		t.Errorf("%v; when the pod was made, the claim said %v", err, said)
	}
}

func TestPlanKeepsProcessor(t *testing.T) {
	view := situation(fresh, func(view *View) {
		view.Source = &corev1.Pod{}
		view.SourceNode = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{v1.HostModelCPULabel + "Skylake": "true"},
		}}
	})
	if got := Next(view).Pod.Spec.NodeSelector[v1.SupportedHostModelMigrationCPU+"Skylake"]; got != "true" {
		t.Errorf("node selector %v", Next(view).Pod.Spec.NodeSelector)
	}
}

func TestPlanAttachment(t *testing.T) {
	step := Next(situation(scheduling, loaded(v1.VolumeReady)))
	pod := step.Attachment
	if pod == nil || pod.Name != hotplug.TargetAttachment("mig", []string{"data"}) || pod.GenerateName != "" ||
		pod.Labels[v1.MigrationJobLabel] != "mig" || pod.OwnerReferences[0].UID != "target" ||
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data" {
		t.Errorf("%+v", pod)
	}
}
