package volume

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// MoveAPI has the methods of a client that Plan calls.
type MoveAPI interface {
	Reader
	VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	KubeVirtList(ctx context.Context) (*v1.KubeVirtList, error)
	Names(ctx context.Context, group, namespace, resource string) ([]string, error)
}

// MoveOptions say which disks of a VM are to be copied, and what the new claims are.
type MoveOptions struct {
	// Volumes are the volumes; none means all disks that can be copied, and whose claims are not so already.
	Volumes []string
	// To is what the new claims are to be.
	To volumemigration.Target
	// Claim is the name of the new claim of one volume; empty leaves the choice to Plan.
	Claim string
	// Back is the command, between backticks, that takes a copy back.
	Back string
}

// Moving is what is to be copied of a VM's disks, as Plan found it.
type Moving struct {
	// VM names the old claims, and VMI is its guest that runs.
	VM    *v1.VirtualMachine
	VMI   *v1.VirtualMachineInstance
	Moves []Move
	// Notes are what the user is to know besides.
	Notes []string

	back string
}

// Move is a disk that is to be copied from one claim to another.
type Move struct {
	Volume string
	// From is the claim that the guest uses, and To the new one: as it is to be, or as it was made.
	From, To *corev1.PersistentVolumeClaim
	// Bytes is the size of the guest's disk; 0 when it is not known.
	Bytes int64
	// DataVolume says that the volume is a DataVolume's now.
	DataVolume bool
	// Fate is what becomes of the old claim once the guest uses the new one.
	migrate.Fate
}

