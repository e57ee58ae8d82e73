package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// ImportOptions are the options of an import.
type ImportOptions struct {
	// DryRun has the server check the claims and the VM, and keep nothing.
	DryRun bool
	// Patience is how long to wait while an upload does not go on.
	Patience time.Duration
	// Show is told how far a disk is, and Note what a user should know.
	Show func(name string, done, total int64)
	Note func(string)
}

// selectedNode is the scheduler's annotation of a claim whose class waits for its first pod: the node of that pod.
// Kubernetes' provisioners begin when they see it.
const selectedNode = "volume.kubernetes.io/selected-node"

// coreAPI is where claims are served.
const coreAPI = "/api/v1"

// Payload is what is uploaded to a claim.
type Payload struct {
	// Volume is the VM's name for the disk, File the file's.
	Volume, File string
	// Image has no bytes for a disk that is blank.
	Image upload.Image
	// SHA256 is the checksum of the image's bytes.
	SHA256 string
}

// Payloads returns the disks as they are uploaded.
func (f *File) Payloads() []Payload {
	out := make([]Payload, len(f.Index.Disks))
	for n := range f.Index.Disks {
		disk := &f.Index.Disks[n]
		out[n] = Payload{
			Volume: disk.Volume, File: disk.File, SHA256: disk.SHA256,
			// It is said to be raw: what a guest has written at its beginning may look like another format.
			Image: upload.Image{ReaderAt: f.disk(n), Size: disk.Bytes, Format: imageformat.Raw},
		}
	}
	return out
}

// Import makes what a file becomes; disks are those of its claims, in their order. Whoever calls it has verified the
// file. When it fails, the claims that it has made are deleted and named; one that another run, or a VM, has by then
// stays.
func Import(ctx context.Context, c *client.Client, disks []Payload, made *Made, o ImportOptions) (err error) {
	i := &importing{ImportOptions: o, c: c, disks: disks, made: made, run: rand.Text()}
	metav1.SetMetaDataAnnotation(&made.VM.ObjectMeta, AnnotationRun, i.run)
	for _, claim := range made.Claims {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, AnnotationRun, i.run)
	}
	if err := i.check(ctx); err != nil {
		return err
	}
	if !o.DryRun {
		defer func() {
			if err != nil && !i.done {
				err = errors.Join(err, i.remove(ctx))
			}
		}()
	}
	for _, claim := range made.Claims {
		if err := i.claim(ctx, claim); err != nil {
			return err
		}
	}
	if o.DryRun {
		return nil
	}
	for n := range made.Claims {
		if err := i.upload(ctx, n); err != nil {
			return err
		}
		if err := i.together(ctx, n); err != nil {
			return err
		}
	}
	for _, claim := range i.created {
		if err := i.finish(ctx, claim); err != nil {
			return err
		}
	}
	return i.machine(ctx)
}

// importing is an import under way.
type importing struct {
	ImportOptions
	c     *client.Client
	disks []Payload
	made  *Made
	// run is unlike any other run's.
	run string
	// there are the claims of a run that was killed, and created all that are this one's, or may be.
	there   map[string]*corev1.PersistentVolumeClaim
	created []*corev1.PersistentVolumeClaim
	// done says that the VM is there, or may be: the claims are its own.
	done bool
}

// check fails when the VM cannot be made, before anything is.
func (i *importing) check(ctx context.Context) error {
	vm := i.made.VM
	_, err := i.c.VM(ctx, vm.Namespace, vm.Name)
	switch {
	case err == nil:
		return fmt.Errorf("VM %s/%s is there already; give another name with --name", vm.Namespace, vm.Name)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look whether VM %s/%s is there: %w", vm.Namespace, vm.Name, err)
	}
	i.there = map[string]*corev1.PersistentVolumeClaim{}
	for _, claim := range i.made.Claims {
		there, err := i.present(ctx, claim)
		switch {
		case err != nil:
			return err
		case there == nil:
			continue
		case there.Labels[LabelImport] != claim.Labels[LabelImport]:
			return fmt.Errorf("claim %s/%s is there already, and not of an import of this file as VM %s that did not "+
				"end; give the VM another name with --name, or delete the claim if nobody needs what is on it",
				claim.Namespace, claim.Name, vm.Name)
		}
		i.there[claim.Name] = there
	}
	if len(i.there) > 0 {
		users, err := i.users(ctx)
		if err != nil {
			return err
		}
		for name := range i.there {
			if user := users[name]; user != "" {
				return fmt.Errorf("claim %s/%s is a volume of %s; give the VM another name with --name", vm.Namespace,
					name, user)
			}
		}
	}
	if _, err := i.c.CreateVM(ctx, vm.Namespace, vm, true); err != nil {
		return fmt.Errorf("VM %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	return nil
}

// present reads the claim of a name, nil for none. One that is being deleted, as those of an import that was
// interrupted are, is waited for.
func (i *importing) present(ctx context.Context, claim *corev1.PersistentVolumeClaim) (
	*corev1.PersistentVolumeClaim, error,
) {
	began, noted := time.Now(), false
	for {
		there := &corev1.PersistentVolumeClaim{}
		err := i.c.Read(ctx, claimPath(claim), nil, there)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("look whether claim %s/%s is there: %w", claim.Namespace, claim.Name, err)
		case there.DeletionTimestamp == nil:
			return there, nil
		}
		of := fmt.Sprintf("claim %s/%s is being deleted", claim.Namespace, claim.Name)
		if time.Since(began) >= min(i.Patience, deleting) {
			return nil, fmt.Errorf("%s, and somebody still has it; import again when it is gone, or give the VM "+
				"another name with --name", of)
		}
		if !noted {
			noted = true
			i.Note(of + "; the import waits for that")
		}
		if err := action.Sleep(ctx, lookAgain); err != nil {
			return nil, err
		}
	}
}

// lookAgain is the pause between two looks at a claim that is being deleted.
const lookAgain = 250 * time.Millisecond

func claimPath(claim metav1.Object) string {
	return coreAPI + "/namespaces/" + url.PathEscape(claim.GetNamespace()) + "/" + client.Claims + "/" +
		url.PathEscape(claim.GetName())
}

// claim makes a claim.
func (i *importing) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if there := i.there[claim.Name]; there != nil {
		i.Note(fmt.Sprintf("claim %s/%s is of an import of this file that did not end; it is used", claim.Namespace,
			claim.Name))
		return i.take(ctx, there)
	}
	made := &corev1.PersistentVolumeClaim{}
	err := i.c.CreateTyped(ctx, coreAPI, client.Claims, claim, made, i.DryRun)
	switch {
	case err == nil:
		i.created = append(i.created, made)
		return nil
	case client.Unanswered(err):
		i.created = append(i.created, claim) // it may be there
	}
	return fmt.Errorf("make claim %s/%s: %w", claim.Namespace, claim.Name, err)
}

