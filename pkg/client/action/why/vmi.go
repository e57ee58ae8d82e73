package why

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// instance looks at the VMI as Kubernetes sees it; guest looks into it.
func (e *explanation) instance() {
	vmi := e.VMI
	if vmi == nil {
		if e.VM == nil || e.NotInstalled {
			return
		}
		state := Waiting
		if e.has(rankSandbox) {
			state = Broken
		}
		if len(e.causes) > 0 && e.causes[len(e.causes)-1].State == Off {
			state = Off
		}
		e.link(LayerVMI, e.vmiObject(), state, "there is none", time.Time{})
		if state == Waiting && e.VM.DeletionTimestamp == nil && !e.has(rankGuest) &&
			e.Now.Sub(e.VM.CreationTimestamp.Time) > 10*time.Second {
			e.add(rankSymptom, LayerVMI, e.vmiObject(), Waiting, "NotCreated",
				"virt-controller has not made the instance yet",
				"kubectl -n kubevirt logs deployment/virt-controller")
		}
		return
	}
	phase := vmi.Status.Phase
	state := Waiting
	switch phase {
	case v1.Running:
		state = OK
	case v1.Failed:
		state = Broken
	case v1.Succeeded:
		state = Off
	case v1.Unknown:
		state = Unknown
	}
	message := "phase " + string(cmp.Or(phase, v1.Pending))
	if vmi.Status.NodeName != "" {
		message += " on node " + vmi.Status.NodeName
	}
	if c := e.notReady(); c != nil {
		state, message = Broken, message+", not ready: "+cmp.Or(c.Message, c.Reason)
	}
	e.link(LayerVMI, e.vmiObject(), state, message, phaseSince(vmi))

	if vmi.DeletionTimestamp != nil {
		e.stopping(vmi)
	}
	switch phase {
	case v1.Failed:
		e.failed(vmi)
	case v1.Succeeded:
		if e.VM == nil {
			e.add(rankIntent, LayerVMI, e.vmiObject(), Off, "GuestShutDown",
				"the guest has shut down; an instance without a VM is not started again",
				"kubectl delete vmi "+e.Name+e.flag()+", then create it again")
		}
	case v1.Unknown:
		e.add(rankSymptom, LayerVMI, e.vmiObject(), Broken, "NodeLost",
			"what became of the guest is not known: node "+vmi.Status.NodeName+" does not answer",
			"kubectl get node "+vmi.Status.NodeName, "when the machine is off for certain: "+
				fencing.TaintCommand(vmi.Status.NodeName))
	case v1.VmPhaseUnset, v1.Pending, v1.Scheduling:
		e.notCreated(vmi)
	}
}

// notCreated explains why an instance has no pod.
func (e *explanation) notCreated(vmi *v1.VirtualMachineInstance) {
	c := conditions.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized)
	if c == nil || c.Status != corev1.ConditionFalse {
		return
	}
	switch c.Reason {
	case names.ReasonStateClaimTaken:
		e.add(rankRefused, LayerVolumes, e.vmiObject(), Broken, c.Reason, c.Message, "kubectl get pvc"+e.flag(),
			"a claim that is being deleted is waited for; label another "+vmstate.Prefix+"="+
				names.LabelValue(vmi.Name)+" to use it, or delete it").
			Evidence = "condition Synchronized: " + c.Message
		return
	case names.ReasonClaimHeld:
		e.add(rankVolume, LayerVolumes, e.vmiObject(), Waiting, c.Reason, c.Message,
			"kubectl get nodes", "when the machine is off for certain: "+fencing.TaintCommand("NODE")).
			Evidence = "condition Synchronized: " + c.Message
		return
	case names.ReasonFailedCreate:
	default:
		return
	}
	text := strings.TrimPrefix(c.Message, names.MessageCreatePod)
	refuse := func(reason, message string, fixes ...string) {
		e.add(rankRefused, LayerPod, e.podObject(), Broken, reason, message, fixes...).
			Evidence = "condition Synchronized: " + c.Message
	}
	switch {
	case strings.Contains(text, "exceeded quota"):
		refuse("QuotaExceeded", "the namespace's quota leaves no room for the VM: "+after(text, "exceeded quota:"),
			"kubectl describe quota"+e.flag(), "make the VM smaller, stop another, or raise the quota")
	case strings.Contains(text, "violates PodSecurity"):
		refuse("PodSecurity", "the namespace's Pod Security level refuses the launcher: "+
			after(text, "violates PodSecurity"),
			"kubectl label ns "+e.Namespace+
				" pod-security.kubernetes.io/enforce=restricted --overwrite (launchers pass it)")
	case strings.Contains(text, "maximum") && strings.Contains(text, "per"), strings.Contains(text, "minimum") &&
		strings.Contains(text, "per"):
		refuse("LimitRange", "a LimitRange of the namespace forbids this size: "+text, "kubectl describe limitrange"+
			e.flag(), "spec.template.spec.domain.memory and cpu of the VM")
	case strings.Contains(text, "is being terminated"):
		refuse("NamespaceTerminating", "namespace "+e.Namespace+" is being deleted", "use another namespace")
	case strings.Contains(text, "no PriorityClass"):
		refuse("PriorityClassMissing", text, "kubectl get priorityclass",
			"spec.template.spec.priorityClassName of the VM")
	case strings.Contains(text, "denied the request"):
		refuse("AdmissionDenied", "an admission webhook of this cluster refuses the launcher's pod: "+
			after(text, "denied the request:"),
			"ask who runs that webhook to exempt pods with the label kubevirt.io=virt-launcher")
	case strings.Contains(text, "failed calling webhook"):
		refuse("WebhookDown", "an admission webhook of this cluster does not answer: "+text,
			"kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations")
	default:
		refuse("PodNotCreated", "the launcher's pod cannot be created: "+text, "kubectl describe vmi "+e.Name+e.flag())
	}
}

