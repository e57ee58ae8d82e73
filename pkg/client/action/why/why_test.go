package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// situation changes a VM that runs well on node one of two into one that does not.
type situation func(f *Facts)

// healthy is a VM that has run for an hour.
func healthy() Facts {
	strategy := v1.RunStrategyAlways
	volumes := []v1.Volume{
		{
			Name: "disk",
			VolumeSource: v1.VolumeSource{
				ContainerDisk: &v1.ContainerDiskSource{Image: "ghcr.io/virtkit/tiny-disk:dev"},
			},
		},
	}
	spec := v1.VirtualMachineInstanceSpec{Volumes: volumes}
	f := Facts{
		Now: now, Namespace: "default", Name: "demo", Others: []string{"demo", "web", "database"},
		VM: &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{
				Name: "demo", Namespace: "default", CreationTimestamp: ago(time.Hour),
				Finalizers: []string{v1.VirtualMachineControllerFinalizer},
			},
			Spec: v1.VirtualMachineSpec{
				RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: *spec.DeepCopy()},
			},
			Status: v1.VirtualMachineStatus{PrintableStatus: v1.VirtualMachineStatusRunning},
		},
		VMI: &v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default"},
			Spec:       spec,
			Status: v1.VirtualMachineInstanceStatus{
				ActivePods: map[types.UID]string{"pod": "one"},
				Phase:      v1.Running, NodeName: "one",
				PhaseTransitionTimestamps: []v1.VirtualMachineInstancePhaseTransitionTimestamp{
					{Phase: v1.Running, PhaseTransitionTimestamp: ago(time.Hour)},
				},
				Conditions: []v1.VirtualMachineInstanceCondition{
					{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
					{Type: v1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
					{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue},
				},
			},
		},
		Pods: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{
				Name: "virt-launcher-demo-abc", Labels: map[string]string{names.LabelComponent: names.VirtLauncher},
				UID: "pod", CreationTimestamp: ago(time.Hour),
			},
			Spec: corev1.PodSpec{
				NodeName: "one", SchedulerName: "default-scheduler",
				Containers: []corev1.Container{
					{Name: names.ContainerCompute, Image: "ghcr.io/virtkit/virt-launcher:dev"},
				},
				Volumes: []corev1.Volume{
					{
						Name: "disk",
						VolumeSource: corev1.VolumeSource{
							Image: &corev1.ImageVolumeSource{Reference: "ghcr.io/virtkit/tiny-disk:dev"},
						},
					},
				},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}},
		Claims: map[string]*corev1.PersistentVolumeClaim{},
		StorageClasses: []storagev1.StorageClass{
			{
				ObjectMeta: metav1.ObjectMeta{
					Name: "local", Annotations: map[string]string{claims.DefaultClassAnnotation: "true"},
				},
				Provisioner: "virt-local",
			},
		},
		Nodes:    []corev1.Node{aNode("one"), aNode("two")},
		KubeVirt: &v1.KubeVirt{Status: v1.KubeVirtStatus{Phase: v1.KubeVirtPhaseDeployed}},
		Stack: []corev1.Pod{
			component(names.VirtAPI, "one"), component(names.VirtController, "two"),
			component(names.VirtHandler, "one"), component(names.VirtHandler, "two"),
		},
	}
	return f
}

func aNode(name string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1.NodeSchedulable: "true"},
			Annotations: map[string]string{
				v1.VirtHandlerHeartbeat: `"` + now.Add(-30*time.Second).Format(time.RFC3339) + `"`,
			},
		},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func component(name, node string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + node, Labels: map[string]string{names.LabelComponent: name}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// strategy sets the run strategy; without an instance the VM is stopped.
func stopped(strategy v1.VirtualMachineRunStrategy, more ...situation) situation {
	return func(f *Facts) {
		f.VM.Spec.RunStrategy = &strategy
		f.VM.Status.PrintableStatus = v1.VirtualMachineStatusStopped
		f.VMI, f.Pods = nil, nil
		apply(f, more)
	}
}

func apply(f *Facts, more []situation) {
	for _, s := range more {
		s(f)
	}
}

// phase puts the instance into a phase it entered d ago, with no guest.
func phase(p v1.VirtualMachineInstancePhase, d time.Duration, more ...situation) situation {
	return func(f *Facts) {
		f.VM.Status.PrintableStatus = v1.VirtualMachineStatusStarting
		f.VMI.Status.Phase = p
		f.VMI.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstancePhaseTransitionTimestamp{
			{Phase: p, PhaseTransitionTimestamp: ago(d)},
		}
		f.VMI.Status.Conditions = []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: v1.GuestNotRunningReason},
		}
		switch p {
		case v1.Pending:
			f.Pods = nil
			f.VMI.Status.NodeName, f.VMI.Status.ActivePods = "", nil
		case v1.Scheduling:
			f.VMI.Status.NodeName = ""
			f.VMI.Status.ActivePods = map[types.UID]string{"pod": ""}
			f.Pods[0].Spec.NodeName = ""
			f.Pods[0].Status.Phase = corev1.PodPending
			f.Pods[0].CreationTimestamp = ago(d)
		case v1.Scheduled:
			f.Pods[0].Status.Phase = corev1.PodPending
			f.Pods[0].CreationTimestamp = ago(d)
		}
		apply(f, more)
	}
}

func condition(kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason, message string,
) situation {
	return func(f *Facts) {
		f.VMI.Status.Conditions = slices.DeleteFunc(f.VMI.Status.Conditions,
			func(c v1.VirtualMachineInstanceCondition) bool { return c.Type == kind })
		f.VMI.Status.Conditions = append(f.VMI.Status.Conditions,
			v1.VirtualMachineInstanceCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

// refused is an instance whose pod the API server did not take.
func refused(message string) situation {
	return phase(v1.Pending, time.Minute,
		condition(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, "FailedCreate", "create pod: "+message))
}

// unschedulable is the scheduler's verdict on the pod.
func unschedulable(message string, more ...situation) situation {
	return phase(v1.Scheduling, time.Minute, func(f *Facts) {
		f.Pods[0].Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message},
		}
	}, func(f *Facts) { apply(f, more) })
}

// selecting has the pod ask for a label of nodes.
func selecting(label string) situation {
	return func(f *Facts) {
		f.Pods[0].Spec.NodeSelector = map[string]string{v1.NodeSchedulable: "true", label: "true"}
	}
}

// waiting is the kubelet's word on the container.
func waiting(reason, message string, more ...situation) situation {
	return phase(v1.Scheduled, time.Minute, func(f *Facts) {
		f.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name:  names.ContainerCompute,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	}, func(f *Facts) { apply(f, more) })
}

// beside has a container beside the guest's wait, and the guest's for that.
func beside(reason, message string) situation {
	return waiting("PodInitializing", "", func(f *Facts) {
		f.Pods[0].Status.InitContainerStatuses = []corev1.ContainerStatus{{
			Name:  names.ContainerConsoleLog,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
	})
}

func event(kind, name, reason, message string) situation {
	return func(f *Facts) {
		f.Events = append(f.Events, corev1.Event{
			InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name}, Type: corev1.EventTypeWarning,
			Reason: reason, Message: message,
		})
	}
}

func podEvent(reason, message string) situation {
	return phase(v1.Scheduled, time.Minute, event("Pod", "virt-launcher-demo-abc", reason, message))
}

// syncFailed is the launcher's word on why the guest does not start.
func syncFailed(message string) situation {
	return phase(v1.Scheduled, time.Minute, running,
		condition(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, "Synchronizing with the Domain failed.",
			message))
}

func running(f *Facts) { f.Pods[0].Status.Phase = corev1.PodRunning }

func failed(reason, message string, more ...situation) situation {
	return phase(v1.Failed, time.Minute, func(f *Facts) { f.VMI.Status.Reason = reason },
		condition(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, reason, message), func(f *Facts) {
			apply(f, more)
		})
}

// strategy gives the VM a run strategy.
func strategy(strategy v1.VirtualMachineRunStrategy) situation {
	return func(f *Facts) { f.VM.Spec.RunStrategy = &strategy }
}

// withClaim gives the VM a claim; nil for one that does not exist.
func withClaim(claim *corev1.PersistentVolumeClaim, more ...situation) situation {
	return func(f *Facts) {
		volume := v1.Volume{
			Name: "data",
			VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				},
			},
		}
		if f.VMI != nil {
			f.VMI.Spec.Volumes = append(f.VMI.Spec.Volumes, volume)
		}
		f.VM.Spec.Template.Spec.Volumes = append(f.VM.Spec.Template.Spec.Volumes, volume)
		f.Claims["data"] = claim
		apply(f, more)
	}
}

