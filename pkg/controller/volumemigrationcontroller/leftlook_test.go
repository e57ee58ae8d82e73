package volumemigrationcontroller

import (
	"context"
	"errors"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// kind is a kind of a server, of which it may not be known yet whether the cluster has it.
type kind struct {
	server    client.Reader
	unsettled bool
}

func (k kind) Settled(context.Context) (bool, error) { return !k.unsettled, nil }
func (k kind) Installed() bool                       { return !k.unsettled }

func (k kind) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return k.server.List(ctx, into, options...)
}

func (k kind) Get(ctx context.Context, namespace, name string) (*cdiv1.DataVolume, error) {
	dv := &cdiv1.DataVolume{}
	if err := k.server.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, dv); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return dv, nil
}

// looking is a reconciler that sees objects.
func looking(t *testing.T, objects ...client.Object) *Reconciler {
	t.Helper()
	server := frametest.New(t, []func(*runtime.Scheme) error{
		v1.AddToScheme, exportv1beta1.AddToScheme, cdiv1.AddToScheme, snapshotsv1.AddToScheme,
	}, objects...)
	return &Reconciler{Client: server, Live: server, CDI: kind{server: server}, VolumeSnapshots: kind{server: server}}
}

func in(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "-uid")}
}

// left is a VM that has claims deleted which its guest leaves, its VMI, and claim a, which the guest has left.
func left() (*v1.VirtualMachine, *v1.VirtualMachineInstance, *corev1.PersistentVolumeClaim) {
	vm := &v1.VirtualMachine{ObjectMeta: in("vm")}
	vm.Annotations = map[string]string{volumemigration.CopiedClaimsAnnotation: volumemigration.ClaimsDelete}
	vmi := &v1.VirtualMachineInstance{ObjectMeta: in("vm")}
	vmi.UID = "u"
	vmi.OwnerReferences = []metav1.OwnerReference{{UID: vm.UID, Kind: "VirtualMachine", Controller: new(true)}}
	vmi.Status.Phase = v1.Running
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: in("a")}
	claim.Annotations = map[string]string{volumemigration.LeftAnnotation: "u"}
	claim.Status.Phase = corev1.ClaimBound
	return vm, vmi, claim
}

// says has the status of a VMI say that claim a was left, by each of these UIDs.
func says(t *testing.T, vmi *v1.VirtualMachineInstance, uids ...types.UID) {
	t.Helper()
	var all []volumemigration.Left
	for _, uid := range uids {
		all = append(all, volumemigration.Left{Volume: "root", Claim: "a", UID: uid})
	}
	if err := volumemigration.SetLeft(&vmi.Status, all, now); err != nil {
		t.Fatal(err)
	}
}

// deletes returns the names of what two looks delete.
func deletes(t *testing.T, r *Reconciler, vmi *v1.VirtualMachineInstance) string {
	t.Helper()
	names := ""
	for _, at := range []time.Time{now, now.Add(again)} {
		view := View{VMI: vmi, Now: at}
		if err := r.lookAtLeft(t.Context(), &view); err != nil {
			t.Fatal(err)
		}
		step := Next(view)
		if at.Equal(now) && len(step.Delete) > 0 {
			t.Fatalf("one look is enough for %v", step.Delete)
		}
		for _, object := range step.Delete {
			names += object.GetName()
		}
		vmi.Status = step.Status
		r.remember(vmi, step.Seen)
	}
	return names
}