func (e *explanation) stopping(vmi *v1.VirtualMachineInstance) {
	grace := life.Grace(vmi)
	// An object's deletionTimestamp is when it was asked to go: a VMI has no grace period of its own.
	gone := e.Now.Sub(vmi.DeletionTimestamp.Time)
	if gone <= grace+life.GraceSlack {
		e.add(rankProgress, LayerVMI, e.vmiObject(), Waiting, "Stopping",
			fmt.Sprintf("the guest was asked to shut down %s ago and has %s for it",
				age(e.Now, vmi.DeletionTimestamp.Time), grace),
			"virtctl stop "+e.Name+e.flag()+" --force --grace-period 0 (does not wait for the guest)")
		return
	}
	fixes := []string{"virtctl stop " + e.Name + e.flag() + " --force --grace-period 0"}
	if vmi.Status.NodeName != "" {
		fixes = append(fixes, "kubectl -n kubevirt logs -l kubevirt.io=virt-handler --field-selector spec.nodeName="+
			vmi.Status.NodeName)
	}
	e.add(rankSymptom, LayerVMI, e.vmiObject(), Broken, "StuckStopping",
		fmt.Sprintf("the guest should have been gone %s ago: its grace period of %s is over",
			(gone-grace).Round(time.Second), grace), fixes...)
}

// failed explains how an instance ended.
func (e *explanation) failed(vmi *v1.VirtualMachineInstance) {
	message := "the guest failed"
	if c := conditions.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady); c != nil && c.Message != "" {
		message = c.Message
	}
	// The serial port and QEMU's log go with the guest; the launcher's has QEMU's last words.
	logs := "virtctl logs " + e.Name + e.flag() + " --source launcher"
	add := func(reason, message string, fixes ...string) {
		fixes = append(fixes, e.again()...)
		e.add(rankGuest, LayerQEMU, e.vmiObject(), Broken, reason, message, fixes...)
	}
	switch vmi.Status.Reason {
	case names.ReasonGuestCrashed, names.ReasonGuestPanicked, names.ReasonLauncherGone, names.ReasonLauncherFailed:
		add(vmi.Status.Reason, message, logs)
	case "OOMKilled":
		add("OOMKilled", "QEMU used more memory than its pod may: "+message,
			"raise spec.template.spec.domain.memory.guest, or resources.limits.memory if you set it")
	case names.ReasonCannotStart:
		e.qemu(message)
	case "Evicted":
		add("Evicted", "the kubelet evicted the pod: "+message, "kubectl describe node "+vmi.Status.NodeName,
			"free disk or memory on the node")
	case names.ReasonPodTerminated, string(v1.PodNotExistsReason), string(v1.PodTerminatingReason):
		add("PodDeleted", message, "virtctl events "+e.Name+e.flag())
	default:
		add(cmp.Or(vmi.Status.Reason, "Failed"), message, logs)
	}
}