// copying has a clone make the claim of the volume data, of an image.
func copying(phase clonev1beta1.VirtualMachineClonePhase) situation {
	return func(f *Facts) {
		made := &clonev1beta1.VirtualMachineClone{}
		made.Name, made.Annotations = "data", map[string]string{clones.NamespaceAnnotation: "golden"}
		made.Status.Phase = phase
		made.Status.Conditions = []clonev1beta1.Condition{{Type: clonev1beta1.ConditionReady, Message: "not ready"}}
		f.Copies = map[string]*clonev1beta1.VirtualMachineClone{"data": made}
	}
}

// usesClaim has the guest use a claim of one node for the volume data.
func usesClaim(name string) situation {
	return func(f *Facts) {
		f.VMI.Status.VolumeStatus = append(f.VMI.Status.VolumeStatus, v1.VolumeStatus{
			Name: "data", Size: 1, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: name},
		})
	}
}

// waitingFor has the guest's disk wait for a claim that is too small.
func waitingFor(name string) situation {
	return all(usesClaim("was"), func(f *Facts) {
		f.VMI.Status.Conditions = append(f.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
			Type: volumemigration.Condition, Status: corev1.ConditionTrue, Reason: volumemigration.ReasonWaiting,
			Message: name + " is too small",
		})
	})
}

func claimOf(p corev1.PersistentVolumeClaimPhase, class *string, age time.Duration) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default", CreationTimestamp: ago(age)},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: class},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: p},
	}
}

// uploadTo is a claim to which an image was to be uploaded.
func uploadTo(annotation string, what any) func(*Facts) {
	claim := claimOf(corev1.ClaimBound, nil, time.Hour)
	claim.Annotations = map[string]string{annotation: uploads.Encode(what)}
	return withClaim(claim)
}

// terminating is a claim that was deleted and is in use.
func terminating() *corev1.PersistentVolumeClaim {
	claim := claimOf(corev1.ClaimBound, nil, time.Hour)
	claim.DeletionTimestamp, claim.Spec.VolumeName = new(ago(time.Second)), "pv-data"
	return claim
}

// expanding is the claim while it grows, with a condition of a kind.
func expanding(message string, kind corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaim {
	claim := claimOf(corev1.ClaimBound, nil, time.Hour)
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
		{Type: kind, Status: corev1.ConditionTrue, Message: message},
	}
	return claim
}

func vmFailure(reason, message string) situation {
	return func(f *Facts) {
		f.VM.Status.Conditions = append(f.VM.Status.Conditions, v1.VirtualMachineCondition{
			Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		})
	}
}

func all(situations ...situation) situation {
	return func(f *Facts) { apply(f, situations) }
}

// withData gives the instance a volume that CDI has come so far with.
func withData(phase cdiv1.DataVolumePhase, conditions ...cdiv1.DataVolumeCondition) func(*Facts) {
	return func(f *Facts) {
		f.VMI.Spec.Volumes = append(f.VMI.Spec.Volumes,
			v1.Volume{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "fedora"}}})
		f.DataVolumes = map[string]*cdiv1.DataVolume{
			"fedora": {Status: cdiv1.DataVolumeStatus{Phase: phase, Progress: "45%", Conditions: conditions}},
		}
	}
}

