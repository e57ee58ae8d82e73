package vmcontroller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// onClaim is the template of a VM with a disk on a claim.
func onClaim(claim string) string { return diskOn("disk: {bus: virtio}", "claimName: "+claim) }

func diskOn(device, claim string) string {
	return "domain: {cpu: {sockets: 2}, memory: {guest: 1Gi}, devices: {disks: [{name: a, " + device + "}]}}\n" +
		"volumes: [{name: a, persistentVolumeClaim: {" + claim + "}}]"
}

// exchanging is the view of a VM whose guest was started with claim c, and that names another one now.
func exchanging(t *testing.T, strategy v1.UpdateVolumesStrategy, claim string) View {
	t.Helper()
	vmi := admitted(t, edited(t, 1, onClaim("c")), true)
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "a", Size: 1 << 20, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
			ClaimName: "c", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
	}}
	vm := edited(t, 2, onClaim(claim))
	vm.Spec.UpdateVolumesStrategy = &strategy
	return View{VM: vm, VMI: vmi, Filled: true, Now: now}
}

func claimIn(vmi *v1.VirtualMachineInstance) string {
	return vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
}

// The instance of a guest that runs has the claims of its VM where its disks are to be copied, needs no restart for
// that, and has its old ones again when the VM has.
func TestFollowClaims(t *testing.T) {
	view := exchanging(t, v1.UpdateVolumesStrategyMigration, "d")
	step := Next(view)
	if claimIn(view.VMI) != "c" || step.VMI == nil || claimIn(step.VMI) != "d" || observedGeneration(step.VMI) != 2 {
		t.Fatalf("the instance is %+v", step.VMI)
	}
	is := status(t, step.After)
	if restartOf(is) != "" || is.VolumeUpdateState == nil {
		t.Fatalf("RestartRequired is %q, the state %+v", restartOf(is), is.VolumeUpdateState)
	}
	landed := step.After
	landed.VMI = landed.VMI.DeepCopy()
	landed.VMI.Status.VolumeStatus[0].PersistentVolumeClaimInfo.ClaimName = "d"
	if is := status(t, Next(landed).After); restartOf(is) != "" || is.VolumeUpdateState != nil {
		t.Errorf("after the copy: RestartRequired is %q, the state %+v", restartOf(is), is.VolumeUpdateState)
	}
	back := step.After
	back.VM = edited(t, 3, onClaim("c"))
	step = Next(back)
	if step.VMI == nil || claimIn(step.VMI) != "c" || observedGeneration(step.VMI) != 3 {
		t.Fatalf("taken back: %+v", step.VMI)
	}
	if is := status(t, step.After); restartOf(is) != "" {
		t.Errorf("taken back: RestartRequired is %q", restartOf(is))
	}
}

func TestClaimsStay(t *testing.T) {
	for name, c := range map[string]struct {
		strategy v1.UpdateVolumesStrategy
		change   func(*View)
		says     string
	}{
		"replacement": {v1.UpdateVolumesStrategyReplacement, nil, "volumes[a].persistentVolumeClaim.claimName"},
		"staged": {
			v1.UpdateVolumesStrategyMigration, func(view *View) { view.Staged = true },
			"volumes[a] (vmRolloutStrategy is Stage, by which no guest that runs changes; nothing is copied, and",
		},
		"shareable": {v1.UpdateVolumesStrategyMigration, func(view *View) {
			yes := true
			view.VMI.Spec.Domain.Devices.Disks[0].Shareable = &yes
		}, "volumes[a] (its disk is shareable, and another guest may write while it is copied)"},
	} {
		t.Run(name, func(t *testing.T) {
			view := exchanging(t, c.strategy, "d")
			if c.change != nil {
				c.change(&view)
			}
			step := Next(view)
			if step.VMI != nil {
				t.Errorf("the instance is written: %+v", step.VMI.Spec.Volumes)
			}
			if got := restartOf(status(t, step.After)); !strings.Contains(got, c.says) {
				t.Errorf("RestartRequired is %q, want %q", got, c.says)
			}
		})
	}
}