// TestForgedLeft: what a broken node writes into the condition has no claim deleted that the guest has not left, and
// none that another uses.
func TestForgedLeft(t *testing.T) {
	other := &v1.VirtualMachine{ObjectMeta: in("db")}
	other.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	other.Spec.Template.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("x", "a")}
	for name, c := range map[string]struct {
		marked, used bool
		uids         []types.UID
		want         string
	}{
		"left":                      {marked: true, uids: []types.UID{"a-uid"}, want: "a"},
		"a claim of the namespace":  {uids: []types.UID{"a-uid"}},
		"another's":                 {marked: true, used: true, uids: []types.UID{"a-uid"}},
		"another's, and a wrong ID": {marked: true, used: true, uids: []types.UID{"a-uid", "x"}},
		"a wrong ID, and another's": {marked: true, used: true, uids: []types.UID{"x", "a-uid"}},
		"the claim that came after": {marked: true, uids: []types.UID{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			vm, vmi, claim := left()
			if !c.marked {
				claim.Annotations = nil
			}
			objects := []client.Object{vm, claim}
			if c.used {
				objects = append(objects, other.DeepCopy())
			}
			says(t, vmi, c.uids...)
			if got := deletes(t, looking(t, objects...), vmi); got != c.want {
				t.Errorf("deletes %q, want %q", got, c.want)
			}
		})
	}
}