// TestSituations is the list of what `virtctl why` knows; each has the first cause that is to be found.
func TestSituations(t *testing.T) {
	const noNodes = "0/2 nodes are available: "
	waitForConsumer := storagev1.VolumeBindingWaitForFirstConsumer
	cases := []struct {
		name    string
		make    situation
		reason  string
		verdict State
		layer   Layer
		message string // a part of it
		fix     string // a part of the first
	}{
		{"runs", func(*Facts) {}, "", OK, "", "nothing blocks it", ""},
		{
			"virtkit is not installed",
			func(f *Facts) { *f = Facts{Now: now, Name: "demo", Namespace: "default", NotInstalled: true} },
			"NotInstalled", Broken, LayerStack, "not installed", "virtctl install",
		},
		{
			"no such VM",
			func(f *Facts) { f.VM, f.VMI, f.Pods = nil, nil, nil; f.Name = "dmeo"; f.Others = []string{"demo"} },
			"NotFound", Broken, LayerVM, `did you mean "demo"?`, "virtctl why demo",
		},
		{
			"no such VM, none alike", func(f *Facts) { f.VM, f.VMI, f.Pods = nil, nil, nil; f.Name = "payroll" },
			"NotFound", Broken, LayerVM, `"payroll" not found in namespace`, "virtctl list -A",
		},
		{
			"no such VM, but others of the name", func(f *Facts) {
				f.VM, f.VMI, f.Pods = nil, nil, nil
				f.Name, f.Others, f.Namesakes = "dmeo", []string{"demo"}, []string{"snapshot/dmeo", "vmpool/dmeo"}
			},
			"NotFound", Broken, LayerVM, `"dmeo" not found in namespace "default"; there is snapshot/dmeo and vmpool/dmeo`,
			"virtctl why snapshot/dmeo -n default",
		},
		{
			"a claim of another guest", withClaim(claimOf(corev1.ClaimBound, nil, time.Hour), func(f *Facts) {
				f.Holders = map[string][]string{"data": {"web"}}
				f.VMI.Status.VolumeStatus = []v1.VolumeStatus{{
					Name: "data", Phase: v1.HotplugVolumeMounted, Reason: "VolumeAttachFailed",
					Message: `volume "data": PersistentVolumeClaim data is in use by another virtual machine`,
				}}
			}), "VolumeAttachFailed", Broken, LayerVolumes,
			`volume "data" is not attached: PersistentVolumeClaim data is in use by another virtual machine; ` +
				`claim data is in use by web`, "virtctl stop web -n default",
		},
		{
			"a claim that the guest does not let go of", func(f *Facts) {
				f.VMI.Status.VolumeStatus = []v1.VolumeStatus{{
					Name: "more", Phase: v1.HotplugVolumeDetaching, Reason: hotplug.ReasonDetachFailed,
					Message:                   `volume "more": the guest has not let go of the disk yet`,
					HotplugVolume:             &v1.HotplugVolumeStatus{AttachPodName: "hp-volume-x"},
					PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "c"},
				}}
			}, "VolumeDetachFailed", Broken, LayerVolumes,
			`volume "more" was unplugged, and claim c is not free: the guest has not let go of the disk yet`,
			"virtctl fslist demo -n default",
		},
		{
			"a plugged claim on another node", withClaim(claimOf(corev1.ClaimBound, nil, time.Hour), func(f *Facts) {
				f.VMI.Status.VolumeStatus = []v1.VolumeStatus{{
					Name: "data", Phase: v1.VolumeBound, Reason: hotplug.ReasonAttachmentPodNotReady,
					Message:       hotplug.Unscheduled("hp-volume-x", "node affinity"),
					HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "hp-volume-x"},
				}}
			}), "AttachmentPodNotReady", Broken, LayerVolumes,
			`volume "data" is not attached: attachment pod hp-volume-x cannot be scheduled: node affinity`,
			"virtctl removevolume demo -n default --volume-name data",
		},
		{
			"a claim that grows", withClaim(expanding("", corev1.PersistentVolumeClaimResizing)),
			"VolumeExpanding", Waiting, LayerVolumes,
			`volume "data": claim data grows from 1Gi to 2Gi: the storage works on it`,
			"kubectl describe pvc data -n default",
		},
		{
			"a claim that cannot grow",
			withClaim(expanding("the pool is full", corev1.PersistentVolumeClaimControllerResizeError)),
			"VolumeExpansionFailed", Broken, LayerVolumes,
			`volume "data": claim data grows from 1Gi to 2Gi: the storage cannot yet: the pool is full`,
			"kubectl describe pvc data -n default",
		},
		{
			"a disk that cannot grow", withClaim(claimOf(corev1.ClaimBound, nil, time.Hour), func(f *Facts) {
				f.VMI.Status.Conditions = append(f.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
					Type: expansion.Condition, Status: corev1.ConditionTrue, Reason: expansion.ReasonGuest,
					Message: `volume "data": no room`,
				})
			}), "DiskExpanding", Waiting, LayerVolumes,
			`the claims have grown, and not the guest's disks: volume "data": no room`,
			"virtctl logs demo -n default --source launcher",
		},
		{
			"a disk that is not copied yet", withClaim(claimOf(corev1.ClaimBound, nil, time.Hour), func(f *Facts) {
				f.VMI.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "data"}}
				f.VMI.Status.Conditions = append(f.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
					Type: volumemigration.Condition, Status: corev1.ConditionTrue, Reason: "VolumesChangeWaiting",
					Message: "PersistentVolumeClaim new is used by pod web",
				})
			}), "VolumesChangeWaiting", Waiting, LayerVolumes,
			`the guest's disks are to be copied to other claims: PersistentVolumeClaim new is used by pod web`,
			"virtctl why demo -n default --migrate",
		},
		{
			"a disk that waits for a claim",
			withClaim(claimOf(corev1.ClaimBound, nil, time.Hour), waitingFor("data")),
			"VolumesChangeWaiting", Waiting, LayerVolumes,
			`the guest's disks are to be copied to other claims: data is too small`,
			"kubectl get pvc -n default data (each must exist, be large enough",
		},
		{
			"a disk that waits for a claim, which waits for a pod with it",
			withClaim(claimOf(corev1.ClaimPending, nil, time.Hour), waitingFor("data"),
				func(f *Facts) { f.StorageClasses[0].VolumeBindingMode = &waitForConsumer }),
			"VolumesChangeWaiting", Waiting, LayerVolumes,
			`the guest's disks are to be copied to other claims: data is too small`,
			"kubectl get pvc -n default data (each must exist, be large enough",
		},
		{
			"half a disk", stopped(v1.RunStrategyAlways, func(f *Facts) {
				f.VM.Status.Conditions = append(f.VM.Status.Conditions, v1.VirtualMachineCondition{
					Type: v1.VirtualMachineManualRecoveryRequired, Status: corev1.ConditionTrue, Message: "one to a",
				})
			}), "ManualRecoveryRequired", Broken, LayerVolumes, `the VM does not start: one to a`,
			"kubectl edit vm demo",
		},
		{
			"half a disk of a VM that was stopped", stopped(v1.RunStrategyHalted, func(f *Facts) {
				f.VM.Status.Conditions = append(f.VM.Status.Conditions, v1.VirtualMachineCondition{
					Type: v1.VirtualMachineManualRecoveryRequired, Status: corev1.ConditionTrue, Message: "data to old",
				})
				source := &v1.PersistentVolumeClaimVolumeSource{}
				source.ClaimName = "new"
				f.VM.Spec.Template.Spec.Volumes = []v1.Volume{
					{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}},
				}
				f.VM.Status.VolumeUpdateState = &v1.VolumeUpdateState{VolumeMigrationState: &v1.VolumeMigrationState{
					MigratedVolumes: []v1.StorageMigratedVolumeInfo{{
						VolumeName: "data", SourcePVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"},
						DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "new"},
					}},
				}}
				f.Claims = map[string]*corev1.PersistentVolumeClaim{"new": claimOf(corev1.ClaimBound, nil, time.Hour)}
			}), "ManualRecoveryRequired", Broken, LayerVolumes, `the VM does not start: data to old`,
			`kubectl patch vm demo -n default --type json -p '[{"op":"replace",` +
				`"path":"/spec/template/spec/volumes/0/persistentVolumeClaim/claimName","value":"old"}]'`,
		},
		{
			"virt-controller does not run", stopped(v1.RunStrategyAlways, func(f *Facts) { f.Stack = f.Stack[:1] }),
			"ComponentMissing", Broken, LayerStack, "virt-controller does not run at all", "virtctl install",
		},
		{"virt-api crashes", func(f *Facts) {
			f.Stack[0].Status.Conditions[0].Status = corev1.ConditionFalse
			f.Stack[0].Status.ContainerStatuses = []corev1.ContainerStatus{
				{
					State: corev1.ContainerState{
						Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s"},
					},
				},
			}
		}, "ComponentNotReady", Broken, LayerStack, "CrashLoopBackOff: back-off 40s", "logs deployment/virt-api"},
		{"virtkit is being installed", stopped(v1.RunStrategyAlways, func(f *Facts) {
			f.KubeVirt.Status.Phase = v1.KubeVirtPhaseDeploying
			f.VM.CreationTimestamp = ago(time.Second)
		}), "NotDeployed", Waiting, LayerStack, "phase Deploying", "virtctl doctor"},
		{
			"virtkit is being removed", func(f *Facts) { at := ago(time.Second); f.KubeVirt.DeletionTimestamp = &at },
			"Uninstalling", Broken, LayerStack, "being removed", "virtctl install",
		},

		{"being renamed", stopped(v1.RunStrategyHalted, func(f *Facts) {
			f.VM.Annotations = map[string]string{identity.RenamingFrom: `{"name":"old","uid":"1"}`}
		}), "Renaming", Broken, LayerVM, "VM old is being renamed to it", "virtctl rename old demo"},
		{"halted", stopped(v1.RunStrategyHalted), "Halted", Off, LayerVM, "halted", "virtctl start demo"},
		{"manual", stopped(v1.RunStrategyManual), "Manual", Off, LayerVM, "Manual", "virtctl start demo"},
		{"start requested", stopped(v1.RunStrategyManual, func(f *Facts) {
			f.VM.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StartRequest}}
			f.VM.CreationTimestamp = ago(time.Second)
		}), "StartRequested", Waiting, LayerVM, "asked for", ""},
		{
			"has run once",
			stopped(v1.RunStrategyOnce, func(f *Facts) { f.VM.Status.RunStrategy = v1.RunStrategyOnce }), "OnceDone",
			Off, LayerVM, "has run", "spec.runStrategy",
		},
		{
			"guest shut itself down",
			all(phase(v1.Succeeded, time.Minute), func(f *Facts) {
				s := v1.RunStrategyRerunOnFailure
				f.VM.Spec.RunStrategy = &s
			}),
			"GuestShutDown", Off, LayerVM, "shut itself down", "virtctl start demo",
		},
		{
			"guest shut itself down and its instance is gone",
			stopped(v1.RunStrategyRerunOnFailure, func(f *Facts) {
				f.VM.Status.RunStrategy = v1.RunStrategyRerunOnFailure
			}),
			"GuestShutDown", Off, LayerVM, "shut itself down", "virtctl start demo",
		},
		{
			"instance of its own shut down", all(phase(v1.Succeeded, time.Minute), func(f *Facts) { f.VM = nil }),
			"GuestShutDown", Off, LayerVMI, "instance without a VM", "kubectl delete vmi demo",
		},
		{
			"runStrategy and running both",
			stopped(v1.RunStrategyAlways, func(f *Facts) { f.VM.Spec.Running = new(bool) }), "InvalidRunStrategy",
			Broken, LayerVM, "contradict", "spec.runStrategy alone",
		},
		{
			"name taken by another's instance",
			stopped(v1.RunStrategyAlways,
				vmFailure("VMINotOwned",
					`VirtualMachineInstance "demo" exists and does not belong to this VirtualMachine`)),
			"VMINotOwned", Broken, LayerVM, "does not belong", "kubectl delete vmi demo",
		},
		{
			"instancetype is missing",
			stopped(v1.RunStrategyAlways, vmFailure("FailedFindInstancetype", `instancetype "u1.huge" not found`)),
			"InstancetypeNotApplied", Broken, LayerVM, "u1.huge", "kubectl get virtualmachineclusterinstancetypes",
		},
		{
			"admission refuses the instance",
			stopped(v1.RunStrategyAlways,
				vmFailure("FailedCreate",
					`create VMI: admission webhook "x" denied the request: spec.domain.devices.gpus: not supported`)),
			"AdmissionDenied", Broken, LayerVM, "spec.domain.devices.gpus", "kubectl edit vm",
		},
		{
			"crash loop", all(failed("GuestCrashed", "The guest crashed: panicked."), func(f *Facts) {
				f.VM.Status.StartFailure = &v1.VirtualMachineStartFailure{
					ConsecutiveFailCount: 3, RetryAfterTimestamp: &metav1.Time{Time: now.Add(35 * time.Second)},
				}
			}), "CrashLoopBackOff", Broken, LayerVM,
			"3 times in a row and is tried again in 35s; the last time: The guest crashed: panicked.",
			"virtctl logs demo",
		},
		{
			"crash loop, between two guests", stopped(v1.RunStrategyAlways, func(f *Facts) {
				f.VM.Status.StartFailure = &v1.VirtualMachineStartFailure{
					ConsecutiveFailCount: 3, RetryAfterTimestamp: &metav1.Time{Time: ago(time.Second).Time},
				}
			}), "CrashLoopBackOff", Broken, LayerVM, "3 times in a row and is tried again now", "virtctl logs demo",
		},
		{"deletion waits for a finalizer", stopped(v1.RunStrategyAlways, func(f *Facts) {
			at := ago(time.Minute)
			f.VM.DeletionTimestamp, f.VM.Finalizers = &at, []string{"backup.example.com/protect"}
		}), "FinalizerHeld", Broken, LayerVM, "backup.example.com/protect", "let that program finish"},
		{"deletion waits for the guest", func(f *Facts) {
			at := ago(5 * time.Second)
			f.VM.DeletionTimestamp = &at
			f.VMI.DeletionTimestamp = &at
		}, "Terminating", Waiting, LayerVM, "waits for its guest", "--force"},
		{"restart required", func(f *Facts) {
			f.VM.Status.Conditions = []v1.VirtualMachineCondition{
				{
					Type: v1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue,
					Message: "a non-live-updatable field was changed",
				},
			}
		}, "RestartRequired", OK, LayerVM, "needs a restart", "virtctl restart demo"},

		{
			"an interface that comes by a migration", func(f *Facts) {
				f.VMI.Status.Conditions = append(f.VMI.Status.Conditions, v1.VirtualMachineInstanceCondition{
					Type: v1.VirtualMachineInstanceMigrationRequired, Status: corev1.ConditionTrue,
					Message: "The guest gets its new interface red in another pod.",
				})
			}, "MigrationRequired", OK, LayerVMI, "its new interface red", "virtctl migrate demo",
		},
		{
			"quota",
			refused(
				`pods "virt-launcher-demo-abc" is forbidden: exceeded quota: small, requested: memory=1Gi, used: memory=3Gi, limited: memory=3Gi`),
			"QuotaExceeded", Broken, LayerPod, "limited: memory=3Gi", "kubectl describe quota",
		},
		{
			"pod security",
			refused(
				`pods "virt-launcher-demo-abc" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes`),
			"PodSecurity", Broken, LayerPod, "Pod Security", "kubectl label ns default",
		},
		{
			"limit range",
			refused(`pods "x" is forbidden: maximum memory usage per Container is 512Mi, but limit is 1Gi`),
			"LimitRange", Broken, LayerPod, "512Mi", "kubectl describe limitrange",
		},
		{
			"namespace terminating",
			refused(
				`pods "x" is forbidden: unable to create new content in namespace default because it is being terminated`),
			"NamespaceTerminating", Broken, LayerPod, "being deleted", "another namespace",
		},
		{
			"priority class is missing", refused(`pods "x" is forbidden: no PriorityClass with name gold was found`),
			"PriorityClassMissing", Broken, LayerPod, "gold", "kubectl get priorityclass",
		},
		{
			"claim of the state is another's",
			phase(v1.Pending, time.Minute, condition(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse,
				names.ReasonStateClaimTaken, vmstate.TakenError("persistent-state-for-demo").Error())),
			names.ReasonStateClaimTaken, Broken, LayerVolumes, "persistent-state-for-demo exists",
			"kubectl get pvc -n default",
		},
		{
			"foreign webhook refuses the pod",
			refused(`admission webhook "policy.example.com" denied the request: no emptyDir here`), "AdmissionDenied",
			Broken, LayerPod, "no emptyDir here", "exempt",
		},
		{
			"foreign webhook is down",
			refused(`Internal error occurred: failed calling webhook "policy.example.com": connection refused`),
			"WebhookDown", Broken, LayerPod, "policy.example.com", "webhookconfigurations",
		},

		{
			"claim is missing",
			all(phase(v1.Pending, time.Minute,
				condition(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse, "FailedPvcNotFound", "x")),
				withClaim(nil)),
			"ClaimMissing", Broken, LayerVolumes, `"data" does not exist`, "create it",
		},
		{
			"claim is being copied from an image",
			all(phase(v1.Pending, time.Minute), withClaim(nil), copying(clonev1beta1.SnapshotInProgress)),
			"ImageCopying", Waiting, LayerVolumes, "image of namespace golden: SnapshotInProgress: not ready",
			"vmclone",
		},
		{
			"claim cannot be copied from an image",
			all(phase(v1.Pending, time.Minute), withClaim(nil), copying(clonev1beta1.Failed)),
			"ImageCopyFailed", Broken, LayerVolumes, "image of namespace golden: Failed: not ready", "vmclone",
		},
		{
			"claim is lost",
			all(phase(v1.Scheduling, time.Minute), withClaim(claimOf(corev1.ClaimLost, nil, time.Hour))), "ClaimLost",
			Broken, LayerVolumes, "its data", "restore",
		},
		{
			"claim of a guest that may still run",
			phase(v1.Pending, time.Minute, condition(v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse,
				names.ReasonClaimHeld, "claim data is still held by VirtualMachineInstance other")),
			names.ReasonClaimHeld, Waiting, LayerVolumes, "still held", "kubectl get nodes",
		},
		{
			"image is being uploaded",
			all(phase(v1.Pending, time.Minute),
				uploadTo(uploads.AnnotationRequest, uploads.Request{ID: "0123456789abcdef", Size: 1})),
			names.ReasonUploadIncomplete, Waiting, LayerVolumes, "is being uploaded", "--cancel",
		},
		{
			"upload was cancelled",
			all(phase(v1.Pending, time.Minute),
				uploadTo(uploads.AnnotationState, uploads.State{Phase: uploads.Cancelled})),
			names.ReasonUploadIncomplete, Broken, LayerVolumes, "is incomplete", "virtctl image-upload pvc data",
		},
		{
			"image is being uploaded to a claim that is to be plugged",
			all(uploadTo(uploads.AnnotationRequest, uploads.Request{ID: "0123456789abcdef", Size: 1}), func(f *Facts) {
				f.VMI.Status.VolumeStatus = []v1.VolumeStatus{{
					Name: "data", Phase: v1.VolumeBound, Reason: names.ReasonUploadIncomplete,
				}}
			}),
			names.ReasonUploadIncomplete, Waiting, LayerVolumes, "is being uploaded", "--cancel",
		},
		{
			"claim is being deleted",
			all(phase(v1.Scheduling, 5*time.Second),
				withClaim(claimOf(corev1.ClaimBound, nil, time.Hour), func(f *Facts) {
					at := ago(time.Second)
					f.Claims["data"].DeletionTimestamp = &at
				})),
			"ClaimTerminating", Broken, LayerVolumes, "no guest can start on it", "kubectl describe pvc data",
		},
		{
			"claim is being deleted under the guest", withClaim(terminating()), "ClaimTerminating", Broken,
			LayerVolumes, "once the guest stops or no longer has it, its data is lost", "kubectl patch pv pv-data",
		},
		{
			"no default StorageClass",
			all(unschedulable(noNodes+"pod has unbound immediate PersistentVolumeClaims. not found"),
				withClaim(claimOf(corev1.ClaimPending, nil, time.Hour)), func(f *Facts) {
					f.StorageClasses[0].Annotations = nil
				}),
			"NoDefaultStorageClass", Broken, LayerVolumes, "no default one", "kubectl annotate storageclass",
		},
		{
			"StorageClass is missing",
			all(unschedulable(noNodes+"pod has unbound immediate PersistentVolumeClaims."),
				withClaim(claimOf(corev1.ClaimPending, new("fast"), time.Hour))),
			"StorageClassMissing", Broken, LayerVolumes, `"fast"`, "kubectl get storageclass",
		},
		{
			"no volume made by hand",
			all(unschedulable(noNodes+"pod has unbound immediate PersistentVolumeClaims."),
				withClaim(claimOf(corev1.ClaimPending, new(""), time.Hour))),
			"NoVolume", Broken, LayerVolumes, "made by hand", "PersistentVolume",
		},
		{
			"provisioning fails",
			all(unschedulable(noNodes+"pod has unbound immediate PersistentVolumeClaims."),
				withClaim(claimOf(corev1.ClaimPending, nil, time.Hour)),
				event("PersistentVolumeClaim", "data", "ProvisioningFailed", "pool is full")),
			"ProvisioningFailed", Broken, LayerVolumes, "pool is full", "whoever runs the storage",
		},
		{
			"provisioner is silent",
			all(unschedulable(noNodes+"pod has unbound immediate PersistentVolumeClaims."),
				withClaim(claimOf(corev1.ClaimPending, nil, time.Hour))),
			"ProvisionerSilent", Broken, LayerVolumes, "has waited 1h for provisioner virt-local", "provisioner runs",
		},
		{
			"claim waits for the pod",
			all(phase(v1.Scheduling, 2*time.Second), withClaim(claimOf(corev1.ClaimPending, nil, 2*time.Second)),
				func(f *Facts) { f.StorageClasses[0].VolumeBindingMode = &waitForConsumer }),
			"WaitForFirstConsumer", Waiting, LayerVolumes, "once a pod with it has a node", "kubectl describe pvc data",
		},
		{
			"secret is missing",
			all(podEvent("FailedMount", `MountVolume.SetUp failed for volume "cloudinit" : secret "login" not found`),
				func(f *Facts) { f.References = map[string]bool{"Secret/login": false} }),
			"SecretMissing", Broken, LayerVolumes, `Secret "login"`, "kubectl create secret",
		},
		{
			"DataVolume being filled", all(phase(v1.Pending, time.Minute), withData(cdiv1.ImportInProgress)),
			"DataVolumeFilling", Waiting, LayerVolumes, "ImportInProgress (45%)", "kubectl get datavolume fedora",
		},
		{
			"DataVolume waits for a pod", all(phase(v1.Pending, time.Minute), withData(cdiv1.WaitForFirstConsumer)),
			"DataVolumeUnclaimed", Waiting, LayerVolumes, "once a pod is to use it",
			"kubectl describe datavolume fedora",
		},
		{
			"DataVolume failed",
			all(phase(v1.Pending, time.Minute),
				withData(cdiv1.ImportInProgress, cdiv1.DataVolumeCondition{
					Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error",
					Message: "404 Not Found",
				})),
			"DataVolumeFailed", Broken, LayerVolumes, "404 Not Found", "kubectl describe datavolume fedora",
		},
		{"DataVolume without CDI", all(phase(v1.Pending, time.Minute), func(f *Facts) {
			f.VMI.Spec.Volumes = append(f.VMI.Spec.Volumes, v1.Volume{
				Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "fedora"}},
			})
		}), "DataVolumeMissing", Broken, LayerVolumes, "fedora", "kubectl get datavolume fedora"},

		{
			"no memory", unschedulable(noNodes + "2 Insufficient memory. preemption: 0/2 nodes are available"),
			"NoMemory", Broken, LayerPod, "2 nodes: too little memory left", "memory.guest",
		},
		{
			"no CPU", unschedulable(noNodes + "2 Insufficient cpu. preemption: x"), "NoCPU", Broken, LayerPod,
			"2 nodes: too little CPU", "cpu",
		},
		{
			"no KVM", unschedulable(noNodes + "2 Insufficient devices.kubevirt.io/kvm. no new claims"), "NoKVM", Broken,
			LayerPod, "KVM", "useEmulation",
		},
		{
			"no huge pages", unschedulable(noNodes + "2 Insufficient hugepages-2Mi."), "NoHugepages", Broken, LayerPod,
			"huge pages", "huge pages",
		},
		{
			"node selector", unschedulable(noNodes + "2 node(s) didn't match Pod's node affinity/selector."),
			"NodeAffinity", Broken, LayerPod, "2 nodes: not where", "nodeSelector",
		},
		{
			"no CPU feature",
			unschedulable(noNodes+"2 node(s) didn't match Pod's node affinity/selector.",
				selecting(v1.CPUFeatureLabel+"avx512f")),
			"NodeAffinity", Broken, LayerPod, "no node has the label cpu-feature.node.kubevirt.io/avx512f=true",
			"domain.cpu.features",
		},
		{
			"CPU model on another's node",
			unschedulable(noNodes+"2 node(s) didn't match Pod's node affinity/selector.",
				selecting(v1.CPUModelLabel+"EPYC"), func(f *Facts) {
					f.Nodes[0].Labels[v1.CPUModelLabel+"EPYC"], f.Nodes[0].Labels[v1.NodeSchedulable] = "true", "false"
				}),
			"NodeAffinity", Broken, LayerPod, "no node has the label cpu-model.node.kubevirt.io/EPYC=true",
			"host-model",
		},
		{
			"no virt-handler anywhere",
			unschedulable(noNodes+"2 node(s) didn't match Pod's node affinity/selector.", func(f *Facts) {
				for i := range f.Nodes {
					f.Nodes[i].Labels[v1.NodeSchedulable] = "false"
				}
			}),
			"NoNodes", Broken, LayerNode, "no node takes VMs", "get pods -l kubevirt.io=virt-handler",
		},
		{
			"taint", unschedulable(noNodes + "2 node(s) had untolerated taint {gpu: true}."), "Taint", Broken, LayerPod,
			"taint", "Taints",
		},
		{
			"cordoned", unschedulable(noNodes + "2 node(s) were unschedulable."), "Cordoned", Broken, LayerPod,
			"cordoned", "kubectl uncordon",
		},
		{
			"volume is elsewhere", unschedulable(noNodes + "2 node(s) had volume node affinity conflict."),
			"VolumeAffinity", Broken, LayerPod, "volume", "where its volume is",
		},
		{
			"too many pods", unschedulable(noNodes + "2 Too many pods."), "TooManyPods", Broken, LayerPod,
			"full of pods", "add a node",
		},
		{
			"several reasons",
			unschedulable(noNodes + "1 Insufficient memory, 1 node(s) were unschedulable. preemption: x"),
			"Unschedulable", Broken, LayerPod, "1 node: too little memory left, 1 node: cordoned", "memory.guest",
		},
		{"scheduling gate", phase(v1.Scheduling, time.Minute, func(f *Facts) {
			f.Pods[0].Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated"},
			}
		}), "SchedulingGated", Broken, LayerPod, "gate", "schedulingGates"},
		{
			"scheduler does not run",
			phase(v1.Scheduling, time.Hour, func(f *Facts) { f.Pods[0].Spec.SchedulerName = "gold" }),
			"SchedulerSilent", Broken, LayerPod, `"gold"`, "schedulerName",
		},

		{
			"disk image not found",
			waiting("ErrImagePull",
				`rpc error: code = NotFound desc = failed to pull and unpack image "ghcr.io/virtkit/tiny-disk:dev": ghcr.io/virtkit/tiny-disk:dev: not found`),
			"ImageNotFound", Broken, LayerPod, `container disk of volume "disk", ghcr.io/virtkit/tiny-disk:dev`,
			`containerDisk.image of volume "disk"`,
		},
		{
			"disk image, in back-off",
			waiting("ImagePullBackOff", `Back-off pulling image "ghcr.io/virtkit/tiny-disk:dev": ErrImagePull`,
				event("Pod", "virt-launcher-demo-abc", "Failed",
					`Failed to pull image "ghcr.io/virtkit/tiny-disk:dev": unauthorized: authentication required`)),
			"ImageDenied", Broken, LayerPod, "credentials", "containerDisk.image",
		},
		{
			"launcher image not found",
			waiting("ErrImagePull", `failed to pull image "ghcr.io/virtkit/virt-launcher:dev": not found`),
			"ImageNotFound", Broken, LayerPod, "the launcher's image", "virtctl install",
		},
		{
			"image of a container beside the guest's",
			beside("ErrImagePull", `failed to pull image "ghcr.io/virtkit/virt-launcher:dev": not found`),
			"ImageNotFound", Broken, LayerPod, "the launcher's image", "virtctl install",
		},
		{
			"image never pulled",
			waiting("ErrImageNeverPull",
				`Container image "ghcr.io/virtkit/tiny-disk:dev" is not present with pull policy of Never`),
			"ImageNotPresent", Broken, LayerPod, "policy is Never", "containerDisk.image",
		},
		{
			"image name",
			waiting("InvalidImageName",
				`Failed to apply default image tag "ghcr.io/virtkit/tiny-disk:dev": invalid reference`),
			"ImageName", Broken, LayerPod, "not valid", "containerDisk.image",
		},
		{
			"registry unreachable",
			waiting("ErrImagePull",
				`failed to do request: Head "https://ghcr.io/v2": dial tcp: lookup ghcr.io: no such host, image "ghcr.io/virtkit/tiny-disk:dev"`),
			"RegistryUnreachable", Broken, LayerPod, "cannot reach", "containerDisk.image",
		},
		{
			"registry certificate",
			waiting("ErrImagePull",
				`image "ghcr.io/virtkit/tiny-disk:dev": x509: certificate signed by unknown authority`),
			"RegistryTLS", Broken, LayerPod, "certificate", "containerDisk.image",
		},
		{
			"no image volumes", waiting("CreateContainerError", "failed to mount image volume: not implemented"),
			"ImageVolumes", Broken, LayerPod, "as a volume", "1.35",
		},
		{
			"secret key is missing", waiting("CreateContainerConfigError", `secret "x" not found`), "ContainerConfig",
			Broken, LayerPod, `secret "x"`, "create",
		},
		{
			"network plugin",
			podEvent("FailedCreatePodSandBox",
				"Failed to create pod sandbox: plugin type=\"ptp\" failed: no IP addresses available"),
			"Sandbox", Broken, LayerPod, "no IP addresses", "CNI",
		},
		{
			"network plugin that says much", podEvent("FailedCreatePodSandBox",
				"Failed to create pod sandbox: rpc error: "+strings.Repeat("in a sandbox with a long name: ", 20)+
					"failed to find plugin \"nosuch\" in path"),
			"Sandbox", Broken, LayerPod, "failed to find plugin \"nosuch\" in path", "CNI",
		},
		{
			"a used-up pool of host-local", podEvent("FailedCreatePodSandBox",
				`Failed to create pod sandbox: plugin type="multus" name="multus-cni-network" failed (add): `+
					`[ns/vm/u:red]: error adding container to network "red": failed to allocate for range 0: `+
					`no IP addresses available in range set: 198.51.100.10-198.51.100.19`),
			"NoAddress", Broken, LayerPod, "198.51.100.10-198.51.100.19", "starts by itself",
		},
		{
			"a used-up pool of whereabouts", podEvent("FailedCreatePodSandBox",
				`error at storage engine: Could not allocate IP in range: ip: 192.0.2.1 / - 192.0.2.6`),
			"NoAddress", Broken, LayerPod, "no address left", "starts by itself",
		},
		{
			"a used-up pool of Calico", podEvent("FailedCreatePodSandBox",
				`failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks`),
			"NoAddress", Broken, LayerPod, "no address left", "starts by itself",
		},
		{
			"a used-up pool of Cilium", podEvent("FailedCreatePodSandBox",
				`unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure  range is full`),
			"NoAddress", Broken, LayerPod, "no address left", "starts by itself",
		},
		{
			"network of the VM",
			podEvent("NoNetworkFound",
				`cannot find a network-attachment-definition (red) in namespace (default): not found`),
			"NetworkMissing", Broken, LayerPod, "definition (red)", "networkName",
		},
		{
			"network of the VM, by the kubelet",
			podEvent("FailedCreatePodSandBox",
				`plugin type="multus" failed (add): Multus: cannot find a network-attachment-definition (red) in namespace (default)`),
			"NetworkMissing", Broken, LayerPod, "definition (red)", "networkName",
		},
		{
			"volume attached elsewhere", podEvent("FailedAttachVolume", "Multi-Attach error for volume \"pvc-1\""),
			"AttachVolume", Broken, LayerPod, "Multi-Attach", "ReadWriteMany",
		},
		{
			"kubelet is slow", phase(v1.Scheduled, 5*time.Minute), "KubeletSlow", Broken, LayerPod,
			"has not started the pod for 5m", "kubectl describe pod",
		},
		{"pod starts", phase(v1.Scheduled, 2*time.Second), "PodStarting", Waiting, LayerPod, "kubelet is starting", ""},
		{
			"pod is deleted by hand", func(f *Facts) { at := ago(time.Second); f.Pods[0].DeletionTimestamp = &at },
			"PodTerminating", Waiting, LayerPod, "then its VM starts it anew", "virtctl events demo",
		},
		{
			"pod of a VM that is not always run is deleted", func(f *Facts) {
				at := ago(time.Second)
				f.Pods[0].DeletionTimestamp = &at
				f.VM.Spec.RunStrategy = new(v1.RunStrategyManual)
			},
			"PodTerminating", Broken, LayerPod, "shut down with it", "virtctl events demo",
		},
		{
			"pod is evicted, and the instance is not ready for that", func(f *Facts) {
				at := ago(time.Second)
				f.Pods[0].DeletionTimestamp = &at
				condition(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, v1.PodTerminatingReason,
					"The launcher's pod is terminating.")(f)
			},
			"PodTerminating", Waiting, LayerPod, "then its VM starts it anew", "virtctl events demo",
		},
		{
			"out of memory", failed("OOMKilled", "The launcher's container was out of memory."), "OOMKilled", Broken,
			LayerQEMU, "more memory than its pod may", "memory",
		},
		{
			"evicted", failed("Evicted", "The launcher's pod failed: the node was low on resource: ephemeral-storage"),
			"Evicted", Broken, LayerQEMU, "ephemeral-storage", "kubectl describe node one",
		},

		{"node not ready", all(phase(v1.Scheduled, 5*time.Minute), func(f *Facts) {
			f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse
			f.Nodes[0].Status.Conditions[0].Message = "cni not ready"
		}), "NodeNotReady", Broken, LayerNode, "cni not ready", "kubectl describe node one"},
		{"node lost", all(func(f *Facts) {
			f.VMI.Status.Phase = v1.Unknown
			f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown
			f.Nodes[0].Status.Conditions[0].LastTransitionTime = ago(4 * time.Minute)
		}), "NodeLost", Broken, LayerNode, "has not answered for 4m", "kubectl describe node one"},
		{"node fenced", all(func(f *Facts) {
			f.VMI.Status.Phase = v1.Unknown
			f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown
			f.Nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}), "NodeFenced", Waiting, LayerNode, "out of service", "virtctl events demo"},
		{"node not ready, and fenced", all(func(f *Facts) {
			f.VMI.Status.Phase = v1.Unknown
			f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionFalse
			f.Nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}), "NodeFenced", Waiting, LayerNode, "out of service", "virtctl events demo"},
		{
			"node gone", func(f *Facts) { f.Nodes = f.Nodes[1:] }, "NodeGone", Broken, LayerNode,
			"does not exist any more", "kubectl delete pod",
		},
		{
			"no virt-handler on the node",
			all(phase(v1.Scheduled, time.Minute, running), func(f *Facts) {
				f.Stack = append(f.Stack[:2:2], f.Stack[3])
			}),
			"HandlerMissing", Broken, LayerNode, "no virt-handler runs on node one", "describe daemonset",
		},
		{
			"virt-handler is not ready",
			all(phase(v1.Scheduled, time.Minute, running), func(f *Facts) {
				f.Stack[2].Status.Conditions[0].Status = corev1.ConditionFalse
			}),
			"HandlerNotReady", Broken, LayerNode, "virt-handler of node one is not ready", "logs",
		},
		{
			"virt-handler is silent",
			func(f *Facts) { f.Nodes[0].Annotations[v1.VirtHandlerHeartbeat] = `"2026-03-04T04:06:07Z"` },
			"HandlerSilent", Broken, LayerNode, "1h ago", "logs",
		},
		{"node under pressure", func(f *Facts) {
			f.Nodes[0].Status.Conditions = append(f.Nodes[0].Status.Conditions,
				corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue})
		}, "MemoryPressure", OK, LayerNode, "pressure", "kubectl describe node"},

		{
			"disk locked",
			syncFailed(`volume "data": PersistentVolumeClaim data is in use by another virtual machine; stop that one`),
			"DiskLocked", Broken, LayerQEMU, "in use by another", "stop the other one",
		},
		{
			"KVM is not there", syncFailed("Could not access KVM kernel module: No such file or directory"), "NoKVM",
			Broken, LayerQEMU, "no hardware virtualization", "virtctl doctor",
		},
		{
			"machine type", syncFailed("unsupported configuration: Emulator does not support machine type 'pc-q35-99'"),
			"MachineType", Broken, LayerQEMU, "pc-q35-99", "machine.type",
		},
		{
			"container disk without image",
			syncFailed("container disk quay.io/x/y: there is no disk image below /disk: no such file or directory"),
			"DiskMissing", Broken, LayerQEMU, "not where it should be", "containerDisk.path",
		},
		{
			"image is no image", syncFailed("Image is not in qcow2 format"), "BadImage", Broken, LayerQEMU,
			"cannot be read", "qemu-img check",
		},
		{
			"node's disk is full", syncFailed("create overlay: no space left on device"), "DiskFull", Broken, LayerQEMU,
			"no room", "free space",
		},
		{
			"CPU model", syncFailed("guest CPU doesn't match specification: missing features: avx512f"), "CPUModel",
			Broken, LayerQEMU, "avx512f", "cpu.model",
		},
		{
			"cloud-init secret lacks its key", syncFailed("volume \"cloudinit\": secret login has no key userdata"),
			"CloudInit", Broken, LayerQEMU, "no key userdata", "cloudInitNoCloud",
		},
		{
			"node has no memory to give", syncFailed("cannot set up guest memory 'pc.ram': Cannot allocate memory"),
			"NoMemory", Broken, LayerQEMU, "memory", "memory.guest",
		},
		{
			"guest may not send as somebody else",
			syncFailed(`interface "default": the VMI has the annotation virtkit.io/allow-spoofing for it`),
			"SpoofingNotAllowed", Broken, LayerQEMU, "annotation", "remove the annotation",
		},
		{
			"network cannot be made", syncFailed("make the pod's network: add nft rules: operation not supported"),
			"Network", Broken, LayerQEMU, "nft", "networks",
		},
		{
			"no Multus",
			syncFailed(
				`plan the pod's network: interface "red": network "red" needs Multus, which does not run on this node`),
			"Multus", Broken, LayerQEMU, "needs Multus", "virtctl restart demo",
		},
		{
			"an error nobody foresaw", syncFailed("internal error: qemu unexpectedly closed the monitor"),
			"CannotStart", Broken, LayerQEMU, "unexpectedly closed", "virtctl logs demo",
		},
		{
			"launcher is silent", phase(v1.Scheduled, 2*time.Minute, running), "LauncherSilent", Broken, LayerQEMU,
			"has run for 2m0s without", "virtctl logs demo",
		},
		{
			"could not be started, for good", failed("CannotStart", "unsupported machine type 'x'"), "MachineType",
			Broken, LayerQEMU, "machine type", "machine.type",
		},
		{
			"guest crashed", failed("GuestCrashed", "The guest crashed: failed."), "GuestCrashed", Broken, LayerQEMU,
			"failed", "virtctl logs demo",
		},
		{
			"guest panicked", failed("GuestPanicked", "The guest panicked."), "GuestPanicked", Broken, LayerQEMU,
			"panicked", "virtctl logs demo",
		},
		{
			"launcher vanished", failed("LauncherGone", "The launcher's process has ended without a final word."),
			"LauncherGone", Broken, LayerQEMU, "final word", "--source launcher",
		},
		{
			"pod deleted under the guest", failed("PodTerminated", "The launcher's pod was deleted or evicted"),
			"PodDeleted", Broken, LayerQEMU, "deleted or evicted", "virtctl events demo",
		},

		{
			"paused by a user",
			condition(v1.VirtualMachineInstancePaused, corev1.ConditionTrue, "PausedByUser",
				"The guest was paused by a user."),
			"PausedByUser", Waiting, LayerQEMU, "paused by a user", "virtctl unpause demo",
		},
		{
			"paused by an I/O error",
			condition(v1.VirtualMachineInstancePaused, corev1.ConditionTrue, "PausedIOError", "x"), "IOError", Broken,
			LayerQEMU, "I/O error", "free or grow",
		},
		{
			"readiness probe fails",
			condition(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, "ProbeFailed", "connection refused"),
			"NotReady", Broken, LayerVMI, "not ready: connection refused", "readinessProbe",
		},
		{
			"no guest agent", condition(v1.VirtualMachineInstanceAgentConnected, corev1.ConditionFalse, "", ""),
			"NoAgent", OK, LayerQEMU, "no guest agent", "qemu-guest-agent",
		},
		{
			"nothing to boot from", func(f *Facts) { f.VMI.Spec.Volumes = nil }, "NoDisk", OK, LayerQEMU,
			"no disk to boot from", "virtctl addvolume demo",
		},
		{
			"software emulation",
			condition("SoftwareEmulation", corev1.ConditionTrue, "EmulatedCPU",
				"The guest's CPU is emulated in software (TCG)."),
			"SoftwareEmulation", OK, LayerQEMU, "emulated", "virtctl doctor",
		},
		{
			"sends as somebody else", func(f *Facts) {
				f.Dropped = []nwfilter.Interface{
					{Name: "default"},
					{Name: "red", Dropped: []nwfilter.Dropped{
						{Kind: "mac", Frames: 2}, {Kind: "hidden"}, {Kind: "arp", Frames: 10},
					}},
				}
			},
			"FramesDropped", OK, LayerQEMU,
			"12 frames were dropped that the guest sent on interface red as somebody else: 2 mac, 10 arp",
			"virtctl firewall show demo",
		},
		{
			"has sent one frame as somebody else", func(f *Facts) {
				f.Dropped = []nwfilter.Interface{{Name: "red", Dropped: []nwfilter.Dropped{{Kind: "ip", Frames: 1}}}}
			},
			"FramesDropped", OK, LayerQEMU, "1 frame was dropped", "virtctl firewall show demo",
		},
		{
			"sends as itself", func(f *Facts) {
				f.Dropped = []nwfilter.Interface{{Name: "red", Dropped: []nwfilter.Dropped{{Kind: "ip"}}}}
			}, "", OK, "", "nothing blocks it", "",
		},
		{
			"shutting down", func(f *Facts) { at := ago(3 * time.Second); f.VMI.DeletionTimestamp = &at }, "Stopping",
			Waiting, LayerVMI, "3s ago", "--force",
		},
		{
			"does not shut down", func(f *Facts) { at := ago(10 * time.Minute); f.VMI.DeletionTimestamp = &at },
			"StuckStopping", Broken, LayerVMI, "should have been gone", "--force",
		},
		{
			"node is drained", func(f *Facts) { f.VMI.Status.EvacuationNodeName = "one" }, "EvictionRequested", Waiting,
			LayerVMI, "leave node one", "virtctl why demo",
		},

		{
			"the claim counts before the scheduler's verdict on it",
			all(unschedulable(noNodes+`persistentvolumeclaim "data" not found.`), withClaim(nil)), "ClaimMissing",
			Broken, LayerVolumes, "does not exist", "create it",
		},
		{
			"the claim's wait counts before the scheduler's verdict on it",
			all(unschedulable(noNodes+"pod has unbound immediate PersistentVolumeClaims."),
				withClaim(claimOf(corev1.ClaimPending, nil, time.Second))),
			"Provisioning", Waiting, LayerVolumes, "is being provisioned", "kubectl describe pvc data",
		},
		{
			"nodes may not be read",
			func(f *Facts) { f.Nodes, f.Stack, f.Unreadable = nil, nil, []string{"nodes", "pods of virtkit"} }, "", OK,
			"", "nothing blocks it", "",
		},
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.name] {
			t.Errorf("two situations %q", c.name)
		}
		seen[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.make(&f)
			r := Explain(f)
			if r.Verdict != c.verdict || !strings.Contains(r.Summary+message(r), c.message) {
				t.Errorf("verdict %s: %s\n%+v", r.Verdict, r.Summary, r.Causes)
			}
			if c.reason == "" {
				if len(r.Causes) > 0 {
					t.Errorf("causes %+v", r.Causes)
				}
				return
			}
			if len(r.Causes) == 0 {
				t.Fatal("no cause")
			}
			first := r.Causes[0]
			if first.Reason != c.reason || first.Layer != c.layer || !strings.Contains(first.Message, c.message) {
				t.Errorf("first cause %+v\nof %+v", first, r.Causes)
			}
			for _, fix := range first.Fixes {
				if strings.HasPrefix(fix, "or ") {
					t.Errorf("fix %q: its reader says the or", fix)
				}
			}
			if c.fix != "" && (len(first.Fixes) == 0 || !strings.Contains(first.Fixes[0], c.fix)) {
				t.Errorf("fix %q, want %q", first.Fixes, c.fix)
			}
		})
	}
}