// A disk that was plugged in is copied, or, where it cannot be, stays, by whom its VM says that disks are copied: it is
// not unplugged.
func TestPluggedClaims(t *testing.T) {
	copies, replaces := v1.UpdateVolumesStrategyMigration, v1.UpdateVolumesStrategyReplacement
	for name, c := range map[string]struct {
		strategy v1.UpdateVolumesStrategy
		device   string
		phase    v1.VolumePhase
		effect   rollout.Effect
		// has is the claim that the instance names then, "" when it has lost the volume; says why the next start waits.
		has, says string
	}{
		"copied":      {copies, "disk: {bus: scsi}", v1.VolumeReady, rollout.Migration, "d", ""},
		"not there":   {copies, "disk: {bus: scsi}", v1.VolumeBound, rollout.Restart, "c", "once the guest has it"},
		"a LUN":       {copies, "lun: {bus: scsi}", v1.VolumeReady, rollout.Restart, "c", "it is a LUN"},
		"a disc":      {copies, "cdrom: {bus: scsi}", v1.VolumeReady, rollout.Hotplug, "", ""},
		"replacement": {replaces, "disk: {bus: scsi}", v1.VolumeReady, rollout.Hotplug, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			was := edited(t, 1, diskOn(c.device, "claimName: c, hotpluggable: true"))
			is := edited(t, 2, diskOn(c.device, "claimName: d, hotpluggable: true"))
			was.Spec.UpdateVolumesStrategy, is.Spec.UpdateVolumesStrategy = &c.strategy, &c.strategy
			vmi := admitted(t, was, true)
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{
				Name: "a", Phase: c.phase, Size: 1 << 20, HotplugVolume: &v1.HotplugVolumeStatus{},
				PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
			}}
			before, after := asMap(t, was), asMap(t, is)
			verdicts := rollout.Guest{Instance: vmi}.Verdicts(rollout.Compare(before, after), rollout.Edit{
				Before: before, After: after, Was: &was.Spec.Template.Spec, Is: &is.Spec.Template.Spec,
			})
			if len(verdicts) != 1 || verdicts[0].Effect != c.effect || !strings.Contains(verdicts[0].Note, c.says) {
				t.Errorf("%+v", verdicts)
			}
			step := Next(View{VM: is, VMI: vmi, Filled: true, Now: now})
			volumes, got := step.After.VMI.Spec.Volumes, ""
			if len(volumes) > 0 {
				got = claims.Name(&volumes[0])
			}
			if got != c.has {
				t.Errorf("the instance has volumes %+v", volumes)
			}
			if copied := len(volumes) > 0 && hotplug.Copied(step.After.VMI, &volumes[0]); copied != (c.has == "d") {
				t.Errorf("copied: %t, by %v", copied, step.After.VMI.Annotations)
			}
			message := restartOf(status(t, step.After))
			if c.says == "" && message != "" || !strings.Contains(message, c.says) {
				t.Errorf("RestartRequired is %q", message)
			}
			if c.has != "d" {
				return
			}
			// On its way nothing unplugs it, and once it is there nothing is left of the copy, nor when it is reverted.
			if again := Next(step.After); again.VMI != nil {
				t.Errorf("on its way it is written: %+v, %v", again.VMI.Spec.Volumes, again.VMI.Annotations)
			}
			landed := step.After
			landed.VMI = landed.VMI.DeepCopy()
			landed.VMI.Status.VolumeStatus[0].PersistentVolumeClaimInfo.ClaimName = "d"
			if then := Next(landed).After.VMI; then.Annotations[hotplug.CopiesAnnotation] != "" ||
				claims.Name(&then.Spec.Volumes[0]) != "d" {
				t.Errorf("it is there: %+v, %v", then.Spec.Volumes, then.Annotations)
			}
			back := step.After
			back.VM = was.DeepCopy()
			back.VM.Generation, back.VM.Spec.UpdateVolumesStrategy = 3, &replaces
			if then := Next(back).After.VMI; then.Annotations[hotplug.CopiesAnnotation] != "" ||
				len(then.Spec.Volumes) != 1 || claims.Name(&then.Spec.Volumes[0]) != "c" {
				t.Errorf("reverted: %+v, %v", then.Spec.Volumes, then.Annotations)
			}
		})
	}
}

