// Package why explains what blocks a virtual machine. Facts are the objects involved, as the API server has them:
// VM, VMI, launcher pod, claims, nodes, virtkit's own pods, events. Explain turns them into a Report: the chain from
// the VM down to QEMU with the state of each link, and the causes found, ranked so that fixing the first is the
// way on. It is pure; package gather reads the facts.
//
//	vm.go      what the VM itself wants           volumes.go   claims, their volumes and classes
//	vmi.go     the instance and its guest         nodes.go     the node, virt-handler, the scheduler's verdict
//	pod.go     the launcher's pod                 stack.go     virtkit itself
//	migration.go  what keeps the guest on its node
//	spoofing.go   what was dropped of what the guest sent as somebody else
//	connection.go what drops connections to the guest; connection_guest.go and connection_policy.go have its parts
package why

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
)

// Facts are everything an explanation rests on. What could not be read is nil or empty and named in Unreadable.
type Facts struct {
	Now             time.Time
	Namespace, Name string
	// NotInstalled: the cluster does not know KubeVirt's resources.
	NotInstalled bool

	VM  *v1.VirtualMachine
	VMI *v1.VirtualMachineInstance
	// Others are the names of the namespace's VMs and VMIs, for a name that was mistyped.
	Others []string
	// Namesakes are objects of other kinds that have the name, as why takes them: vmpool/db.
	Namesakes []string
	// Pods are the instance's, launcher and others, the youngest first.
	Pods []corev1.Pod
	// Attachments are the pods that hold plugged-in volumes on the nodes to which migrations of the instance go.
	Attachments []corev1.Pod
	// Claims are by name; nil for one that does not exist.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Copies are, by the claim that they are to make, the clones of images of which the claim does not exist.
	Copies map[string]*clonev1beta1.VirtualMachineClone
	// Holders are by claim the other instances that have it, for a volume that could not be attached.
	Holders map[string][]string
	// DataVolumes are those that volumes name, by name; nil for one that does not exist.
	DataVolumes map[string]*cdiv1.DataVolume
	// StorageClasses are all of the cluster, nil when they could not be read.
	StorageClasses []storagev1.StorageClass
	// References are the Secrets, ConfigMaps, Instancetypes and Preferences that are named, as Kind/name, and whether
	// they exist.
	References map[string]bool
	Nodes      []corev1.Node
	// Stack are virtkit's own pods.
	Stack []corev1.Pod
	// KubeVirt is the configuration resource.
	KubeVirt *v1.KubeVirt
	// Events are the namespace's, of whatever object, in order of time.
	Events []corev1.Event
	// Dropped says what was dropped of the frames that the running guest has sent, by interface; nil when nobody could
	// be asked.
	Dropped []nwfilter.Interface
	// Migrations are the instance's.
	Migrations []v1.VirtualMachineInstanceMigration
	// Restores are those to the VM that have not ended.
	Restores []snapshotv1beta1.VirtualMachineRestore
	// Unreadable are resources that the user may not read, for example "nodes".
	Unreadable []string
}

// State of a link.
type State string

// States of a link of the chain.
const (
	OK      State = "ok"
	Waiting State = "waiting"
	Broken  State = "broken"
	// Off is a link that is not wanted, as the instance of a halted VM.
	Off State = "off"
	// Unknown is a link that could not be looked at.
	Unknown State = "unknown"
)

// Layer is a place in the chain.
type Layer string

// Layers from the outside in. LayerStack is virtkit itself, which the chain passes through.
const (
	LayerStack   Layer = "stack"
	LayerVM      Layer = "vm"
	LayerVMI     Layer = "vmi"
	LayerPod     Layer = "pod"
	LayerVolumes Layer = "volumes"
	LayerNode    Layer = "node"
	LayerQEMU    Layer = "qemu"
)

// Kind of a Report.
const Kind = "WhyReport"

// Report is what `why -o json` prints: what blocks a virtual machine.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the virtual machine.
	Metadata Metadata `json:"metadata"`
	// Verdict is "ok" when nothing is in the way, "waiting" when time alone may help, "broken" when someone must act,
	// and "off" when the VM is not meant to run.
	Verdict State `json:"verdict"`
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Chain has the links from the VM to QEMU, outermost first.
	Chain []Link `json:"chain"`
	// Causes are ranked: the first is the one to fix first.
	Causes []Cause `json:"causes"`
	// Migration says what keeps the guest on its node; absent while there is no guest.
	Migration *Migration `json:"migration,omitempty"`
	// Connection says what drops connections to the guest; absent unless --from asks, or there is no such machine.
	Connection *Connection `json:"connection,omitempty"`
	// Unreadable names resources that the user may not read, and which therefore may hide a cause.
	Unreadable []string `json:"unreadable,omitempty"`
}

// ReportName returns the machine's name.
func (r *Report) ReportName() string { return r.Metadata.Name }