func message(r *Report) string {
	if len(r.Causes) == 0 {
		return ""
	}
	return r.Causes[0].Message
}

func TestChain(t *testing.T) {
	f := healthy()
	withClaim(claimOf(corev1.ClaimBound, nil, time.Hour))(&f)
	var got []string
	for _, l := range Explain(f).Chain {
		got = append(got, string(l.Layer)+" "+string(l.State))
	}
	want := []string{"vm ok", "vmi ok", "volumes ok", "pod ok", "node ok", "qemu ok"}
	if !slices.Equal(got, want) {
		t.Errorf("chain %q, want %q", got, want)
	}
}

// A pod that says that it is the instance's launcher and is not recorded is not looked at.
func TestPodOfAnother(t *testing.T) {
	f := healthy()
	theirs := *f.Pods[0].DeepCopy()
	theirs.UID, theirs.Name = "theirs", "virt-launcher-demo-theirs"
	theirs.DeletionTimestamp = new(ago(time.Second))
	f.Pods = append([]corev1.Pod{theirs}, f.Pods...)
	r := Explain(f)
	if r.Verdict != OK || len(r.Causes) > 0 {
		t.Errorf("verdict %s, causes %+v", r.Verdict, r.Causes)
	}
	if !slices.ContainsFunc(r.Chain, func(l Link) bool { return l.Object == "pod/virt-launcher-demo-abc" }) {
		t.Errorf("chain %+v", r.Chain)
	}
}