// What virtctl says of a claim that is changed is what becomes of it.
func TestVerdictOfClaims(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.VirtualMachineInstance)
		want   rollout.Effect
		note   string
	}{
		"copied": {func(*v1.VirtualMachineInstance) {}, rollout.Migration, "copies the disk"},
		"the guest stays": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{
				Type: v1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionFalse, Message: "a GPU",
			})
		}, rollout.Restart, "the guest cannot migrate: a GPU"},
		"another is being copied": {func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "e"
		}, rollout.Restart, "can only be reverted"},
	} {
		t.Run(name, func(t *testing.T) {
			view := exchanging(t, v1.UpdateVolumesStrategyMigration, "d")
			c.change(view.VMI)
			was := edited(t, 1, onClaim("c"))
			was.Spec.UpdateVolumesStrategy = view.VM.Spec.UpdateVolumesStrategy
			before, after := asMap(t, was), asMap(t, view.VM)
			verdicts := rollout.Guest{Instance: view.VMI}.Verdicts(rollout.Compare(before, after), rollout.Edit{
				Before: before, After: after, Was: &was.Spec.Template.Spec, Is: &view.VM.Spec.Template.Spec,
			})
			if len(verdicts) != 1 || verdicts[0].Effect != c.want || !strings.Contains(verdicts[0].Note, c.note) {
				t.Errorf("%+v", verdicts)
			}
			message := restartOf(status(t, Next(view).After))
			if got := strings.Contains(message, c.note); got != (c.want == rollout.Restart) {
				t.Errorf("RestartRequired is %q", message)
			}
		})
	}
}

// What virtctl says of volumes that are reverted, and of claims to which nothing can be copied yet, is what the VMI's
// condition says then.
func TestVerdictOfOtherClaims(t *testing.T) {
	verdict := func(guest rollout.Guest, was, is *v1.VirtualMachine) rollout.Verdict {
		t.Helper()
		before, after := asMap(t, was), asMap(t, is)
		verdicts := guest.Verdicts(rollout.Compare(before, after), rollout.Edit{
			Before: before, After: after, Was: &was.Spec.Template.Spec, Is: &is.Spec.Template.Spec,
		})
		if len(verdicts) != 1 {
			t.Fatalf("%+v", verdicts)
		}
		return verdicts[0]
	}
	copying := Next(exchanging(t, v1.UpdateVolumesStrategyMigration, "d")).After
	for _, strategy := range []v1.UpdateVolumesStrategy{
		v1.UpdateVolumesStrategyMigration, v1.UpdateVolumesStrategyReplacement,
	} {
		for _, staged := range []bool{false, true} {
			was, back := copying.VM.DeepCopy(), edited(t, 3, onClaim("c"))
			was.Spec.UpdateVolumesStrategy, back.Spec.UpdateVolumesStrategy = &strategy, &strategy
			got := verdict(rollout.Guest{Instance: copying.VMI, Staged: staged}, was, back)
			if got.Effect != rollout.Live || got.Note != "cancels the copy, nothing is copied" {
				t.Errorf("%s, staged %t: %s %q", strategy, staged, got.Effect, got.Note)
			}
		}
	}

	view := exchanging(t, v1.UpdateVolumesStrategyMigration, "d")
	was := edited(t, 1, onClaim("c"))
	was.Spec.UpdateVolumesStrategy = view.VM.Spec.UpdateVolumesStrategy
	if got := verdict(rollout.Guest{Instance: view.VMI, Staged: true}, was, view.VM); got.Effect != rollout.Restart ||
		!strings.Contains(got.Note, "the VM does not start with the new claim") {
		t.Errorf("staged: %s %q", got.Effect, got.Note)
	}
	vmi := Next(view).After.VMI
	small, large := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
	small.Name, large.Name = "d", "d"
	small.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Ki")}
	large.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for name, claims := range map[string]map[string]*corev1.PersistentVolumeClaim{
		"not known": nil, "absent": {}, "too small": {"d": small}, "large": {"d": large},
	} {
		want := "copies the disk to the new claim"
		if _, why := volumemigration.Describe(vmi, claims); why != "" && claims != nil {
			want += ", and waits for that: " + why
		}
		got := verdict(rollout.Guest{Instance: view.VMI, Claims: claims}, was, view.VM)
		if got.Effect != rollout.Migration || got.Note != want {
			t.Errorf("%s: %s %q, want %q", name, got.Effect, got.Note, want)
		}
	}
	// The VM goes back to what its guest never left, as where the other claim waited for the next start.
	got := verdict(rollout.Guest{Instance: view.VMI}, view.VM, was)
	if got.Effect != rollout.Live || got.Note != "the guest has it" {
		t.Errorf("what the guest has: %s %q", got.Effect, got.Note)
	}
}