// guest looks at what runs, or should.
func (e *explanation) guest() {
	vmi := e.VMI
	if !life.Alive(vmi) {
		return
	}
	switch vmi.Status.Phase {
	case v1.Scheduled, v1.Running:
	default:
		return
	}
	state := OK
	message := "the guest runs"
	if vmi.Status.Phase != v1.Running {
		state, message = Waiting, "the guest has not been started yet"
	}
	if c := conditions.With(vmi.Status.Conditions, v1.VirtualMachineInstanceSynchronized, corev1.ConditionFalse); c !=
		nil {
		state = Broken
		e.qemu(c.Message)
	}
	if c := conditions.With(vmi.Status.Conditions, v1.VirtualMachineInstancePaused, corev1.ConditionTrue); c != nil {
		state, message = Waiting, c.Message
		e.paused(c)
	}
	if vmi.Status.Phase == v1.Running {
		e.remarks(vmi)
	}
	if state == Waiting && vmi.Status.Phase == v1.Scheduled && !e.has(rankGuest) {
		if waited := e.Now.Sub(phaseSince(vmi)); waited > 30*time.Second && e.launcherRuns() {
			e.add(rankSymptom, LayerQEMU, "domain/"+e.Name, Broken, "LauncherSilent",
				fmt.Sprintf("the launcher has run for %s without starting the guest", waited.Round(time.Second)),
				"virtctl logs "+e.Name+e.flag()+" --source launcher",
				"kubectl -n kubevirt logs -l kubevirt.io=virt-handler --field-selector spec.nodeName="+
					vmi.Status.NodeName)
		}
	}
	e.link(LayerQEMU, "domain/"+e.Name, state, message, time.Time{})
}

func (e *explanation) paused(c *v1.VirtualMachineInstanceCondition) {
	if c.Reason == names.ReasonPausedIOError {
		e.add(rankVolume, LayerQEMU, "domain/"+e.Name, Broken, "IOError",
			"the guest was paused by an I/O error on one of its disks, mostly because the storage is full",
			"free or grow the storage behind its volumes, then: virtctl unpause "+e.Name+e.flag())
		return
	}
	// The condition is a sentence that says that it is paused, and why.
	said := strings.TrimSuffix(strings.Replace(c.Message, "The guest ", "the guest ", 1), ".")
	e.add(rankIntent, LayerQEMU, "domain/"+e.Name, Waiting, cmp.Or(c.Reason, "Paused"),
		cmp.Or(said, "the guest is paused"), "virtctl unpause "+e.Name+e.flag())
}

// remarks adds what is to be said of a guest that runs.
func (e *explanation) remarks(vmi *v1.VirtualMachineInstance) {
	object := "domain/" + e.Name
	if c := e.notReady(); c != nil && c.Reason != v1.PodTerminatingReason { // which the pod says
		e.add(rankGuest, LayerVMI, e.vmiObject(), Broken, "NotReady", "the guest runs but is not ready: "+
			cmp.Or(c.Message, c.Reason), "its readinessProbe, or the service in the guest that it asks").
			Evidence = e.probeFailed()
	}
	e.onItsWay()
	if vmi.Status.EvacuationNodeName != "" {
		e.add(rankProgress, LayerVMI, e.vmiObject(), Waiting, "EvictionRequested",
			"the guest is to leave node "+vmi.Status.EvacuationNodeName+", which is being drained",
			"virtctl why "+e.Name+e.flag()+" --migrate", "virtctl evacuate-cancel vmi "+e.Name+e.flag())
	}
	if c := conditions.With(vmi.Status.Conditions, v1.VirtualMachineInstanceMigrationRequired,
		corev1.ConditionTrue); c != nil {
		e.add(rankRemark, LayerVMI, e.vmiObject(), OK, string(c.Type), cmp.Or(c.Message, "the guest has to migrate"),
			"virtctl migrate "+e.Name+e.flag()+" --wait")
	}
	e.spoofed()
	if !store.HasSystem(&vmi.Spec) {
		e.add(rankRemark, LayerQEMU, object, OK, "NoDisk", "the machine has no disk to boot from",
			"virtctl addvolume "+e.Name+e.flag()+" --volume-name CLAIM", "virtctl create vm (another VM, with a disk)")
		return
	}
	if conditions.With(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected, corev1.ConditionTrue) == nil {
		since := conditions.PhaseSince(&vmi.Status, v1.Running)
		if !since.IsZero() && since.Before(e.Now.Add(-2*time.Minute)) {
			e.add(rankRemark, LayerQEMU, object, OK, "NoAgent",
				"no guest agent answers: exec, guestosinfo and live credentials do not work",
				"install and start qemu-guest-agent in the guest")
		}
	}
	if c := conditions.With(vmi.Status.Conditions, names.ConditionSoftwareEmulation, corev1.ConditionTrue); c != nil {
		e.add(rankRemark, LayerQEMU, object, OK, "SoftwareEmulation", c.Message,
			"run it on nodes with KVM; `virtctl doctor` shows which have it")
	}
}

