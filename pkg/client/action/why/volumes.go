package why

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/clone"
	volumes "github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// Spec returns the spec of the guest: the instance's, or what it would be; nil without either.
func (f *Facts) Spec() *v1.VirtualMachineInstanceSpec {
	switch {
	case f.VMI != nil:
		return &f.VMI.Spec
	case f.VM != nil && f.VM.Spec.Template != nil:
		return &f.VM.Spec.Template.Spec
	}
	return nil
}

// volumes looks at the claims, and at Secrets and ConfigMaps that volumes name.
func (e *explanation) volumes() {
	spec := e.Spec()
	e.copying()
	if spec == nil || e.VMI != nil && e.VMI.IsFinal() {
		return
	}
	found := len(e.causes)
	count := 0
	for i := range spec.Volumes {
		if name := ClaimName(&spec.Volumes[i]); name != "" {
			count++
			e.claim(spec.Volumes[i].Name, name, spec.Volumes[i].DataVolume != nil)
		}
	}
	e.memory()
	e.unattached()
	e.leaving()
	e.expanding()
	e.references()
	if count == 0 {
		return
	}
	state, message := OK, fmt.Sprintf("%d claims, all bound", count)
	if count == 1 {
		message = "1 claim, bound"
	}
	for _, c := range e.causes[found:] {
		if c.State == Broken || c.State == Waiting {
			state, message = c.State, c.Message
			break
		}
	}
	if !e.readable("persistentvolumeclaims") {
		state, message = Unknown, "you may not read them"
	}
	e.link(LayerVolumes, fmt.Sprintf("claims of %s", e.Name), state, message, time.Time{})
}

// memory says from which memory the guest of a VM that is off goes on, and whether that is there.
func (e *explanation) memory() {
	if e.VM == nil || e.VMI != nil {
		return
	}
	mark := savedmemory.Pending(e.VM)
	if mark == nil {
		return
	}
	boot := savedmemory.Forget(e.Namespace, e.Name) + ", and it boots from its disks"
	if e.readable("persistentvolumeclaims") && e.Claims[mark.Claim] == nil {
		e.add(rankMissing, LayerVolumes, "pvc/"+mark.Claim, Broken, "SavedMemoryGone",
			fmt.Sprintf("the next start is to go on from the guest's memory in claim %s, which does not exist any more"+
				": its snapshot was deleted", mark.Claim), boot)
		return
	}
	e.add(rankRemark, LayerVolumes, "pvc/"+mark.Claim, OK, "Resumes",
		fmt.Sprintf("the next start does not boot: the guest goes on from its memory in claim %s", mark.Claim), boot)
}

// ClaimName returns the claim that a volume uses; empty for none, and for a memory dump, whose claim no guest waits
// for.
func ClaimName(v *v1.Volume) string {
	if v.MemoryDump != nil {
		return ""
	}
	return claims.Name(v)
}

