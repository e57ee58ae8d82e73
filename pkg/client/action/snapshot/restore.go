package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// VolumePolicies returns how the claims of a restore are named.
func VolumePolicies() []string {
	return []string{
		string(snapshotv1beta1.VolumeRestorePolicyRandomizeNames),
		string(snapshotv1beta1.VolumeRestorePolicyInPlace),
		string(snapshotv1beta1.VolumeRestorePolicyPrefixTargetName),
	}
}

// OwnershipPolicies lists the values that say whether the claims of a restore go with its VM.
func OwnershipPolicies() []string {
	return []string{string(snapshotv1beta1.VolumeOwnershipPolicyVm), string(snapshotv1beta1.VolumeOwnershipPolicyNone)}
}

// RestoreOptions are the options of a restore.
type RestoreOptions struct {
	// Target is the VM to restore; empty is the one that the snapshot was taken of.
	Target string
	// Stop has the target stopped first, if it runs.
	Stop bool
	// Keep has what is replaced stay, so that the restore can be taken back.
	Keep bool
	// Ownership is one of OwnershipPolicies, or empty for the first.
	Ownership string
	// Patches are JSON patches of a VM that is made by the restore.
	Patches []string
	// VolumePolicy is one of VolumePolicies, or empty for the first.
	VolumePolicy string
	// SnapshotUID is the UID of the snapshot that somebody was asked about; empty is any of the name.
	SnapshotUID types.UID
}

// Plan describes a restore.
type Plan struct {
	Snapshot *snapshotv1beta1.VirtualMachineSnapshot
	// Target is the VM's name, and Exists whether it is there: then it is replaced.
	Target         string
	UID            types.UID
	Exists, Runs   bool
	Volumes, Loses []string
	// Claims are the claims that the target has now, by volume.
	Claims map[string]string
	// InPlace is nil unless the restore is to replace claims under their names, or may be.
	InPlace *InPlace
	// Resumes says that the target's guest goes on from its memory, which the snapshot has.
	Resumes bool
}

// NotReadyError is a snapshot that cannot be restored.
type NotReadyError struct{ Namespace, Name, Stage string }

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("snapshot %s/%s is not ready to be restored (%s); look with `virtctl why snapshot/%s -n %s`",
		e.Namespace, e.Name, e.Stage, e.Name, e.Namespace)
}

// RunsError is a VM that must be stopped before it is restored.
type RunsError struct {
	Namespace, Name string
	// Stopping says that it is being stopped already.
	Stopping bool
}

func (e *RunsError) Error() string {
	if e.Stopping {
		return fmt.Sprintf("VM %s/%s is being stopped, and is restored only when it is; wait with "+
			"`virtctl wait %s --for=stopped -n %s`, or give --stop", e.Namespace, e.Name, e.Name, e.Namespace)
	}
	return fmt.Sprintf("VM %s/%s runs, and is restored only when it is stopped; stop it with `virtctl stop %s -n %s`, "+
		"or give --stop", e.Namespace, e.Name, e.Name, e.Namespace)
}

// OtherVMError is a VM that exists and is not the one that the snapshot was taken of: a restore replaces that one only.
type OtherVMError struct{ Namespace, Name, Snapshot string }

func (e *OtherVMError) Error() string {
	return fmt.Sprintf(
		"VM %[1]s/%[2]s exists, and is not the one that snapshot %[3]s was taken of, which alone a restore "+
			"replaces; give --target with a name that is free, or delete it first: `virtctl delete %[2]s -n %[1]s`",
		e.Namespace,
		e.Name,
		e.Snapshot,
	)
}

// SnapshotChangedError is a snapshot that was taken anew under its name since somebody was asked about it.
type SnapshotChangedError struct{ Namespace, Name string }

func (e *SnapshotChangedError) Error() string {
	return fmt.Sprintf("snapshot %s/%s was deleted and taken anew; look at it again first", e.Namespace, e.Name)
}

// GetReady reads a snapshot that can be restored; for one that cannot, it returns a NotReadyError.
func GetReady(ctx context.Context, c *client.Client, namespace, name string) (
	*snapshotv1beta1.VirtualMachineSnapshot, error,
) {
	s, err := Get(ctx, c, namespace, name)
	if err == nil && !vmsnapshots.Ready(s) {
		err = &NotReadyError{namespace, name, Stage(s)}
	}
	return s, err
}

// Look returns what a restore would do, or the error why it cannot be: a NotReadyError, an OtherVMError, a RunsError, a
// SnapshotChangedError, or that it would replace a claim that others use.
func Look(ctx context.Context, c *client.Client, namespace, name string, o RestoreOptions) (*Plan, error) {
	p, err := look(ctx, c, namespace, name, o)
	if err == nil && o.VolumePolicy == string(snapshotv1beta1.VolumeRestorePolicyPrefixTargetName) {
		err = p.prefixed(ctx, c)
	}
	if err != nil || !o.isInPlace() {
		return p, err
	}
	if p.InPlace, err = lookInPlace(ctx, c, p); err != nil {
		return nil, err
	}
	return p, p.InPlace.refuse(p)
}

