package migrate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Facts hold what a plan is made of; what the user may not read is nil and named in Unread.
type Facts struct {
	VMI *v1.VirtualMachineInstance
	// To is the only node that is to be considered, empty for all; NodeSelector restricts them for this migration.
	To           string
	NodeSelector map[string]string
	// WithDisks says that disks are copied whose claims the target cannot use; Claims are the namespace's by name.
	WithDisks bool
	Claims    map[string]*corev1.PersistentVolumeClaim
	Nodes     []corev1.Node
	// Migrations and Instances are the cluster's.
	Migrations []v1.VirtualMachineInstanceMigration
	Instances  []v1.VirtualMachineInstance
	Policies   []v1alpha1.MigrationPolicy
	// NamespaceLabels are those of the VMI's namespace, and KubeVirt the installation's configuration.
	NamespaceLabels map[string]string
	KubeVirt        *v1.KubeVirt
	Unread          []string
}

// Plan is what a migration of a guest would be. The JSON is a report of virtctl.
type Plan struct {
	metav1.TypeMeta `json:",inline"`
	// Namespace and Name are the guest's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// From is the node that the guest is on.
	From string `json:"from"`
	// Possible is whether it could move now, Obstacles why not.
	Possible  bool     `json:"possible"`
	Obstacles []string `json:"obstacles"`
	// WithDisksHelps is whether it could move if its disks were copied to new claims (--with-disks).
	WithDisksHelps bool `json:"withDisksHelps"`
	// Nodes are all others; whether they have room is the scheduler's to say.
	Nodes []Node `json:"nodes"`
	// Disks are the guest's, with what becomes of them.
	Disks []Disk `json:"disks"`
	// MemoryBytes and DiskBytes are what there is to copy at most, once.
	MemoryBytes int64 `json:"memoryBytes"`
	DiskBytes   int64 `json:"diskBytes"`
	// Policy is the MigrationPolicy that applies, empty for none, and Configuration what holds with it.
	Policy        string                    `json:"policy"`
	Configuration v1.MigrationConfiguration `json:"configuration"`
	// Waits are what it would have to wait for.
	Waits []string `json:"waits"`
	// Unread is what could not be looked at, so that the plan may be wrong.
	Unread []string `json:"unread"`
}

// Node is a node that the guest could go to.
type Node struct {
	// Name is the node's.
	Name string `json:"name"`
	// Fits is whether it takes the guest, Reasons why not.
	Fits    bool     `json:"fits"`
	Reasons []string `json:"reasons"`
}

// Disk is one of the guest's volumes.
type Disk struct {
	// Volume is the volume's name in the spec.
	Volume string `json:"volume"`
	// How is what becomes of it: Copied, ToNewClaim, Shared or Remade.
	How string `json:"how"`
	// Bytes is how much is copied at most, 0 when that is not known.
	Bytes int64 `json:"bytes"`
	// Claim is the claim that a disk is copied to, StorageClass its class and Size what it asks for; for a disk that is
	// copied to a new claim.
	Claim        string `json:"claim,omitempty"`
	StorageClass string `json:"storageClass,omitempty"`
	Size         string `json:"size,omitempty"`
}

// What becomes of a disk.
const (
	Copied = "Copied"
	Shared = "Shared"
	Remade = "Remade"
	// ToNewClaim is copied to a claim that is made for it.
	ToNewClaim = "ToNewClaim"
)

// ReportName returns the guest's name.
func (p *Plan) ReportName() string { return p.Name }

// DeepCopyObject copies the report.
func (p *Plan) DeepCopyObject() runtime.Object {
	out := *p
	out.Obstacles, out.Waits, out.Unread = slices.Clone(p.Obstacles), slices.Clone(p.Waits), slices.Clone(p.Unread)
	out.Nodes, out.Disks = slices.Clone(p.Nodes), slices.Clone(p.Disks)
	for i := range out.Nodes {
		out.Nodes[i].Reasons = slices.Clone(p.Nodes[i].Reasons)
	}
	out.Configuration = *p.Configuration.DeepCopy()
	return &out
}

// NewPlan plans the migration of a guest.
func NewPlan(f Facts) *Plan {
	vmi := f.VMI
	p := &Plan{
		TypeMeta:  metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "MigrationPlan"},
		Namespace: vmi.Namespace, Name: vmi.Name, From: vmi.Status.NodeName,
		Obstacles: []string{}, Nodes: []Node{}, Disks: disks(f), Waits: []string{},
		Unread: append([]string{}, f.Unread...),
	}
	memory := sizing.Current(vmi)
	p.MemoryBytes = memory.Value()
	for _, d := range p.Disks {
		p.DiskBytes += d.Bytes
	}
	p.configure(f)
	p.obstacles(f)
	p.wait(f)
	for i := range f.Nodes {
		node := &f.Nodes[i]
		if node.Name == p.From || f.To != "" && node.Name != f.To {
			continue
		}
		reasons := Misfits(vmi, node, f.NodeSelector)
		p.Nodes = append(p.Nodes, Node{Name: node.Name, Fits: len(reasons) == 0, Reasons: reasons})
	}
	slices.SortFunc(p.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	p.lookAtNodes(f)
	p.Possible = len(p.Obstacles) == 0
	return p
}

func (p *Plan) lookAtNodes(f Facts) {
	switch {
	case f.Nodes == nil:
	case f.To != "" && f.To == p.From:
		p.Obstacles = append(p.Obstacles, "it is on node "+f.To+" already")
	case f.To != "" && len(p.Nodes) == 0:
		p.Obstacles = append(p.Obstacles, fmt.Sprintf("nodes %q not found", f.To))
	case !slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Fits }):
		p.Obstacles = append(p.Obstacles, "no node can take it")
	}
}