func (e *explanation) claim(volume, name string, dataVolume bool) {
	if !e.readable("persistentvolumeclaims") {
		return
	}
	if dataVolume && e.filling(volume, name) {
		return
	}
	object := "pvc/" + name
	describe := "kubectl describe pvc " + name + e.flag()
	found := e.Claims[name]
	if found == nil {
		if dataVolume {
			e.add(rankMissing, LayerVolumes, "dv/"+name, Broken, "DataVolumeMissing",
				fmt.Sprintf("volume %q: DataVolume %q has no claim yet", volume, name),
				"kubectl get datavolume "+name+e.flag(), "install CDI if the cluster does not know DataVolumes")
			return
		}
		if made := e.Copies[name]; made != nil {
			e.copied(volume, made)
			return
		}
		message := fmt.Sprintf("volume %q: PersistentVolumeClaim %q does not exist in namespace %q", volume, name,
			e.Namespace)
		fixes := []string{"create it", "name another in the volume's persistentVolumeClaim.claimName"}
		if near := nearest(name, e.claimNames()); near != "" {
			message += fmt.Sprintf("; did you mean %q?", near)
		}
		e.add(rankMissing, LayerVolumes, object, Broken, "ClaimMissing", message, fixes...)
		return
	}
	switch {
	case claims.Status(found) == claims.Terminating && e.VMI != nil && e.VMI.Status.Phase == v1.Running:
		e.add(rankVolume, LayerVolumes, object, Broken, reasonTerminating,
			fmt.Sprintf("volume %q: claim %s is being deleted: once the guest stops or no longer has it, its data is "+
				"lost", volume, name), e.rescues(found)...)
	case claims.Status(found) == claims.Terminating:
		e.add(rankVolume, LayerVolumes, object, Broken, reasonTerminating,
			fmt.Sprintf("volume %q: claim %s is being deleted, and no guest can start on it", volume, name),
			append([]string{describe}, keepVolume(found)...)...)
	case found.Status.Phase == corev1.ClaimLost:
		e.add(rankVolume, LayerVolumes, object, Broken, "ClaimLost",
			fmt.Sprintf("volume %q: the volume of claim %s is gone, and its data with it", volume, name),
			"restore it from a backup and name the new claim in the VM")
	case e.uploading(volume, found):
	case found.Status.Phase == corev1.ClaimPending:
		e.pendingClaim(volume, found)
	}
}

// copied says of a claim that does not exist what the clone says that is to make it of an image.
func (e *explanation) copied(volume string, made *clonev1beta1.VirtualMachineClone) {
	state, reason, fix := Waiting, "ImageCopying", "kubectl describe vmclone "+made.Name+e.flag()
	if made.Status.Phase == clonev1beta1.Failed {
		state, reason = Broken, "ImageCopyFailed"
		fix = "kubectl delete vmclone " + made.Name + e.flag() + ", and make the copy again"
	}
	e.add(rankMissing, LayerVolumes, "clone/"+made.Name, state, reason,
		fmt.Sprintf("volume %q: the copy of an image of namespace %s: %s", volume, clones.SourceNamespace(made),
			clone.Stage(made)), fix)
}

// reasonTerminating is the reason of a claim that is being deleted.
const reasonTerminating = "ClaimTerminating"

// rescues returns what saves the data of a claim that is being deleted while the guest has it. Neither a snapshot nor
// an export does: both need the claim in a new pod or snapshot, which Kubernetes refuses by then.
func (e *explanation) rescues(claim *corev1.PersistentVolumeClaim) []string {
	return append(keepVolume(claim),
		"copy the data now, in the guest, to a disk on another claim: virtctl addvolume "+e.Name+e.flag()+
			" --volume-name CLAIM --persist",
		"do not stop, restart or migrate the guest before; the deletion of a claim cannot be undone")
}

// keepVolume returns the command by which a claim's volume outlives it, with the data.
func keepVolume(claim *corev1.PersistentVolumeClaim) []string {
	if claim.Spec.VolumeName == "" {
		return nil
	}
	return []string{"kubectl patch pv " + claim.Spec.VolumeName +
		` -p '{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}' keeps the volume and its data`}
}

// unattached explains a volume that was to be plugged into the guest and could not be.
func (e *explanation) unattached() {
	if e.VMI == nil {
		return
	}
	for i := range e.VMI.Spec.Volumes {
		name, claim := e.VMI.Spec.Volumes[i].Name, ClaimName(&e.VMI.Spec.Volumes[i])
		status := volumes.Status(wait.State{VMI: e.VMI}, name)
		if status == nil || !hotplug.Stuck(status) {
			continue
		}
		message := fmt.Sprintf("volume %q is not attached: %s", name, volumes.Said(name, status.Message))
		fixes := []string{"virtctl removevolume " + e.Name + e.flag() + " --volume-name " + name}
		if others := e.Holders[claim]; len(others) > 0 {
			message += fmt.Sprintf("; claim %s is in use by %s", claim, strings.Join(others, ", "))
			stop := "virtctl stop " + others[0] + e.flag()
			if strings.HasPrefix(others[0], "vmi/") {
				stop = "kubectl delete " + others[0] + e.flag()
			}
			fixes = slices.Insert(fixes, 0, stop)
		}
		if pod := status.HotplugVolume; status.Reason == hotplug.ReasonAttachmentPodNotReady && pod != nil {
			fixes = append(fixes, "kubectl describe pod "+pod.AttachPodName+e.flag())
		}
		e.add(rankVolume, LayerVolumes, "pvc/"+claim, Broken, status.Reason, message, fixes...)
	}
}