// A readiness probe that fails shows in the chain where it does, with what the kubelet saw.
func TestChainOfOneThatIsNotReady(t *testing.T) {
	f := healthy()
	condition(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, "ContainersNotReady",
		"The readiness probe does not pass")(&f)
	f.Pods[0].Status.Conditions = []corev1.PodCondition{
		{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady",
			Message: "containers with unready status: [compute]",
		},
	}
	f.Events = []corev1.Event{
		{
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: f.Pods[0].Name}, Reason: "Unhealthy",
			Message: "Readiness probe failed: dial tcp 10.0.0.7:80: connection refused",
		},
		{ // another's, and later
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "virt-export-other"}, Reason: "Unhealthy",
			Message: "Readiness probe failed: dial tcp 10.0.0.8:8443: i/o timeout",
		},
	}
	r := Explain(f)
	var got []string
	for _, l := range r.Chain {
		got = append(got, string(l.Layer)+" "+string(l.State)+": "+l.Message)
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{
		"vmi broken: phase Running on node one, not ready: The readiness probe does not pass",
		"pod broken: running on node one, not ready: containers with unready status: [compute]",
		"qemu ok: ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("chain without %q:\n%s", want, text)
		}
	}
	if r.Verdict != Broken || len(r.Causes) != 1 || !strings.Contains(r.Causes[0].Evidence, "connection refused") {
		t.Errorf("%s: %+v", r.Verdict, r.Causes)
	}
	// A paused guest is not ready for that, which QEMU's link says.
	f = healthy()
	condition(v1.VirtualMachineInstanceReady, corev1.ConditionFalse, v1.GuestNotRunningReason, "paused")(&f)
	condition(v1.VirtualMachineInstancePaused, corev1.ConditionTrue, "PausedByUser", "paused by a user")(&f)
	for _, l := range Explain(f).Chain {
		if l.Layer == LayerVMI && l.State != OK || l.Layer == LayerQEMU && l.State != Waiting {
			t.Errorf("paused: %+v", l)
		}
	}
}