// upload fills a claim.
func (i *importing) upload(ctx context.Context, n int) error {
	claim, disk := i.created[n], &i.disks[n]
	if disk.Image.Size == 0 {
		return nil
	}
	if state := uploads.StateOf(claim.Annotations); uploads.RequestOf(claim.Annotations) == nil && state != nil &&
		state.Phase == uploads.Succeeded && state.SHA256 == disk.SHA256 {
		return nil // by the import that did not end
	}
	i.Show(disk.Volume, 0, disk.Image.Size)
	state, err := upload.Run(ctx, i.c, upload.Options{
		Namespace: claim.Namespace, Claim: claim.Name,
		Image:   disk.Image,
		Session: upload.NewSession(), Patience: i.Patience,
		Show: func(state uploads.State) {
			if state.Received > 0 {
				i.Show(disk.Volume, state.Received, disk.Image.Size)
			}
		},
	})
	switch {
	case errors.Is(err, action.ErrTimeout):
		return fmt.Errorf("volume %s: %w; --storage-class and --access-mode choose another kind of claim",
			disk.Volume, err)
	case err != nil:
		return fmt.Errorf("volume %s: %w", disk.Volume, err)
	case state.SHA256 != disk.SHA256:
		return fmt.Errorf("volume %s: %w", disk.Volume, altered(disk.File))
	}
	return nil
}

// together has the claims after the n-th be provisioned on the node that its upload chose for that one, where their
// class waits for the first pod that uses them: claims on two nodes leave none for the VM.
func (i *importing) together(ctx context.Context, n int) error {
	if n == len(i.created)-1 {
		return nil
	}
	first, err := i.own(ctx, i.created[n])
	if err != nil {
		return fmt.Errorf("look at claim %s/%s: %w", i.created[n].Namespace, i.created[n].Name, err)
	}
	node := first.Annotations[selectedNode]
	if node == "" {
		return nil
	}
	for at := n + 1; at < len(i.created); at++ {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			claim, err := i.own(ctx, i.created[at])
			if err != nil || claim.Spec.VolumeName != "" || claim.Annotations[selectedNode] != "" ||
				ptr.Deref(claim.Spec.StorageClassName, "") != ptr.Deref(first.Spec.StorageClassName, "") {
				return err
			}
			changed, err := i.change(ctx, claim,
				map[string]any{"annotations": map[string]any{selectedNode: node}})
			if err == nil {
				i.created[at] = changed
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("choose node %s for claim %s/%s: %w", node, i.created[at].Namespace,
				i.created[at].Name, err)
		}
	}
	return nil
}

// machine makes the VM, and starts one that starts when it is asked to.
func (i *importing) machine(ctx context.Context) error {
	vm := i.made.VM
	_, err := i.c.CreateVM(ctx, vm.Namespace, vm, false)
	if err != nil && client.Unanswered(err) {
		err = i.lookForVM(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("make VM %s/%s: %w", vm.Namespace, vm.Name, err)
	}
	i.done = true
	if !i.made.asked {
		return nil
	}
	err = lifecycle.Do(ctx, i.c, lifecycle.Start, lifecycle.Target{Namespace: vm.Namespace, Name: vm.Name},
		lifecycle.Options{})
	if err != nil {
		return fmt.Errorf("VM %s/%s is made, with all of its claims, and does not start: %w", vm.Namespace, vm.Name,
			err)
	}
	return nil
}

// lookForVM finds out whether the VM was made although the server did not say so.
func (i *importing) lookForVM(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleting)
	defer cancel()
	vm := i.made.VM
	there, unknown := i.c.VM(ctx, vm.Namespace, vm.Name)
	switch {
	case apierrors.IsNotFound(unknown):
		return err
	case unknown != nil:
		i.done = true
		return fmt.Errorf("%w; whether it is there is not known (%w), so its claims stay: %s", err, unknown,
			list(i.names()))
	case there.Annotations[AnnotationRun] == i.run:
		return nil
	}
	return err
}

func (i *importing) names() []string {
	var out []string
	for _, claim := range i.created {
		out = append(out, claim.Name)
	}
	return out
}