// prefixed refuses a restore whose claims would have names that there are. What may not be read is left to the server.
func (p *Plan) prefixed(ctx context.Context, c *client.Client) error {
	namespace := p.Snapshot.Namespace
	for _, volume := range p.Volumes {
		name := vmsnapshots.PrefixedName(p.Target, volume)
		_, err := c.ReadMetadata(ctx, "/api/v1/namespaces/"+namespace+"/"+client.Claims+"/"+name)
		if err == nil {
			return fmt.Errorf("restore snapshot %s/%s: claim %s, which volume %s would get, is there already; choose "+
				"another --volume-restore-policy", namespace, p.Snapshot.Name, name, volume)
		}
	}
	return nil
}

func look(ctx context.Context, c *client.Client, namespace, name string, o RestoreOptions) (*Plan, error) {
	s, err := GetReady(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	if o.SnapshotUID != "" && s.UID != o.SnapshotUID {
		return nil, &SnapshotChangedError{namespace, name}
	}
	p := &Plan{Snapshot: s, Target: cmp.Or(o.Target, s.Spec.Source.Name)}
	if s.Status.SnapshotVolumes != nil {
		p.Volumes = s.Status.SnapshotVolumes.IncludedVolumes
	}
	vm, err := c.VM(ctx, namespace, p.Target)
	switch {
	case apierrors.IsNotFound(err):
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("look at VM %s/%s: %w", namespace, p.Target, err)
	}
	if of := s.Status.SourceUID; of != nil && *of != vm.UID {
		return nil, &OtherVMError{namespace, p.Target, name}
	}
	p.Exists, p.UID, p.Loses, p.Claims = true, vm.UID, lost(vm, p.Volumes), claimsOf(vm)
	p.Resumes = p.Target == s.Spec.Source.Name && slices.Contains(Indications(s), "Memory") &&
		!slices.Contains(Indications(s), string(snapshotv1beta1.VMSnapshotQuiesceTimeoutIndication))
	if len(o.Patches) > 0 {
		return nil, fmt.Errorf("VM %s/%s exists, and patches are for one that the restore makes; give --target with "+
			"another name, or no --patch", namespace, p.Target)
	}
	vmi, err := c.VMI(ctx, namespace, p.Target)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("look whether VM %s/%s runs: %w", namespace, p.Target, err)
	}
	if p.Runs = err == nil && !vmi.IsFinal(); p.Runs && !o.Stop {
		strategy, err := vm.RunStrategy()
		stopping := vmi.DeletionTimestamp != nil || err == nil && strategy == v1.RunStrategyHalted
		return nil, &RunsError{namespace, p.Target, stopping}
	}
	return p, nil
}

// claimsOf returns the claims of a VM's own storage by volume.
func claimsOf(vm *v1.VirtualMachine) map[string]string {
	out := map[string]string{}
	if vm.Spec.Template == nil {
		return out
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		if volume := &vm.Spec.Template.Spec.Volumes[i]; claims.Storage(volume) {
			out[volume.Name] = claims.Name(volume)
		}
	}
	return out
}

// lost returns the volumes of a VM that are not among those of a snapshot.
func lost(vm *v1.VirtualMachine, kept []string) []string {
	var out []string
	if vm.Spec.Template == nil {
		return nil
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		volume := &vm.Spec.Template.Spec.Volumes[i]
		if claims.Storage(volume) && !slices.Contains(kept, volume.Name) {
			out = append(out, volume.Name)
		}
	}
	return out
}

// NewRestore returns the restore that the options ask for; it is not created yet.
func NewRestore(namespace, name, snapshot string, target string, o RestoreOptions,
) *snapshotv1beta1.VirtualMachineRestore {
	r := &snapshotv1beta1.VirtualMachineRestore{
		TypeMeta: metav1.TypeMeta{
			APIVersion: snapshotv1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineRestore",
		},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: snapshotv1beta1.VirtualMachineRestoreSpec{
			Target: machine(target), VirtualMachineSnapshotName: snapshot, Patches: o.Patches,
		},
	}
	if o.Stop {
		stop := snapshotv1beta1.VirtualMachineRestoreStopTarget
		r.Spec.TargetReadinessPolicy = &stop
	}
	if o.Keep {
		r.Annotations = map[string]string{vmsnapshots.KeepAnnotation: "true"}
	}
	if policy := snapshotv1beta1.VolumeOwnershipPolicy(o.Ownership); policy != "" {
		r.Spec.VolumeOwnershipPolicy = &policy
	}
	if policy := snapshotv1beta1.VolumeRestorePolicy(o.VolumePolicy); policy != "" {
		r.Spec.VolumeRestorePolicy = &policy
	}
	return r
}