func TestMigration(t *testing.T) {
	cases := []struct {
		name    string
		make    situation
		reasons []string
		message string
	}{
		{"possible", func(*Facts) {}, nil, ""},
		{"not running", phase(v1.Scheduling, time.Second), []string{"NotRunning"}, ""},
		{
			"all at once", all(
				condition(v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse,
					v1.VirtualMachineInstanceReasonDisksNotMigratable,
					`volume "data": PersistentVolumeClaim data cannot be used on two nodes at once; its access mode would have to be ReadWriteMany; interface "default" has the pod's own address (bridge), which another node cannot have; masquerade can migrate; the persistent state of TPM or EFI is on PersistentVolumeClaim p, which cannot be used on two nodes at once; its access mode would have to be ReadWriteMany; spec.domain.cpu.model host-passthrough is the CPU of this very node; host-model or a named model can migrate; spec.nodeSelector ties the VirtualMachineInstance to node one`),
				func(f *Facts) { f.Nodes = f.Nodes[:1] },
			),
			[]string{
				v1.VirtualMachineInstanceReasonDisksNotMigratable,
				v1.VirtualMachineInstanceReasonInterfaceNotMigratable,
				v1.VirtualMachineInstanceReasonDisksNotMigratable, v1.VirtualMachineInstanceReasonCPUModeNotMigratable,
				"TiedToNode", "NoOtherNode",
			},
			"",
		},
		{
			"its disks wait for a claim", withClaim(nil, waitingFor("data")),
			[]string{volumemigration.ReasonWaiting},
			"to other claims: data is too small",
		},
		{
			"its claim is one node's, and its node has not said so", withClaim(nil, usesClaim("data")),
			[]string{v1.VirtualMachineInstanceReasonDisksNotMigratable},
			`volume "data": PersistentVolumeClaim data cannot be used on two nodes`,
		},
		{"cordoned", func(f *Facts) { f.Nodes[1].Spec.Unschedulable = true }, []string{"Cordoned"}, "cordoned (1)"},
		{
			"no node fits", func(f *Facts) { f.VMI.Spec.NodeSelector = map[string]string{"disk": "fast"} },
			[]string{"NoNodeFits"},
			"not two: it has not the label disk=fast",
		},
		{"one of many fits", func(f *Facts) {
			f.VMI.Spec.NodeSelector = map[string]string{"disk": "fast"}
			f.Nodes = append(f.Nodes, aNode("three"))
			f.Nodes[2].Labels["disk"] = "fast"
		}, nil, ""},
		{"under way", func(f *Facts) {
			f.Migrations = []v1.VirtualMachineInstanceMigration{
				{
					ObjectMeta: metav1.ObjectMeta{Name: "m"},
					Status:     v1.VirtualMachineInstanceMigrationStatus{Phase: v1.MigrationRunning},
				},
			}
		}, []string{"Migrating"}, "m, phase Running"},
		{
			"its target pod has no node", func(f *Facts) {
				f.Migrations = []v1.VirtualMachineInstanceMigration{
					{
						ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m-uid"},
						Status:     v1.VirtualMachineInstanceMigrationStatus{Phase: v1.MigrationScheduling},
					},
				}
				target := corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Name: "target", Labels: map[string]string{v1.MigrationJobLabel: "m-uid"},
					},
				}
				target.Status.Conditions = []corev1.PodCondition{
					{
						Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
						Message: "0/2 nodes are available: 2 Insufficient memory. preemption: none",
					},
				}
				f.Pods = append(f.Pods, target)
			},
			[]string{"Migrating", "NoMemory"},
			"the target pod of migration m is unschedulable: no node can take it: 2 nodes: too little memory left",
		},
		{
			"a claim is being deleted", withClaim(terminating()),
			[]string{"ClaimTerminating"},
			`volume "data": claim data is being deleted, so that no node can take a target pod with it`,
		},
		{
			"the pod of its plugged-in volumes has no node", withClaim(terminating(), func(f *Facts) {
				f.Migrations = []v1.VirtualMachineInstanceMigration{{
					ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m-uid"},
					Status:     v1.VirtualMachineInstanceMigrationStatus{Phase: v1.MigrationScheduling},
				}}
				attachment := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Name: "hp-volume-x", Labels: map[string]string{v1.MigrationJobLabel: "m-uid"},
				}}
				attachment.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
					Message: `0/2 nodes are available: persistentvolumeclaim "data" is being deleted. preemption: none`,
				}}
				f.Attachments = []corev1.Pod{attachment}
			}),
			[]string{"ClaimTerminating", "Migrating", "ClaimTerminating"},
			"the pod that holds the plugged-in volumes at the target of migration m is unschedulable: " +
				"no node can take it: a claim is being deleted",
		},
		{
			"being stopped", func(f *Facts) { at := ago(time.Second); f.VMI.DeletionTimestamp = &at },
			[]string{"Stopping"},
			"",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.make(&f)
			m := Explain(f).Migration
			if m == nil {
				t.Fatal("none")
			}
			var reasons, text []string
			for _, o := range m.Obstacles {
				reasons = append(reasons, o.Reason)
				text = append(text, o.Message)
			}
			if !slices.Equal(reasons, c.reasons) || m.Possible != (len(c.reasons) == 0) ||
				!strings.Contains(strings.Join(text, "\n"), c.message) {
				t.Errorf("possible %v, reasons %q:\n%s", m.Possible, reasons, strings.Join(text, "\n"))
			}
		})
	}
}

