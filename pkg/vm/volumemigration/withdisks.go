package volumemigration

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// What belongs to migrations with disks.
const (
	// WithDisksAnnotation, "true", is on a migration that brings the disks whose claims the target cannot use: they are
	// copied to new claims, of which virt-controller makes one for each (pkg/controller/migrationcontroller).
	WithDisksAnnotation = "virtkit.io/with-disks"
	// WithDisksFinalizer is on such a migration until the VM and the claims are as its end has them.
	WithDisksFinalizer = "virtkit.io/with-disks"
	// CopiedByLabel is on a claim that was made for such a migration: its UID. CopiedVolumeLabel is the volume. They
	// are for people: what was made is what MadeBy says.
	CopiedByLabel     = "virtkit.io/copied-by"
	CopiedVolumeLabel = "virtkit.io/copied-volume"
	// CopiedAnnotation is on such a migration once the VM names the new claims: JSON of a list of Copied, to be read by
	// people and clients.
	CopiedAnnotation = "virtkit.io/copied-disks"
)

// Copied is a disk that a migration has copied, or copies.
type Copied struct {
	// Volume is the volume's name in the spec.
	Volume string `json:"volume"`
	// From is the claim that the guest had, and To the one that it gets.
	From string `json:"from"`
	To   string `json:"to"`
}

// WithDisks reports a migration that brings disks along.
func WithDisks(m *v1.VirtualMachineInstanceMigration) bool {
	return m.Annotations[WithDisksAnnotation] == "true"
}

// CopiedBy returns what CopiedAnnotation of a migration says, which anybody may have written who may change the
// migration. What is no JSON says nothing, and what names no claims names none.
func CopiedBy(m *v1.VirtualMachineInstanceMigration) []Copied {
	var out []Copied
	if json.Unmarshal([]byte(m.Annotations[CopiedAnnotation]), &out) != nil {
		return nil
	}
	return slices.DeleteFunc(out, func(c Copied) bool {
		return len(validation.IsDNS1123Label(c.Volume)) > 0 || len(validation.IsDNS1123Subdomain(c.From)) > 0 ||
			len(validation.IsDNS1123Subdomain(c.To)) > 0
	})
}

// reasonNoVM is the reason of Bring that no condition has.
const reasonNoVM = "NoVirtualMachine"

// Brought says what a migration with disks is for a VMI.
type Brought struct {
	// Volumes are those whose disks are copied, in the spec's order.
	Volumes []string
	// Refused is why the guest cannot move even so, nothing when it can.
	Refused []Refused
}

// Bring returns what a migration with disks copies of a VMI, and what keeps the guest where it is all the same. A
// volume whose claim is being exchanged is none of these: it is copied as ever.
func Bring(vmi *v1.VirtualMachineInstance) Brought {
	var out Brought
	if c := Waiting(vmi); c != nil {
		out.Refused = append(out.Refused, Refused{c.Reason, c.Message})
	}
	for i := range vmi.Spec.Volumes {
		if v := &vmi.Spec.Volumes[i]; tied(vmi, v) && uncopied(vmi, v) == "" {
			out.Volumes = append(out.Volumes, v.Name)
		}
	}
	if stuck := Stuck(vmi); len(stuck) > 0 {
		out.Refused = append(out.Refused, Refused{
			v1.VirtualMachineInstanceReasonDisksNotMigratable, migrations.EncodeObstacles(stuck),
		})
	}
	if why := immovable(vmi); why != nil {
		out.Refused = append(out.Refused, *why)
	}
	if len(out.Volumes) > 0 && !ofVM(vmi) {
		out.Refused = append(out.Refused, Refused{
			reasonNoVM,
			"no VirtualMachine has made it, whose spec would name the new claims; make it by a VirtualMachine",
		})
	}
	return out
}

// Stuck returns the obstacles that disks and file systems are which two nodes cannot use at once and which cannot be
// copied: no migration brings them.
func Stuck(vmi *v1.VirtualMachineInstance) []migrations.Obstacle {
	var out []migrations.Obstacle
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		out = append(out, Local(v)...)
		if !tied(vmi, v) {
			continue
		}
		if why := uncopied(vmi, v); why != "" {
			out = append(out, migrations.Obstacle{
				Kind: migrations.Claim, Object: v.Name,
				Text: claims.Name(v) + " cannot be used on two nodes at once, and cannot be copied: " + why,
			})
		}
	}
	return out
}

// immovable returns what else than its disks keeps a guest on its node, as its condition says; nil when nothing does,
// or when that is not known. What the condition says of disks is older than what the spec says, and left out.
func immovable(vmi *v1.VirtualMachineInstance) *Refused {
	c := conditions.With(vmi.Status.Conditions, v1.VirtualMachineInstanceIsStorageLiveMigratable,
		corev1.ConditionFalse)
	if c == nil || c.Reason == v1.VirtualMachineInstanceReasonDisksNotMigratable {
		return nil
	}
	others := slices.DeleteFunc(migrations.ParseObstacles(c.Message), func(o migrations.Obstacle) bool {
		return o.Kind == migrations.Claim || o.Kind == migrations.HostDisk
	})
	return &Refused{c.Reason, migrations.EncodeObstacles(others)}
}

// ofVM reports whether a VM has made a VMI.
func ofVM(vmi *v1.VirtualMachineInstance) bool {
	owner := metav1.GetControllerOfNoCopy(vmi)
	return owner != nil && owner.Kind == v1.VirtualMachineGroupVersionKind.Kind
}

// uncopied returns why the disk of a volume on a claim is not copied, with what helps; "" when it is.
func uncopied(vmi *v1.VirtualMachineInstance, v *v1.Volume) string {
	if !claims.Storage(v) {
		return "it is not the guest's own, who only reads it or dumps its memory to it"
	}
	if hotplug.Is(v) && ofVM(vmi) && !hotplug.Declared(vmi.Annotations)[v.Name] {
		return "the instance alone has it, and no VirtualMachine would name its new claim; unplug it first " +
			"(`virtctl removevolume " + vmi.Name + " --volume-name " + v.Name + "`)"
	}
	return Fixed(vmi, v.Name)
}

// Refusal returns the first reason in KubeVirt's words, "" when there is none.
func (b Brought) Refusal() string {
	if len(b.Refused) == 0 {
		return ""
	}
	return migrations.Cannot(b.Refused[0].Reason, b.Refused[0].Message)
}

// Helps reports whether a guest that cannot move can move with its disks.
func (b Brought) Helps() bool { return len(b.Volumes) > 0 && len(b.Refused) == 0 }

// OnlyWithDisks reports a guest that cannot move as it is, and can with its disks.
func OnlyWithDisks(vmi *v1.VirtualMachineInstance) bool {
	return Refusal(vmi) != "" && Bring(vmi).Helps()
}

// RefusalOf returns in KubeVirt's words why a guest is not moved by a migration; "" when nothing is known.
func RefusalOf(vmi *v1.VirtualMachineInstance, m *v1.VirtualMachineInstanceMigration) string {
	if WithDisks(m) {
		return Bring(vmi).Refusal()
	}
	return Refusal(vmi)
}

// Local returns the obstacle that an image on the node is.
func Local(v *v1.Volume) []migrations.Obstacle {
	disk := v.HostDisk
	if disk == nil || disk.Shared != nil && *disk.Shared {
		return nil
	}
	return []migrations.Obstacle{{
		Kind: migrations.HostDisk, Object: v.Name,
		Text: disk.Path + " is this node's; shared: true says that all nodes have the same file there",
	}}
}