var (
	lockedDisk = regexp.MustCompile(
		`is in use by another (virtual machine|process)|Failed to get "(write|consistent read|shared .*)" lock`,
	)
	noKVM     = regexp.MustCompile(`(?i)(could not access kvm|kvm is not available|domain type 'kvm'|/dev/kvm)`)
	noMachine = regexp.MustCompile(`(?i)(unsupported machine type|does not support machine type|unknown machine)`)
	noFile    = regexp.MustCompile(
		`(?i)(no such file or directory|container disk .*: .*(no disk|no file|not exist|several|more than one))`,
	)
	noMemory = regexp.MustCompile(`(?i)(cannot allocate memory|cannot set up guest memory)`)
	noSpace  = regexp.MustCompile(`(?i)no space left on device`)
	badImage = regexp.MustCompile(
		`(?i)(image is not in qcow2 format|not a disk image|unknown image format|invalid header|backing file)`,
	)
	noModel    = regexp.MustCompile(`(?i)(cpu model|cpu feature|guest cpu|cpu is incompatible)`)
	noFirmware = regexp.MustCompile(`(?i)(unable to find.*firmware|OVMF|secure ?boot|nvram)`)
)

// qemu explains why the launcher could not start the guest, from what it, libvirt or QEMU said.
func (e *explanation) qemu(text string) {
	object := "domain/" + e.Name
	add := func(reason, message string, fixes ...string) {
		e.add(rankGuest, LayerQEMU, object, Broken, reason, message, fixes...).Evidence = text
	}
	logs := "virtctl logs " + e.Name + e.flag() + " --source launcher"
	switch {
	case lockedDisk.MatchString(text):
		add("DiskLocked", "a disk is in use by another virtual machine: "+text,
			"stop the other one, or set shareable: true on the disk in both")
	case noSpace.MatchString(text):
		add("DiskFull", "there is no room for the guest's disks: "+text,
			"free space on the volume, or on the node: kubectl describe node "+e.nodeName())
	case noKVM.MatchString(text):
		add("NoKVM", "the node has no hardware virtualization for the guest: "+text, "virtctl doctor",
			"kubectl -n kubevirt patch kubevirt kubevirt --type=merge -p "+
				"'{\"spec\":{\"configuration\":{\"developerConfiguration\":{\"useEmulation\":true}}}}' (slow)")
	case noMachine.MatchString(text):
		add("MachineType", "QEMU does not know the machine type: "+text,
			"spec.template.spec.domain.machine.type of the VM; leave it out for the default")
	case noMemory.MatchString(text):
		add("NoMemory", "the node could not give the guest its memory: "+text,
			"make spec.template.spec.domain.memory.guest smaller, or use another node")
	case noModel.MatchString(text):
		add("CPUModel", "the node's CPU cannot be what the VM asks for: "+text,
			"spec.template.spec.domain.cpu.model and features; host-model fits every node")
	case strings.Contains(text, "secret ") || strings.Contains(text, "cloudInit"):
		add("CloudInit", "the cloud-init data cannot be used: "+text, "the volume's cloudInitNoCloud or "+
			"cloudInitConfigDrive of the VM, and the Secret it names: keys userdata, networkdata")
	case noFile.MatchString(text):
		add("DiskMissing", "a disk's image is not where it should be: "+text,
			"the volume's containerDisk.path or image: a container disk has one image below /disk", logs)
	case badImage.MatchString(text):
		add("BadImage", "a disk's image cannot be read: "+text, "check the image with qemu-img check", logs)
	case noFirmware.MatchString(text):
		add("Firmware", "the firmware cannot be set up: "+text,
			"spec.template.spec.domain.firmware.bootloader of the VM")
	case strings.Contains(text, names.MessageNeedsMultus):
		add("Multus", "a network of the VM cannot be connected: "+text,
			"install Multus on every node, then: virtctl restart "+e.Name+e.flag(), "virtctl describe "+e.Name+e.flag()+
				" (the VM's networks; docs/networking.md)")
	case strings.Contains(text, network.AllowSpoofing):
		add("SpoofingNotAllowed", "a network of the VM cannot be connected: "+text,
			"remove the annotation "+network.AllowSpoofing+" from spec.template.metadata of the VM",
			"an administrator: kubectl label namespace "+e.Namespace+" "+network.AllowSpoofing+"=true")
	case strings.Contains(text, "pod's network") || strings.Contains(text, "interface "):
		add("Network", "the guest's network cannot be set up: "+text, "spec.template.spec.networks and "+
			"domain.devices.interfaces of the VM", "kubectl -n kubevirt logs -l kubevirt.io=virt-handler")
	default:
		add(names.ReasonCannotStart, "the guest cannot be started: "+text, logs,
			"kubectl describe vmi "+e.Name+e.flag())
	}
}

func (e *explanation) nodeName() string {
	if e.VMI != nil {
		return e.VMI.Status.NodeName
	}
	return ""
}

func phaseSince(vmi *v1.VirtualMachineInstance) time.Time {
	return conditions.PhaseSince(&vmi.Status, vmi.Status.Phase)
}