// A VM whose guest ended before its disks were copied is not started with what is half copied, but with its old claims.
func TestUnfinishedCopy(t *testing.T) {
	running := Next(exchanging(t, v1.UpdateVolumesStrategyMigration, "d")).After
	view := View{VM: running.VM.DeepCopy(), Filled: true, Now: now}
	view.VM.Status = status(t, running)
	step := Next(view)
	is := status(t, step.After)
	if step.Create != nil || !conditions.True(is.Conditions, v1.VirtualMachineManualRecoveryRequired) {
		t.Fatalf("it makes %+v; %+v", step.Create, is.Conditions)
	}
	if !volumemigration.Unfinished(view.VM, nil) {
		t.Error("the start is not refused")
	}
	reverted := edited(t, 3, onClaim("c"))
	reverted.Status = is
	view.VM = reverted
	if step = Next(view); step.Create == nil || claimIn(step.Create) != "c" {
		t.Fatalf("it does not start with its old claims: %+v", step)
	}
	if is := status(t, step.After); conditions.Find(is.Conditions, v1.VirtualMachineManualRecoveryRequired) != nil ||
		is.VolumeUpdateState != nil {
		t.Errorf("%+v", is)
	}
}

// A VM whose guest has ended before it was known that its disk is to be copied is not started with the claim to which
// nothing was copied, as long as the migration may take back that the VM names it.
func TestBroughtStartsLater(t *testing.T) {
	view := View{VM: edited(t, 2, onClaim("d")), Filled: true, Brought: true, Now: now}
	step := Next(view)
	if step.Create != nil || !step.Status {
		t.Fatalf("it makes %+v", step.Create)
	}
	view.Brought = false
	if step = Next(view); step.Create == nil {
		t.Errorf("it does not start: %+v", step)
	}
}

// Only a migration that may take back what a VM names keeps it from starting.
func TestLookAtBrought(t *testing.T) {
	named := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "vm",
		Annotations: map[string]string{volumemigration.RecordAnnotation: `{"migration":"m"}`},
	}}
	migration := func(uid, finalizer string) *v1.VirtualMachineInstanceMigration {
		return &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: uid, UID: types.UID(uid), Finalizers: []string{finalizer},
		}}
	}
	for name, c := range map[string]struct {
		vm        *v1.VirtualMachine
		migration *v1.VirtualMachineInstanceMigration
		want      bool
	}{
		"under way":   {named, migration("m", volumemigration.WithDisksFinalizer), true},
		"let go":      {named, migration("m", "example.com/other"), false},
		"another's":   {named, migration("n", volumemigration.WithDisksFinalizer), false},
		"not brought": {&v1.VirtualMachine{}, migration("m", volumemigration.WithDisksFinalizer), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Client: frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme}, c.migration)}
			view := View{VM: c.vm}
			if err := r.lookAtBrought(t.Context(), &view); err != nil || view.Brought != c.want {
				t.Errorf("%t, %v", view.Brought, err)
			}
		})
	}
}
