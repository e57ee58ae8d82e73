package vmicontroller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

const persistentTPM = `spec: {domain: {devices: {tpm: {persistent: true}}}}`

func ownedByVM(vmi *v1.VirtualMachineInstance) {
	vmi.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(&metav1.ObjectMeta{Name: vmi.Name, UID: "vm-uid"}, v1.VirtualMachineGroupVersionKind),
	}
}

func TestStateClaim(t *testing.T) {
	vmi := parseVMI(t, persistentTPM)
	alone := StateClaim(vmi, config.Config{})
	if !strings.HasPrefix(alone.Name, "persistent-state-for-demo-") || alone.Labels[vmstate.Prefix] != "demo" ||
		alone.OwnerReferences[0].UID != vmi.UID || alone.Spec.StorageClassName != nil ||
		alone.Spec.AccessModes[0] != corev1.ReadWriteOnce {
		t.Errorf("claim of a VMI %+v", alone)
	}
	ownedByVM(vmi)
	fast := config.Config{VMStateStorageClass: "fast"}
	owned := StateClaim(vmi, fast)
	if owned.OwnerReferences[0].UID != "vm-uid" || owned.OwnerReferences[0].Kind != "VirtualMachine" ||
		*owned.Spec.StorageClassName != "fast" ||
		owned.Spec.AccessModes[0] != corev1.ReadWriteMany {
		t.Errorf("claim of a VM %+v", owned)
	}
	next := vmi.DeepCopy()
	next.UID = "the instance after a restart"
	if StateClaimName(next) != owned.Name || StateClaimName(next) == alone.Name {
		t.Errorf("names %s, %s, %s", alone.Name, owned.Name, StateClaimName(next))
	}
	vmi.Name = strings.Repeat("a", 253)
	if n := len(StateClaimName(vmi)); n > 253 {
		t.Errorf("a name of %d bytes", n)
	}
}

func TestWhichStateClaim(t *testing.T) {
	vmi := parseVMI(t, persistentTPM)
	ownedByVM(vmi)
	named := func(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := StateClaim(vmi, config.Config{})
		c.Name, c.CreationTimestamp = name, at(time.Minute)
		for _, f := range change {
			f(c)
		}
		return c
	}
	block := corev1.PersistentVolumeBlock
	moved := func(c *corev1.PersistentVolumeClaim) { c.Labels[v1.MigrationNameLabel] = "m" }
	for name, test := range map[string]struct {
		claims []*corev1.PersistentVolumeClaim
		want   string
	}{
		"none":    {},
		"its own": {[]*corev1.PersistentVolumeClaim{named("a")}, "a"},
		"the oldest": {
			[]*corev1.PersistentVolumeClaim{
				named("a"), named("b", func(c *corev1.PersistentVolumeClaim) { c.CreationTimestamp = at(time.Hour) }),
			},
			"b",
		},
		"the one to which it moved": {[]*corev1.PersistentVolumeClaim{
			named("a", func(c *corev1.PersistentVolumeClaim) { c.CreationTimestamp = at(time.Hour) }),
			named("b", moved), named("c"),
		}, "b"},
		"the one to which it moved last": {[]*corev1.PersistentVolumeClaim{
			named("a", moved),
			named("b", moved, func(c *corev1.PersistentVolumeClaim) { c.CreationTimestamp = at(time.Second) }),
			named("c"),
		}, "b"},
		"a user's": {
			[]*corev1.PersistentVolumeClaim{
				named("a", func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil }),
			},
			"a",
		},
		"of another VM": {
			[]*corev1.PersistentVolumeClaim{
				named("a", func(c *corev1.PersistentVolumeClaim) {
					c.OwnerReferences[0].UID = "of the same name, before"
				}),
			},
			"",
		},
		"for another VM": {
			[]*corev1.PersistentVolumeClaim{
				named("a", func(c *corev1.PersistentVolumeClaim) { c.Labels[vmstate.Prefix] = "other" }),
			},
			"",
		},
		"is being deleted": {
			[]*corev1.PersistentVolumeClaim{
				named("a", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(at(0)) }),
			},
			"",
		},
		"is a block device": {
			[]*corev1.PersistentVolumeClaim{
				named("a", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }),
			},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if c := stateClaim(vmi, test.claims); c != nil {
				got = c.Name
			}
			if got != test.want {
				t.Errorf("claim %q, want %q", got, test.want)
			}
		})
	}
}

// The claim is made first, then the pod with it, and the status names it.
func TestStateComesFirst(t *testing.T) {
	vmi := testVMI(t, v1.Pending, func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	})
	view := View{VMI: vmi, Now: now}
	if step := Next(view); !step.CreateState || step.CreatePod || step.RequeueAfter == 0 {
		t.Errorf("without a claim: %+v", step)
	}
	c := StateClaim(vmi, config.Config{})
	c.Name = "restored"
	view.Claims = map[string]*corev1.PersistentVolumeClaim{c.Name: c}
	if step := Next(view); step.CreateState || !step.CreatePod {
		t.Errorf("with a claim: %+v", step)
	}
	mounted := slices.ContainsFunc(Pod(vmi, Facts{Claims: view.Claims}).Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "restored"
	})
	if !mounted {
		t.Error("the pod does not mount the claim")
	}
	pod := testPod(running)
	vmi.Status.ActivePods = map[types.UID]string{pod.UID: "node01"}
	view.Pods = []*corev1.Pod{pod}
	statuses := Next(view).Status.VolumeStatus
	if !slices.ContainsFunc(statuses, func(s v1.VolumeStatus) bool {
		return s.Name == "restored" && s.PersistentVolumeClaimInfo != nil &&
			s.PersistentVolumeClaimInfo.ClaimName == "restored"
	}) {
		t.Errorf("volumes in the status %+v", statuses)
	}
}