// Metadata names the virtual machine.
type Metadata struct {
	// Namespace and Name are the machine's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Link is one object of the chain.
type Link struct {
	// Layer is vm, vmi, pod, volumes, node or qemu; set for a pool or replica set.
	Layer Layer `json:"layer"`
	// Object is KIND/NAME, in lower case as kubectl takes it.
	Object string `json:"object"`
	// State is ok, waiting, broken, off when it is not wanted, unknown when it could not be looked at.
	State State `json:"state"`
	// Message is what the object says of itself.
	Message string `json:"message"`
	// Since is when that state began, where known.
	Since *metav1.Time `json:"since,omitempty"`
}

// Cause is one thing in the way.
type Cause struct {
	// Layer is that of a link, or stack for virtkit itself; of a connection also source, where it comes from, or
	// network.
	Layer Layer `json:"layer"`
	// Object is KIND/NAME, in lower case as kubectl takes it.
	Object string `json:"object"`
	// Reason is one word for programs; it does not change between versions.
	Reason string `json:"reason"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// State is broken or waiting; ok for a remark that blocks nothing; off for a VM that is not meant to run; unknown
	// for what could not be looked at.
	State State `json:"state"`
	// Fixes are commands or fields that help, the best first.
	Fixes []string `json:"mend,omitempty"`
	// Evidence quotes what the cause was read from: an event, a condition.
	Evidence string `json:"evidence,omitempty"`

	rank rank
}

// Migration is whether the guest could move now.
type Migration struct {
	// Possible is whether nothing is in the way.
	Possible bool `json:"possible"`
	// Obstacles are all reasons why not.
	Obstacles []Cause `json:"obstacles"`
}

// DeepCopyObject copies the report.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Chain = slices.Clone(r.Chain)
	out.Causes = slices.Clone(r.Causes)
	out.Unreadable = slices.Clone(r.Unreadable)
	if r.Migration != nil {
		migration := *r.Migration
		migration.Obstacles = slices.Clone(migration.Obstacles)
		out.Migration = &migration
	}
	if r.Connection != nil {
		connection := *r.Connection
		connection.Paths = slices.Clone(connection.Paths)
		connection.Causes = slices.Clone(connection.Causes)
		connection.Notes = slices.Clone(connection.Notes)
		out.Connection = &connection
	}
	return &out
}

// rank orders causes: what must be fixed first is least. What is outside the VM (no virtkit, no such VM) comes before
// what is in it, and a definite fault before a symptom of it that another object shows.
type rank int

const (
	rankAbsent rank = iota
	rankStack
	rankIntent
	rankRefused
	rankMissing
	rankVolume
	rankImage
	rankSchedule
	rankNode
	rankSandbox
	rankGuest
	rankSymptom
	rankProgress
	rankRemark
)

// Explain looks at every layer.
func Explain(f Facts) *Report {
	e := &explanation{Facts: f}
	e.stack()
	e.vm()
	e.instance()
	e.volumes()
	e.pod()
	e.nodes()
	e.guest()
	slices.SortStableFunc(e.causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(urgency(a), urgency(b)))
	})
	r := &Report{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind},
		Metadata:   Metadata{Namespace: f.Namespace, Name: f.Name},
		Chain:      e.chain,
		Causes:     e.causes,
		Migration:  e.migration(),
		Unreadable: f.Unreadable,
	}
	if r.Chain == nil {
		r.Chain = []Link{}
	}
	if r.Causes == nil {
		r.Causes = []Cause{}
	}
	r.Verdict, r.Summary = verdict(f, r.Causes)
	return r
}

// urgency puts what is broken before the rest of its rank.
func urgency(c Cause) int {
	if c.State == Broken {
		return 0
	}
	return 1
}

func verdict(f Facts, causes []Cause) (State, string) {
	for _, c := range causes {
		if c.State != OK {
			return c.State, c.Message
		}
	}
	switch {
	case f.VMI == nil:
		return Off, "the VM does not run, and nothing keeps it from being started"
	case f.VMI.Status.Phase == v1.Running:
		return OK, "nothing blocks it: the guest runs"
	}
	return Waiting, "it is on its way: nothing is known to hold it up"
}

// explanation gathers links and causes.
type explanation struct {
	Facts
	chain  []Link
	causes []Cause
}

func (e *explanation) link(layer Layer, object string, state State, message string, since time.Time) {
	l := Link{Layer: layer, Object: object, State: state, Message: message}
	if !since.IsZero() {
		l.Since = &metav1.Time{Time: since}
	}
	e.chain = append(e.chain, l)
}

func (e *explanation) add(
	r rank, layer Layer, object string, state State, reason, message string, fixes ...string,
) *Cause {
	e.causes = append(e.causes, Cause{
		Layer: layer, Object: object, Reason: reason, Message: message, State: state, Fixes: fixes, rank: r,
	})
	return &e.causes[len(e.causes)-1]
}

// has reports whether a cause at or before a rank was found already.
func (e *explanation) has(least rank) bool {
	return slices.ContainsFunc(e.causes, func(c Cause) bool { return c.State == Broken && c.rank <= least })
}

func (e *explanation) vmObject() string  { return "vm/" + e.Name }
func (e *explanation) vmiObject() string { return "vmi/" + e.Name }

// flag returns the option that selects the namespace, for a command line.
func (e *explanation) flag() string { return " -n " + e.Namespace }
