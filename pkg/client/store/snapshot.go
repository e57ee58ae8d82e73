package store

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// Resources of snapshots and of what is made of them.
const (
	Snapshots       = "virtualmachinesnapshots"
	Restores        = "virtualmachinerestores"
	Clones          = "virtualmachineclones"
	Contents        = "virtualmachinesnapshotcontents"
	VolumeSnapshots = "volumesnapshots"
)

// Snapshot is a VirtualMachineSnapshot, or what is made of one: a VirtualMachineRestore or a VirtualMachineClone.
// pkg/client/action/snapshot and clone make the rows.
type Snapshot struct {
	Namespace, Name string
	// Resource is the API's plural, Kind the kind.
	Resource, Kind string
	UID            types.UID
	Created        time.Time
	Labels         map[string]string
	Deleting       bool
	// Machine is the VM that a snapshot or clone is taken of, Target the VM that a restore or clone makes; empty where
	// that is not known.
	Machine, Target string
	// Of is the snapshot that a restore or clone is made of; empty where there is none yet. Restore is the restore
	// that a clone has made.
	Of, Restore string
	// OfImage says that a clone copies an image, a claim of another namespace, to a claim, Target.
	OfImage bool
	// Maker is the object that has made it, or the program: the API server keeps no user.
	Maker string
	// Phase is how far it is, in a word; Stage what else it says of that, Trouble what went wrong.
	Phase, Stage, Trouble string
	Health                Health
	// Ready says that a snapshot can be restored, Ended that nothing more becomes of it.
	Ready, Ended bool
	// Taken is when the volumes were snapshotted, or the restore was complete; zero until then.
	Taken time.Time
	// Deadline is the most that a snapshot may take.
	Deadline time.Duration
	// Retain says that its content stays when a snapshot is deleted.
	Retain bool
	// Kept says that a restore is complete and keeps what it replaced, so that it can be undone.
	Kept bool
	// Content is the name of a snapshot's content. Included and Excluded are its volumes.
	Content            string
	Included, Excluded []string
	// Indications say how a snapshot was taken, each as a word and a sentence.
	Indications [][2]string
	Conditions  []Condition
	// Claims are what a restore has made, by volume.
	Claims [][2]string
}

// Key returns the resource, with the namespace, and the name.
func (s *Snapshot) Key() Key { return Key{Namespace: s.Resource + "/" + s.Namespace, Name: s.Name} }

// Object returns the namespace and name.
func (s *Snapshot) Object() Key { return Key{Namespace: s.Namespace, Name: s.Name} }

// Short returns the kind in a word: snapshot, restore or clone.
func (s *Snapshot) Short() string { return ShortOf(s.Resource) }

// ShortOf returns a resource's kind in a word.
func ShortOf(plural string) string {
	switch plural {
	case Restores:
		return "restore"
	case Clones:
		return "clone"
	}
	return "snapshot"
}

// Source returns the key of the snapshot that a restore or clone is made of.
func (s *Snapshot) Source() Key { return Key{Namespace: Snapshots + "/" + s.Namespace, Name: s.Of} }

// Content lists a snapshot's volumes.
type Content struct {
	Namespace, Name string
	// Memory is the claim that has the guest's memory, where the snapshot has that.
	Memory  string
	Volumes []SnapshotVolume
}

// SnapshotVolume is one of a snapshot's volumes.
type SnapshotVolume struct {
	// Name is the volume's, Claim and Class those of its claim. VolumeSnapshot is empty for one that has none.
	Name, Claim, Class, VolumeSnapshot string
	// Size is what the claim asks for.
	Size    resource.Quantity
	Ready   bool
	Taken   time.Time
	Trouble string
}

// VolumeSnapshot is one of CSI's.
type VolumeSnapshot struct {
	Namespace, Name string
	// Size is the least that a claim made of it has; zero until that is known.
	Size resource.Quantity
}

// MakerOf returns the maker of an object: the object that controls it, as kind/name, unless that is a VM, which is
// given its restores; else the program that wrote its spec
// first, as the API server has it. It keeps no user, and no time more exact than seconds: a controller may have added a
// finalizer within the same one.
func MakerOf(o metav1.Object) string {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner != nil && owner.Kind != v1.VirtualMachineGroupVersionKind.Kind {
		return owner.Kind + "/" + owner.Name
	}
	maker := ""
	var first time.Time
	for _, f := range o.GetManagedFields() {
		at := time.Time{}
		if f.Time != nil {
			at = f.Time.Time
		}
		spec := f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:spec"`))
		if spec && f.Subresource == "" && (maker == "" || at.Before(first)) {
			maker, first = f.Manager, at
		}
	}
	return maker
}

// SnapshotTables have all that is known of snapshots: those and what is made of them, their contents and CSI's
// VolumeSnapshots. Who may see the first need not have to see the others.
type SnapshotTables struct {
	Snapshots, Restores, Clones *Table[Snapshot]
	Contents                    *Table[Content]
	Volumes                     *Table[VolumeSnapshot]
}

// NewSnapshotTables makes empty tables; see NewTable.
func NewSnapshotTables(changed func()) *SnapshotTables {
	return &SnapshotTables{
		Snapshots: NewTable[Snapshot](changed), Restores: NewTable[Snapshot](changed),
		Clones: NewTable[Snapshot](changed), Contents: NewTable[Content](changed),
		Volumes: NewTable[VolumeSnapshot](changed),
	}
}

// Rows returns all snapshots, restores and clones, but for the restores that a clone has made for itself.
func (t *SnapshotTables) Rows() []*Snapshot {
	clones := t.Clones.Rows()
	own := map[Key]bool{}
	for _, c := range clones {
		own[Key{Namespace: c.Namespace, Name: c.Restore}] = true
	}
	all := append(t.Snapshots.Rows(), clones...)
	for _, r := range t.Restores.Rows() {
		if !own[r.Object()] {
			all = append(all, r)
		}
	}
	return all
}

// Get returns the row with a key of a row, or nil.
func (t *SnapshotTables) Get(key Key) *Snapshot {
	plural, namespace, _ := strings.Cut(key.Namespace, "/")
	object := Key{Namespace: namespace, Name: key.Name}
	switch plural {
	case Restores:
		return t.Restores.Get(object)
	case Clones:
		return t.Clones.Get(object)
	}
	return t.Snapshots.Get(object)
}

// VolumesOf returns the volumes of a snapshot, with what a restore of each takes at least; nil while it is not known.
func (t *SnapshotTables) VolumesOf(s *Snapshot) []SnapshotVolume {
	content := t.Contents.Get(Key{Namespace: s.Namespace, Name: s.Content})
	if content == nil {
		return nil
	}
	volumes := slices.Clone(content.Volumes)
	for i := range volumes {
		of := t.Volumes.Get(Key{Namespace: s.Namespace, Name: volumes[i].VolumeSnapshot})
		if of != nil && !of.Size.IsZero() {
			volumes[i].Size = of.Size
		}
	}
	return volumes
}