// When the state has moved to another claim, that one gets its label, and then the old one is removed. Each step is one
// that a kill before or after it does no harm to: until the label is there, the old claim is what the next instance
// finds, and neither the VMI nor the old claim goes.
func TestStateSettles(t *testing.T) {
	const source, target = "persistent-state-for-demo-aaaaa", "persistent-state-for-demo-bbbbb"
	labelled := func(c *corev1.PersistentVolumeClaim) { c.Labels[vmstate.Prefix] = "demo" }
	gone := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(at(0)) }
	users := func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil }
	for name, test := range map[string]struct {
		names          string
		target, source []func(*corev1.PersistentVolumeClaim)
		adopt, retire  string
		release        string
	}{
		"not there yet": {names: source},
		"there":         {names: target, adopt: target},
		"labelled":      {names: target, target: []func(*corev1.PersistentVolumeClaim){labelled}, retire: source},
		"labelled, and the old one is a user's": {
			names: target, target: []func(*corev1.PersistentVolumeClaim){labelled},
			source: []func(*corev1.PersistentVolumeClaim){users}, release: source,
		},
		"done": {
			names: target, target: []func(*corev1.PersistentVolumeClaim){labelled},
			source: []func(*corev1.PersistentVolumeClaim){gone},
		},
		"the new one was deleted":   {names: target, target: []func(*corev1.PersistentVolumeClaim){gone}},
		"that too, after its label": {names: target, target: []func(*corev1.PersistentVolumeClaim){labelled, gone}},
	} {
		for _, ends := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				vmi := testVMI(t, v1.Running, func(vmi *v1.VirtualMachineInstance) {
					vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
					vmi.Status.VolumeStatus = []v1.VolumeStatus{
						{
							Name:                      test.names,
							PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: test.names},
						},
					}
					vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
						SourcePersistentStatePVCName: source, TargetPersistentStatePVCName: target,
					}
				})
				old := StateClaim(vmi, config.Config{})
				old.Name, old.CreationTimestamp = source, at(time.Hour)
				migration := &v1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "mig"}}
				moved := MigrationStateClaim(migration, vmi, config.Config{})
				if !IsMigrationState(moved, migration, vmi) ||
					stateClaim(vmi, []*corev1.PersistentVolumeClaim{moved}) != nil {
					t.Errorf("the claim of a migration: %+v", moved.ObjectMeta)
				}
				moved.Name, moved.CreationTimestamp = target, at(time.Minute)
				for _, change := range test.target {
					change(moved)
				}
				for _, change := range test.source {
					change(old)
				}
				view := View{
					VMI: vmi, Now: now, Claims: map[string]*corev1.PersistentVolumeClaim{source: old, target: moved},
				}
				if ends {
					vmi.DeletionTimestamp = new(at(0))
				} else {
					view.Pods = []*corev1.Pod{testPod(running)}
				}
				step := Next(view)
				name := func(c *corev1.PersistentVolumeClaim) string {
					if c == nil {
						return ""
					}
					return c.Name
				}
				if name(step.AdoptState) != test.adopt || name(step.RetireState) != test.retire ||
					name(step.ReleaseState) != test.release {
					t.Errorf("adopts %q, retires %q, releases %q; want %q, %q, %q", name(step.AdoptState),
						name(step.RetireState), name(step.ReleaseState), test.adopt, test.retire, test.release)
				}
				if busy := test.adopt+test.retire+test.release != ""; ends && step.RemoveFinalizer == busy {
					t.Errorf("lets the VMI go: %t", step.RemoveFinalizer)
				}
				if test.retire != "" && stateClaimIn(vmi, view.Claims) != moved {
					t.Error("the next instance would find the old claim")
				}
			})
		}
	}
}

// A launcher that virt-handler did not see end says by its last word that the state was there.
func TestStateMovedUnseen(t *testing.T) {
	const source, target = "persistent-state-for-demo-aaaaa", "persistent-state-for-demo-bbbbb"
	for message, want := range map[string]string{
		`{"lifecycle":"LIFECYCLE_SHUTOFF","stateSaved":true}`: target,
		`{"lifecycle":"LIFECYCLE_SHUTOFF"}`:                   source,
	} {
		pod := testPod(ended(corev1.PodSucceeded, ""))
		pod.Status.ContainerStatuses[0].State.Terminated.Message = message
		vmi := testVMI(t, v1.Running, func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
			vmi.Status.VolumeStatus = []v1.VolumeStatus{
				{Name: source, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: source}},
			}
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
				TargetPod: pod.Name, SourcePersistentStatePVCName: source, TargetPersistentStatePVCName: target,
			}
		})
		step := Next(View{VMI: vmi, Pods: []*corev1.Pod{pod}, DeadSince: now.Add(-time.Minute), Now: now})
		if got := step.Status.VolumeStatus[0].Name; got != want {
			t.Errorf("%s: claim %s, want %s", message, got, want)
		}
	}
}