// leaving explains a volume that was unplugged, and that the guest does not let go of.
func (e *explanation) leaving() {
	if e.VMI == nil {
		return
	}
	for _, s := range claims.Leaving(e.VMI) {
		if !hotplug.Stuck(s) {
			continue
		}
		claim := claims.OfStatus(s)
		e.add(rankVolume, LayerVolumes, "pvc/"+claim, Broken, s.Reason,
			fmt.Sprintf("volume %q was unplugged, and claim %s is not free: %s", s.Name, claim,
				volumes.Said(s.Name, s.Message)),
			"virtctl fslist "+e.Name+e.flag())
	}
}

// filling explains a DataVolume that is no disk yet, and reports whether it is one.
func (e *explanation) filling(volume, name string) bool {
	dv := e.DataVolumes[name]
	if dv == nil {
		return false
	}
	state, prefix := claims.StateOf(dv), fmt.Sprintf("volume %q: DataVolume %q ", volume, name)
	describe := "kubectl describe datavolume " + name + e.flag()
	switch trouble := claims.Trouble(dv); {
	case state == claims.Populated || state == claims.Claimable:
		return false // what is wrong yet is wrong with the claim
	case trouble != "":
		e.add(rankVolume, LayerVolumes, "dv/"+name, Broken, "DataVolumeFailed", prefix+"cannot be filled: "+trouble,
			describe, "kubectl delete datavolume "+name+e.flag()+" has one of the VM made anew")
	case state == claims.Unclaimed:
		e.add(rankVolume, LayerVolumes, "dv/"+name, Waiting, "DataVolumeUnclaimed", prefix+
			"is filled once a pod is to use it", describe)
	default:
		progress := ""
		if percent := string(dv.Status.Progress); percent != "" && percent != "N/A" {
			progress = " (" + percent + ")"
		}
		e.add(rankVolume, LayerVolumes, "dv/"+name, Waiting, "DataVolumeFilling", fmt.Sprintf("%sis being filled: %s%s",
			prefix, claims.Phase(dv), progress), "kubectl get datavolume "+name+e.flag()+" --watch")
	}
	return true
}