// TestPluggedVolumeOfOneNode: a plugged-in volume that keeps a guest on its node can be taken out, any other cannot.
func TestPluggedVolumeOfOneNode(t *testing.T) {
	for _, plugged := range []bool{true, false} {
		f := healthy()
		apply(&f, []situation{condition(v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse,
			v1.VirtualMachineInstanceReasonDisksNotMigratable,
			`volume "extra": PersistentVolumeClaim extra cannot be used on two nodes at once; `+
				"its access mode would have to be ReadWriteMany")})
		f.VMI.Spec.Volumes = append(f.VMI.Spec.Volumes, v1.Volume{Name: "extra", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "extra"},
				Hotpluggable:                      plugged,
			},
		}})
		m := Explain(f).Migration
		if m == nil || len(m.Obstacles) != 1 ||
			strings.Contains(strings.Join(m.Obstacles[0].Fixes, "\n"), "unplug it: virtctl removevolume ") != plugged {
			t.Errorf("plugged in %v: %+v", plugged, m)
		}
	}
}

// TestMissingTypesAreSaidOnce has an instance type and a preference that are not there, of which the VM's condition
// names the first.
func TestMissingTypesAreSaidOnce(t *testing.T) {
	f := healthy()
	apply(&f, []situation{
		stopped(v1.RunStrategyAlways,
			vmFailure("FailedFindInstancetype",
				`virtualmachineclusterinstancetypes.instancetype.kubevirt.io "u1.huge" not found`)),
	})
	f.References = map[string]bool{
		"virtualmachineclusterinstancetype/u1.huge": false,
		"virtualmachineclusterpreference/nopref":    false,
	}
	var reasons []string
	for _, c := range Explain(f).Causes {
		reasons = append(reasons, c.Reason)
	}
	if want := "InstancetypeNotApplied PreferenceMissing"; strings.Join(reasons, " ") != want {
		t.Errorf("causes %q, want %s", reasons, want)
	}
}