// TestUnsettled: as long as it is not known whether the cluster has DataVolumes or VolumeSnapshots, nothing is decided.
func TestUnsettled(t *testing.T) {
	for name, unsettle := range map[string]func(*Reconciler){
		"DataVolumes":     func(r *Reconciler) { r.CDI = kind{server: r.Live, unsettled: true} },
		"VolumeSnapshots": func(r *Reconciler) { r.VolumeSnapshots = kind{server: r.Live, unsettled: true} },
	} {
		t.Run(name, func(t *testing.T) {
			vm, vmi, claim := left()
			says(t, vmi, claim.UID)
			r := looking(t, vm, claim)
			unsettle(r)
			if err := r.lookAtLeft(t.Context(), &View{VMI: vmi}); !errors.Is(err, frame.ErrStale) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestLeftDataVolume finds the DataVolume of a claim by any reference to it, not only the controller's.
func TestLeftDataVolume(t *testing.T) {
	for name, c := range map[string]struct{ uid, owner, want string }{
		"the VM's":          {"dv-uid", "vm-uid", "dv"},
		"another's":         {"dv-uid", "cron", ""},
		"another's, before": {"old", "cron", "a"}, // the claim's own is gone
	} {
		t.Run(name, func(t *testing.T) {
			vm, vmi, claim := left()
			says(t, vmi, claim.UID)
			claim.OwnerReferences = []metav1.OwnerReference{{Kind: kindDataVolume, Name: "dv", UID: types.UID(c.uid)}}
			dv := &cdiv1.DataVolume{ObjectMeta: in("dv")}
			dv.OwnerReferences = []metav1.OwnerReference{{Kind: "X", Name: "x", UID: types.UID(c.owner)}}
			if got := deletes(t, looking(t, vm, claim, dv), vmi); got != c.want {
				t.Errorf("deletes %q, want %q", got, c.want)
			}
		})
	}
}

// counted counts the lists that are read.
type counted struct {
	client.Reader
	lists int
}

func (c *counted) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, into, options...)
}

// TestLeftWaitsCheaply: while a migration may have the VM name the claims again, nothing is listed; then once for all.
func TestLeftWaitsCheaply(t *testing.T) {
	vm, vmi, claim := left()
	second := claim.DeepCopy()
	second.Name, second.UID = "b", "b-uid"
	list := []volumemigration.Left{{Volume: "x", Claim: "a", UID: claim.UID}, {Volume: "y", Claim: "b", UID: "b-uid"}}
	if err := volumemigration.SetLeft(&vmi.Status, list, now); err != nil {
		t.Fatal(err)
	}
	for record, want := range map[string]int{"": 5, "{}": 0} {
		vm.Annotations[volumemigration.RecordAnnotation] = record
		r := looking(t, vm, claim, second)
		reads := &counted{Reader: r.Live}
		r.Live = reads
		if err := r.lookAtLeft(t.Context(), &View{VMI: vmi, Now: now}); err != nil || reads.lists != want {
			t.Errorf("record %q: %d lists, error %v, want %d", record, reads.lists, err, want)
		}
	}
}

// TestOtherUser names who else uses a claim that a guest has left.
func TestOtherUser(t *testing.T) {
	pod := func(owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: in("p")}
		p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"},
		}}}
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}
		return p
	}
	vm := func(name string) *v1.VirtualMachine {
		vm := &v1.VirtualMachine{ObjectMeta: in(name)}
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
		vm.Spec.Template.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("x", "a")}
		return vm
	}
	other := &v1.VirtualMachineInstance{ObjectMeta: in("alone")}
	other.Spec.Volumes = []v1.Volume{*volumemigration.OnClaim("x", "a")}
	export := &exportv1beta1.VirtualMachineExport{ObjectMeta: in("e")}
	export.Spec.Source = corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "a"}
	clone := func(phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: in("copy")}
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "a"}
		c.Status.Phase = phase
		return c
	}
	snapshot := func(ready bool) *snapshotsv1.VolumeSnapshot {
		s := &snapshotsv1.VolumeSnapshot{ObjectMeta: in("s")}
		s.Spec.Source.PersistentVolumeClaimName = new("a")
		s.Status = &snapshotsv1.VolumeSnapshotStatus{ReadyToUse: &ready}
		return s
	}
	filled := func(namespace, from string, phase cdiv1.DataVolumePhase) *cdiv1.DataVolume {
		dv := &cdiv1.DataVolume{ObjectMeta: in("dv")}
		dv.Namespace, dv.Status.Phase = namespace, phase
		dv.Spec.Source = &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: from, Name: "a"}}
		return dv
	}
	source := &cdiv1.DataSource{ObjectMeta: in("golden")}
	source.Spec.Source.PVC = &cdiv1.DataVolumeSourcePVC{Name: "a"}
	named := &cdiv1.DataVolume{ObjectMeta: in("dv")}
	named.Namespace = "else"
	named.Spec.SourceRef = &cdiv1.DataVolumeSourceRef{
		Kind: cdiv1.DataVolumeDataSource, Namespace: new("ns"), Name: "golden",
	}
	for name, c := range map[string]struct {
		there     []client.Object
		want, pod string
		ours      bool
	}{
		"a pod":                {there: []client.Object{pod("")}, pod: "p"},
		"the guest's own pod":  {there: []client.Object{pod("u")}, pod: "p", ours: true},
		"another VM":           {there: []client.Object{vm("other")}, want: "VirtualMachine other names it"},
		"the VM":               {there: []client.Object{vm("vm")}},
		"a VMI":                {there: []client.Object{other}, want: "VirtualMachineInstance alone uses it"},
		"an export":            {there: []client.Object{export}, want: "VirtualMachineExport e exports it"},
		"a copy that is there": {there: []client.Object{clone(corev1.ClaimBound)}},
		"a copy that is made": {
			there: []client.Object{clone(corev1.ClaimPending)}, want: "PersistentVolumeClaim copy is made from it",
		},
		"a snapshot":              {there: []client.Object{snapshot(true)}},
		"a snapshot that is made": {there: []client.Object{snapshot(false)}, want: "VolumeSnapshot s is made from it"},
		"a DataVolume":            {there: []client.Object{filled("ns", "", cdiv1.Succeeded)}},
		"a DataVolume of another": {there: []client.Object{filled("else", "", "")}},
		"a DataVolume that waits": {
			there: []client.Object{filled("ns", "", cdiv1.CloneScheduled)}, want: "DataVolume ns/dv is made from it",
		},
		"a DataVolume elsewhere": {
			there: []client.Object{filled("else", "ns", "")}, want: "DataVolume else/dv is made from it",
		},
		"a DataVolume of a DataSource": {
			there: []client.Object{source, named}, want: "DataVolume else/dv is made from it",
		},
		"a DataVolume of no DataSource": {there: []client.Object{named}},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{ObjectMeta: in("vm")}
			vmi.UID = "u"
			all, err := looking(t, c.there...).users(t.Context(), "ns")
			if err != nil {
				t.Fatal(err)
			}
			if got := all.of("a", vmi); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if pod, ours := all.pod("a", vmi); pod != c.pod || ours != c.ours {
				t.Errorf("pod %q, the guest's %v", pod, ours)
			}
		})
	}
}