func (e *explanation) claimNames() []string {
	var out []string
	for name, claim := range e.Claims {
		if claim != nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// pendingClaim explains why a claim has no volume.
func (e *explanation) pendingClaim(volume string, claim *corev1.PersistentVolumeClaim) {
	object, describe := "pvc/"+claim.Name, "kubectl describe pvc "+claim.Name+e.flag()
	prefix := fmt.Sprintf("volume %q: claim %s ", volume, claim.Name)
	add := func(state State, reason, message string, fixes ...string) *Cause {
		return e.add(rankVolume, LayerVolumes, object, state, reason, prefix+message, append(fixes, describe)...)
	}
	event := e.lastEvent("PersistentVolumeClaim", claim.Name, corev1.EventTypeWarning)
	named := ""
	if claim.Spec.StorageClassName != nil {
		named = *claim.Spec.StorageClassName
	}
	class, known := e.class(named, claim.Spec.StorageClassName == nil)
	switch {
	case named == "" && claim.Spec.StorageClassName != nil:
		add(Broken, "NoVolume", "asks for a volume made by hand (storageClassName is empty), and none fits",
			"make a PersistentVolume that fits")
	case !known && e.StorageClasses != nil && claim.Spec.StorageClassName == nil:
		add(Broken, "NoDefaultStorageClass", "names no StorageClass, and the cluster has no default one",
			"kubectl annotate storageclass NAME "+claims.DefaultClassAnnotation+"=true",
			"set storageClassName in the claim")
	case !known && e.StorageClasses != nil:
		add(Broken, "StorageClassMissing", fmt.Sprintf("asks for StorageClass %q, which does not exist", named),
			"kubectl get storageclass")
	case event != nil && event.Reason == "ProvisioningFailed":
		add(Broken, "ProvisioningFailed", "cannot be provisioned: "+event.Message, "ask whoever runs the storage").
			Evidence = quote(event)
	case class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer && !e.consumed(claim.Name):
		e.add(rankProgress, LayerVolumes, object, Waiting, "WaitForFirstConsumer",
			prefix+"gets its volume once a pod with it has a node (StorageClass "+class.Name+" waits for that)",
			describe)
	case class != nil && e.Now.Sub(claim.CreationTimestamp.Time) > time.Minute:
		add(Broken, "ProvisionerSilent", fmt.Sprintf("has waited %s for provisioner %s of StorageClass %s",
			age(e.Now, claim.CreationTimestamp.Time), class.Provisioner, class.Name),
			"see that the provisioner runs")
	default:
		add(Waiting, "Provisioning", "is being provisioned")
	}
}

// consumed reports whether the launcher's pod has a node, and a claim: one that a disk of its guest is to be copied to
// is another pod's.
func (e *explanation) consumed(claim string) bool {
	pod := e.launcher()
	if pod == nil || pod.Spec.NodeName == "" {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

func (e *explanation) class(name string, byDefault bool) (*storagev1.StorageClass, bool) {
	for i := range e.StorageClasses {
		class := &e.StorageClasses[i]
		if byDefault && class.Annotations[claims.DefaultClassAnnotation] == "true" || !byDefault && class.Name == name {
			return class, true
		}
	}
	return nil, false
}

// references names what volumes refer to and is not there.
func (e *explanation) references() {
	var missing []string
	for reference, exists := range e.References {
		if !exists {
			missing = append(missing, reference)
		}
	}
	slices.Sort(missing)
	for _, reference := range missing {
		kind, name, _ := strings.Cut(reference, "/")
		object := strings.ToLower(kind) + "/" + name
		switch kind {
		case "Secret", "ConfigMap", "ServiceAccount":
			e.add(rankMissing, LayerVolumes, object, Broken, kind+"Missing",
				fmt.Sprintf("%s %q, which the VM names, does not exist in namespace %q", kind, name, e.Namespace),
				"kubectl create "+strings.ToLower(kind)+" --help", "name another in the VM's volumes")
		default:
			if e.refused(name) {
				continue
			}
			reason := "InstancetypeMissing"
			if strings.Contains(strings.ToLower(kind), "preference") {
				reason = "PreferenceMissing"
			}
			e.add(rankMissing, LayerVM, object, Broken, reason,
				fmt.Sprintf("%s %q, which the VM names, does not exist", kind, name),
				"kubectl get "+strings.ToLower(kind)+"s", "spec.instancetype and spec.preference of the VM")
		}
	}
}

// refused reports whether the VM is said to be refused already for want of what has this name.
func (e *explanation) refused(name string) bool {
	return slices.ContainsFunc(e.causes, func(c Cause) bool {
		return c.Reason == reasonNotApplied && strings.Contains(c.Message, strconv.Quote(name))
	})
}

// lastEvent returns the youngest event of a type about an object.
func (e *explanation) lastEvent(kind, name, eventType string) *corev1.Event {
	for i := len(e.Events) - 1; i >= 0; i-- {
		event := &e.Events[i]
		if event.InvolvedObject.Kind == kind && event.InvolvedObject.Name == name && event.Type == eventType {
			return event
		}
	}
	return nil
}

func quote(event *corev1.Event) string { return "event " + event.Reason + ": " + event.Message }