// A guest that has failed comes before its VM's run strategy; where virt-controller does not start it again, what does
// is said.
func TestFailedGuestIsStartedAgain(t *testing.T) {
	logs := "virtctl logs demo -n default --source launcher"
	for of, want := range map[v1.VirtualMachineRunStrategy][]string{
		v1.RunStrategyAlways:         {logs},
		v1.RunStrategyRerunOnFailure: {logs},
		v1.RunStrategyManual:         {logs, "virtctl start demo -n default"},
		v1.RunStrategyOnce:           {logs, runAgain},
	} {
		f := healthy()
		failed("GuestCrashed", "The guest crashed: failed.", strategy(of))(&f)
		r := Explain(f)
		if len(r.Causes) == 0 || r.Causes[0].Reason != "GuestCrashed" || !slices.Equal(r.Causes[0].Fixes, want) ||
			r.Verdict != Broken {
			t.Errorf("%s: verdict %s, causes %+v; want fix %q", of, r.Verdict, r.Causes, want)
		}
	}
}

// Why a guest is paused is said once, in the condition's words.
func TestPausedIsSaidOnce(t *testing.T) {
	for message, want := range map[string]string{
		"The guest was paused by a user.": "the guest was paused by a user",
		"The guest is paused.":            "the guest is paused",
		"VMI was paused by user":          "VMI was paused by user",
		"":                                "the guest is paused",
	} {
		e := &explanation{Facts: Facts{Name: "demo", Namespace: "default"}}
		e.paused(&v1.VirtualMachineInstanceCondition{Reason: "Paused", Message: message})
		if got := e.causes; len(got) != 1 || got[0].Message != want {
			t.Errorf("%q: %+v, want %q", message, got, want)
		}
	}
}