func (p *Plan) configure(f Facts) {
	var given *v1.MigrationConfiguration
	if f.KubeVirt != nil {
		given = f.KubeVirt.Spec.Configuration.MigrationConfiguration
	}
	policy := surface.MatchPolicy(f.Policies, f.VMI.Labels, f.NamespaceLabels)
	if policy != nil {
		p.Policy = policy.Name
	}
	p.Configuration = *surface.Configured(surface.Migrations(given), policy)
}

func (p *Plan) obstacles(f Facts) {
	if !life.Running(f.VMI) {
		p.Obstacles = append(p.Obstacles, "the guest does not run")
	}
	refusals := volumemigration.Refusals(f.VMI)
	if f.WithDisks {
		refusals = volumemigration.Bring(f.VMI).Refused
	}
	for _, refused := range refusals {
		p.Obstacles = append(p.Obstacles, refused.Message)
	}
	p.WithDisksHelps = !f.WithDisks && volumemigration.OnlyWithDisks(f.VMI)
}

// wait adds what the migration has to wait for: migrations of the same guest, and the limits.
func (p *Plan) wait(f Facts) {
	nodes := map[types.NamespacedName]string{}
	for i := range f.Instances {
		vmi := &f.Instances[i]
		nodes[types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}] = vmi.Status.NodeName
	}
	counts := migrations.Count(f.Migrations, f.VMI, nodes)
	for _, m := range counts.Own {
		if !m.IsFinal() {
			p.Waits = append(p.Waits, "migration "+m.Name+" of the same guest is under way")
		}
	}
	all, away := counts.Running.Cluster, counts.Running.Away
	if most := *p.Configuration.ParallelMigrationsPerCluster; all >= int(most) {
		p.Waits = append(p.Waits,
			fmt.Sprintf("%d migrations run in the cluster, of %d at a time (parallelMigrationsPerCluster)", all, most))
	}
	if most := *p.Configuration.ParallelOutboundMigrationsPerNode; away >= int(most) {
		p.Waits = append(p.Waits,
			fmt.Sprintf("%d migrations run away from node %s, of %d at a time (parallelOutboundMigrationsPerNode)",
				away, p.From, most))
	}
}

func disks(f Facts) []Disk {
	vmi := f.VMI
	out, moves := []Disk{}, map[string]bool{}
	made := copies(f)
	for volume := range made {
		moves[volume] = true
	}
	for _, m := range volumemigration.Moves(vmi) {
		moves[m.Volume] = true
	}
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		d := Disk{Volume: v.Name, How: Remade}
		switch {
		case moves[v.Name]: // to the other claim that the volume names
			d.How = Copied
			for _, s := range vmi.Status.VolumeStatus {
				if s.Name == v.Name {
					d.Bytes = s.Size
				}
			}
			if to := made[v.Name]; to != nil {
				d.How = ToNewClaim
				d.describe(to)
			}
		case v.EmptyDisk != nil:
			d.How, d.Bytes = Copied, v.EmptyDisk.Capacity.Value()
		case v.ContainerDisk != nil, v.Ephemeral != nil, // what the guest wrote
			v.CloudInitNoCloud != nil, v.CloudInitConfigDrive != nil, v.Sysprep != nil: // the image that the guest has
			d.How = Copied
		case v.PersistentVolumeClaim != nil, v.DataVolume != nil, v.HostDisk != nil:
			d.How = Shared
		}
		out = append(out, d)
	}
	return out
}

// copies returns by volume the claims that a migration with disks would make. A claim that may not be read, so that
// nothing is known of the new one, has an empty one.
func copies(f Facts) map[string]*corev1.PersistentVolumeClaim {
	out := map[string]*corev1.PersistentVolumeClaim{}
	if !f.WithDisks {
		return out
	}
	var known []string
	for _, volume := range volumemigration.Bring(f.VMI).Volumes {
		out[volume] = &corev1.PersistentVolumeClaim{}
		if f.Claims[volumemigration.InUse(&f.VMI.Status, volume)] != nil {
			known = append(known, volume)
		}
	}
	plan, err := volumemigration.Copies(&v1.VirtualMachineInstanceMigration{}, f.VMI, known, f.Claims)
	if err != nil {
		return out
	}
	for _, claim := range plan.Missing {
		out[claim.Labels[volumemigration.CopiedVolumeLabel]] = claim
	}
	return out
}

// describe notes the claim to which a disk is copied.
func (d *Disk) describe(claim *corev1.PersistentVolumeClaim) {
	d.Claim = claim.Name
	if claim.Spec.StorageClassName != nil {
		d.StorageClass = *claim.Spec.StorageClassName
	}
	if size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
		d.Size = size.String()
	}
}

// Becomes says what becomes of a disk.
func (d *Disk) Becomes() string {
	switch {
	case d.How == ToNewClaim && d.Claim == "":
		return "copied to a new claim"
	case d.How == ToNewClaim:
		text := "copied to new claim " + d.Claim
		if d.Size != "" {
			text += " of " + d.Size
		}
		if d.StorageClass != "" {
			text += ", class " + d.StorageClass
		}
		return text
	case d.How == Copied:
		return "copied as the guest has it"
	case d.How == Shared:
		return "shared, nothing is copied"
	}
	return "made anew"
}