// Plan finds out what is to be copied. Errors say what cannot be.
func Plan(ctx context.Context, api MoveAPI, namespace, name string, o MoveOptions) (*Moving, error) {
	m := &Moving{back: o.Back}
	if err := m.running(ctx, api, namespace, name); err != nil {
		return nil, err
	}
	if err := m.free(ctx, api); err != nil {
		return nil, err
	}
	profile, err := profileOf(ctx, api, o.To.Class)
	if err != nil {
		return nil, err
	}
	taken, err := api.Names(ctx, "/api/v1", namespace, client.Claims)
	if err != nil && !apierrors.IsForbidden(err) { // who may not list them reads of a name that is taken
		return nil, fmt.Errorf("list the claims of %s: %w", namespace, err)
	}
	volumes := o.Volumes
	if len(volumes) == 0 {
		volumes = OnClaims(&m.VM.Spec.Template.Spec)
	}
	for _, volume := range volumes {
		from, err := m.source(ctx, api, volume)
		if err == nil {
			err = m.add(volume, from, profile, o, &taken)
		}
		if stays := (*staysError)(nil); len(o.Volumes) == 0 && errors.As(err, &stays) {
			m.Notes = append(m.Notes, fmt.Sprintf("volume %s stays where it is: %s", volume, stays.why))
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	if len(m.Moves) == 0 {
		return nil, fmt.Errorf("VM %s has no disk to copy to class %s%s", name, o.To.Class, because(m.Notes))
	}
	if err := m.fates(ctx, api); err != nil {
		return nil, err
	}
	return m, m.refused()
}

func because(notes []string) string {
	if len(notes) == 0 {
		return ": none of its volumes is on a claim"
	}
	return ": " + strings.Join(notes, "; ")
}

// running reads a VM and its guest, which must run.
func (m *Moving) running(ctx context.Context, api MoveAPI, namespace, name string) (err error) {
	if m.VM, err = api.VM(ctx, namespace, name); err != nil {
		return err
	}
	if m.VM.Spec.Template == nil {
		return fmt.Errorf("VM %s has no template", name)
	}
	m.VMI, err = api.VMI(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		m.VMI = nil
	} else if err != nil {
		return err
	}
	switch {
	case volumemigration.Unfinished(m.VM, m.VMI):
		return fmt.Errorf("VM %s: %s; %s does that", name,
			volumemigration.RecoveryMessage(volumemigration.UpdateState(m.VM, m.VMI)), m.back)
	case m.VMI == nil:
		return err
	case life.Alive(m.VMI) && m.VMI.DeletionTimestamp != nil:
		return fmt.Errorf("the guest of VM %s is being shut down: disks are copied while a guest runs, so wait until "+
			"it has started again", name)
	case !life.Running(m.VMI):
		return fmt.Errorf("the guest of VM %s is %s: disks are copied while a guest runs", name, m.VMI.Status.Phase)
	}
	return nil
}

// free returns why no disk of the VM can be copied now.
func (m *Moving) free(ctx context.Context, api MoveAPI) error {
	if state := volumemigration.Away(m.VM, m.VMI); state != nil {
		vm := m.VM.DeepCopy()
		if vm.Status.VolumeUpdateState = state; volumemigration.Revert(vm) == "" { // it names the old claims again
			return fmt.Errorf("the copy of disks of VM %s is being cancelled: %s; ask again once that is over, for "+
				"which %s waits with --wait", m.VM.Name, Away(m.VM, m.VMI), m.back)
		}
		return fmt.Errorf("disks of VM %s are being copied already: %s; %s takes that back", m.VM.Name,
			Away(m.VM, m.VMI), m.back)
	}
	list, err := api.KubeVirtList(ctx)
	switch {
	case apierrors.IsForbidden(err):
		m.Notes = append(m.Notes, "your account may not read vmRolloutStrategy; if it is Stage, nothing is copied")
		return nil
	case err != nil:
		return fmt.Errorf("read spec.configuration.vmRolloutStrategy of the KubeVirt resource: %w", err)
	}
	for i := range list.Items {
		if s := list.Items[i].Spec.Configuration.VMRolloutStrategy; s != nil && *s == v1.VMRolloutStrategyStage {
			return errors.New("vmRolloutStrategy of the KubeVirt resource is Stage, by which no guest that runs " +
				"changes, and no disk is copied")
		}
	}
	return nil
}

// Away says which volumes of a VM are being copied, or were when its guest ended: "data from claim a to b".
func Away(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) string {
	state := volumemigration.Away(vm, vmi)
	if state == nil {
		return ""
	}
	var all []string
	for _, m := range state.VolumeMigrationState.MigratedVolumes {
		if m.SourcePVCInfo != nil && m.DestinationPVCInfo != nil {
			all = append(all, fmt.Sprintf("%s from claim %s to %s", m.VolumeName, m.SourcePVCInfo.ClaimName,
				m.DestinationPVCInfo.ClaimName))
		}
	}
	return strings.Join(all, ", ")
}

// fates finds out what becomes of the old claims.
func (m *Moving) fates(ctx context.Context, api Reader) (err error) {
	for i := range m.Moves {
		move := &m.Moves[i]
		if move.Fate, err = migrate.FateOf(ctx, api, m.VM, classOf(move.From)); err != nil {
			return fmt.Errorf("claim %s: %w", move.From.Name, err)
		}
	}
	return nil
}

// profileOf returns what CDI knows of the claims of a StorageClass, the best first; nil where it is not there, or may
// not be read.
func profileOf(ctx context.Context, api Reader, class string) ([]cdiv1.ClaimPropertySet, error) {
	if class == "" {
		return nil, nil
	}
	var profile cdiv1.StorageProfile
	at := path.Join("/apis", cdiv1.SchemeGroupVersion.String(), "storageprofiles", class)
	err := api.Read(ctx, at, nil, &profile)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read the StorageProfile of class %s: %w", class, err)
	}
	return profile.Status.ClaimPropertySets, nil
}

// staysError is why the disk of a volume is not copied that nobody has named.
type staysError struct{ volume, why string }

func (e *staysError) Error() string {
	return fmt.Sprintf("volume %s cannot be copied: %s", e.volume, e.why)
}

// source returns the claim of a volume that can be copied.
func (m *Moving) source(ctx context.Context, api Reader, volume string) (*corev1.PersistentVolumeClaim, error) {
	spec := &m.VM.Spec.Template.Spec
	found := hotplug.Volume(spec, volume)
	switch {
	case found == nil && hotplug.Volume(&m.VMI.Spec, volume) != nil:
		return nil, &staysError{volume, "the instance alone has it, and it is gone with the next restart"}
	case found == nil:
		known := "none is on a claim"
		if names := OnClaims(spec); len(names) > 0 {
			known = "those on claims are " + strings.Join(names, ", ")
		}
		return nil, fmt.Errorf("volume %q %w in %s: %s", volume, action.ErrNotFound, m.VM.Name, known)
	case !claims.Storage(found):
		return nil, &staysError{volume, "it is not on a claim"}
	}
	if why := volumemigration.Fixed(m.VMI, volume); why != "" {
		return nil, &staysError{volume, why}
	}
	if now := volumemigration.InUse(&m.VMI.Status, volume); now != claims.Name(found) {
		return nil, &staysError{volume, fmt.Sprintf("the guest uses claim %s, and the VM names %s for the next start",
			now, claims.Name(found))}
	}
	from := &corev1.PersistentVolumeClaim{}
	if err := api.Read(ctx, claimPath(m.VM.Namespace, claims.Name(found)), nil, from); err != nil {
		return nil, fmt.Errorf("claim %s of volume %s: %w", claims.Name(found), volume, err)
	}
	return from, nil
}

// add plans the claim to which a volume's disk is to be copied.
func (m *Moving) add(
	volume string, from *corev1.PersistentVolumeClaim, profile []cdiv1.ClaimPropertySet, o MoveOptions, taken *[]string,
) error {
	is := hotplug.Volume(&m.VM.Spec.Template.Spec, volume)
	move := Move{Volume: volume, From: from, DataVolume: is.DataVolume != nil}
	for _, s := range m.VMI.Status.VolumeStatus {
		if s.Name == volume {
			move.Bytes = s.Size
		}
	}
	move.To = volumemigration.NewClaim(from, move.Bytes, o.To.By(from, profile), func(name string) bool {
		return slices.Contains(*taken, name)
	})
	if same(from, move.To) {
		return &staysError{volume, fmt.Sprintf("claim %s is of class %s already, with the same volume mode and access "+
			"modes", from.Name, classOf(from))}
	}
	if o.Claim != "" {
		move.To.Name = o.Claim
	}
	*taken = append(*taken, move.To.Name)
	m.Moves = append(m.Moves, move)
	if move.DataVolume {
		m.Notes = append(m.Notes, fmt.Sprintf("volume %s is claim %s then, not DataVolume %s: that one is deleted "+
			"with the VM, and the claim is not", volume, move.To.Name, from.Name))
	}
	return nil
}

// same reports whether a claim is already what another would be.
func same(is, to *corev1.PersistentVolumeClaim) bool {
	return classOf(is) == classOf(to) && claims.IsBlock(is.Spec.VolumeMode) == claims.IsBlock(to.Spec.VolumeMode) &&
		slices.Equal(is.Spec.AccessModes, to.Spec.AccessModes)
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// refused returns why the server would not copy the disks, by the rules that it has for them.
func (m *Moving) refused() error {
	strategy := v1.UpdateVolumesStrategyMigration
	template := m.VM.Spec.Template.Spec.DeepCopy()
	for _, move := range m.Moves {
		volume := hotplug.Volume(template, move.Volume)
		*volume = *hotplug.On(volume, move.To.Name)
	}
	decision := volumemigration.Follow(&strategy, template, m.VMI)
	if decision.Waiting {
		m.Notes = append(m.Notes, "the guest is migrating just now; its disks are copied afterwards")
	}
	var all []string
	for _, move := range m.Moves {
		if why := decision.Refused["volumes["+move.Volume+"]"]; why != "" {
			all = append(all, (&staysError{move.Volume, why}).Error())
		}
	}
	if len(all) > 0 {
		return errors.New(strings.Join(all, "; "))
	}
	return nil
}