// NewUndo returns the restore that takes another back.
func NewUndo(name string, of *snapshotv1beta1.VirtualMachineRestore) *snapshotv1beta1.VirtualMachineRestore {
	r := NewRestore(of.Namespace, name, of.Spec.VirtualMachineSnapshotName, of.Spec.Target.Name, RestoreOptions{})
	r.Annotations = map[string]string{vmsnapshots.UndoAnnotation: of.Name}
	return r
}

// Claims returns the claims that a restore has given its VM.
func Claims(r *snapshotv1beta1.VirtualMachineRestore) []string {
	if r.Status == nil {
		return nil
	}
	var out []string
	for i := range r.Status.Restores {
		out = append(out, r.Status.Restores[i].PersistentVolumeClaimName)
	}
	return out
}

// CreateRestore asks for a restore and returns it as the server has it; it is not done yet.
func CreateRestore(
	ctx context.Context, c *client.Client, r *snapshotv1beta1.VirtualMachineRestore, dryRun bool,
) (*snapshotv1beta1.VirtualMachineRestore, error) {
	out := &snapshotv1beta1.VirtualMachineRestore{}
	if err := c.CreateTyped(ctx, Group, client.Restores, r, out, dryRun); err != nil {
		return nil, fmt.Errorf("restore snapshot %s/%s: %w", r.Namespace, r.Spec.VirtualMachineSnapshotName,
			errorOf(err))
	}
	return out, nil
}

// GetRestore reads a restore.
func GetRestore(ctx context.Context, c *client.Client, namespace, name string) (
	*snapshotv1beta1.VirtualMachineRestore, error,
) {
	r := &snapshotv1beta1.VirtualMachineRestore{}
	if err := c.Read(ctx, path(client.Restores, namespace, name), nil, r); err != nil {
		return nil, fmt.Errorf("read restore %s/%s: %w", namespace, name, errorOf(err))
	}
	return r, nil
}

// RestoresOf returns the restores of a snapshot.
func RestoresOf(ctx context.Context, c *client.Client, namespace, snapshot string) (
	[]snapshotv1beta1.VirtualMachineRestore, error,
) {
	return listRestores(ctx, c, namespace, func(r *snapshotv1beta1.VirtualMachineRestore) bool {
		return r.Spec.VirtualMachineSnapshotName == snapshot
	})
}

// RestoresTo returns the restores to a VM that have not ended.
func RestoresTo(ctx context.Context, c *client.Client, namespace, vm string) (
	[]snapshotv1beta1.VirtualMachineRestore, error,
) {
	return listRestores(ctx, c, namespace, func(r *snapshotv1beta1.VirtualMachineRestore) bool {
		done, err := Restored(r)
		return !done && err == nil && r.Spec.Target.Name == vm
	})
}

// listRestores returns the restores of a namespace for which wanted holds.
func listRestores(
	ctx context.Context, c *client.Client, namespace string, wanted func(*snapshotv1beta1.VirtualMachineRestore) bool,
) ([]snapshotv1beta1.VirtualMachineRestore, error) {
	list := &snapshotv1beta1.VirtualMachineRestoreList{}
	if err := c.Read(ctx, path(client.Restores, namespace), url.Values{}, list); err != nil {
		return nil, fmt.Errorf("list restores: %w", errorOf(err))
	}
	return slices.DeleteFunc(list.Items, func(r snapshotv1beta1.VirtualMachineRestore) bool { return !wanted(&r) }), nil
}

// RestoreStage returns in a few words how far a restore is.
func RestoreStage(r *snapshotv1beta1.VirtualMachineRestore) string {
	switch {
	case r.Status == nil:
		return "Pending"
	case r.Status.Complete != nil && *r.Status.Complete:
		return "Complete"
	}
	if said := failure(r.Status.Conditions); said != "" {
		return "Failed: " + said
	}
	if said := progressing(r.Status.Conditions); said != "" {
		return "InProgress: " + said
	}
	return "InProgress"
}

// Restored holds when a restore is complete; that it failed is an error.
func Restored(r *snapshotv1beta1.VirtualMachineRestore) (bool, error) {
	if r.Status == nil {
		return false, nil
	}
	if said := failure(r.Status.Conditions); said != "" {
		return false, fmt.Errorf("restore %s/%s failed: %s", r.Namespace, r.Name, said)
	}
	return vmsnapshots.RestoreComplete(r), nil
}

// WaitRestore waits until a restore is complete, and reports each of its stages.
func WaitRestore(ctx context.Context, c *client.Client, namespace, name string, report func(stage string)) (
	*snapshotv1beta1.VirtualMachineRestore, error,
) {
	source, err := c.Source(snapshotv1beta1.SchemeGroupVersion, client.Restores, namespace)
	if err != nil {
		return nil, err
	}
	progress := wait.Progress[*snapshotv1beta1.VirtualMachineRestore]{
		Stage: RestoreStage, Done: Restored, Report: report,
	}
	r, err := progress.Wait(ctx, source, "restore", namespace, name)
	return r, errorOf(err)
}
