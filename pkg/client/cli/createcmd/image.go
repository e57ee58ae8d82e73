package createcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// imageDisk is the name of the volume that --image makes.
const imageDisk = "disk"

// completeImage makes the claim of --image, a copy of the image's, and the VM's first disk of it. Where nothing says
// how to log in, the caller's own SSH key does.
func (o *VMOptions) completeImage(
	ctx context.Context, c *client.Client, namespace string,
) (*corev1.PersistentVolumeClaim, error) {
	image, err := o.findImage(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	var source corev1.PersistentVolumeClaim
	path := "/api/v1/namespaces/" + namespace + "/" + client.Claims + "/" + image.Name
	if err := c.Read(ctx, path, nil, &source); err != nil {
		return nil, fmt.Errorf("read claim %s/%s: %w", namespace, image.Name, err)
	}
	claim, err := images.Clone(&source, o.VM.Name+"-"+imageDisk, o.ImageSize)
	if err != nil {
		return nil, cli.UsageErrorf("--image-size: %s", err)
	}
	claim.Namespace = o.VM.Namespace
	disk := create.Volume{Kind: create.Claim, Source: claim.Name, Name: imageDisk}
	o.VM.Volumes = slices.Insert(o.VM.Volumes, 0, disk)
	o.giveKey(image.User)
	return claim, nil
}

func (o *VMOptions) findImage(ctx context.Context, c *client.Client, namespace string) (*images.Pulled, error) {
	if _, _, err := images.ParseRef(o.Image); err != nil {
		return nil, cli.UsageErrorf("--image: %s", err)
	}
	list, err := images.List(ctx, c, namespace)
	if err != nil {
		return nil, fmt.Errorf("--image: %w", err)
	}
	image, err := list.Find(o.Image)
	if err != nil {
		return nil, fmt.Errorf("--image: %w in namespace %s; %s", err, namespace, o.whence(namespace))
	}
	switch image.Phase {
	case images.PhaseReady:
	case images.PhaseIncomplete:
		return nil, fmt.Errorf("--image: the pull of image %s to claim %s/%s did not end; `%s image pull %s%s` goes on",
			image.Image, namespace, image.Name, o.Factory.Program, image.Image, o.Factory.InNamespace(namespace))
	default:
		return nil, fmt.Errorf("--image: claim %s/%s does not have image %s yet: that is under way, or was "+
			"interrupted and goes on when its command is repeated; try again when `%s image list` says %s", namespace,
			image.Name, image.Image, o.Factory.Program, images.PhaseReady)
	}
	return image, nil
}

// whence returns how a namespace gets the image.
func (o *VMOptions) whence(namespace string) string {
	if _, unknown := images.Builtin().Find(o.Image); unknown != nil { // unless the cluster has a catalogue with it
		return fmt.Sprintf("`%s image list --available%s` shows what can be pulled", o.Factory.Program,
			o.Factory.InNamespace(namespace))
	}
	return fmt.Sprintf("`%s image pull %s%s` brings it", o.Factory.Program, o.Image, o.Factory.InNamespace(namespace))
}

// keyFiles are public keys as ssh-keygen names them, the best first.
var keyFiles = []string{"id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"}

// giveKey gives the guest the caller's SSH key, and says so, unless the flags say how to log in.
func (o *VMOptions) giveKey(user string) {
	given := o.VM.CloudInit
	if len(given.SSHKeys) > 0 || given.Password != "" || given.UserData != "" || len(o.VM.AccessCredentials) > 0 ||
		strings.EqualFold(given.Source, create.CloudInitNone) {
		return
	}
	account := given.User
	if account == "" {
		account = user
	}
	whose := "the image's account"
	if account != "" {
		whose = "account " + account
	}
	path, keys, err := OwnKey()
	var text, more string
	if err == nil {
		o.VM.CloudInit.SSHKeys = keys
		text, more = fmt.Sprintf("%s lets you log in with %s", whose, path), "; --ssh-key names another key"
	} else {
		text, more = fmt.Sprintf("nobody can log in to the guest: %s", err), "; --ssh-key names one"
	}
	switch {
	case o.note != nil:
		o.note(text)
	case err != nil:
		fmt.Fprintf(o.Factory.IO.ErrOut, "warning: %s%s\n", text, more)
	default:
		fmt.Fprintf(o.Factory.IO.ErrOut, "note: %s%s\n", text, more)
	}
}

// OwnKey returns the caller's SSH key, which a guest of an image gets unless flags name another: the file, and the
// public keys in it. An error says why there is none.
func OwnKey() (path string, keys []string, err error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", nil, fmt.Errorf("there is no home directory with an SSH key: %w", err)
	}
	for _, name := range keyFiles {
		path = filepath.Join(home, ".ssh", name)
		if keys, err = readKeys([]string{path}); err == nil && len(keys) > 0 {
			return path, keys, nil
		}
	}
	return "", nil, fmt.Errorf("there is no SSH key in %s", filepath.Join(home, ".ssh"))
}

// FromImage is a VM whose disk is a copy of a pulled image. What is empty is as `create vm --image` has it.
type FromImage struct {
	Namespace, Name string
	// Image is NAME/VERSION, Size that of the copy.
	Image, Size              string
	Instancetype, Preference string
	RunStrategy              string
	// SSHKey is a public key; the caller's own unless given.
	SSHKey string
}

// CreateFromImage creates it, as `create vm --image --apply` does. note is told how to log in to the guest.
func CreateFromImage(ctx context.Context, f *cli.Factory, c *client.Client, v FromImage, note func(string)) error {
	strategy := v.RunStrategy
	if strategy == "" {
		strategy = string(create.DefaultRunStrategy)
	}
	o := &VMOptions{
		Factory: f.Silent(), Apply: true, Image: v.Image, ImageSize: v.Size, note: note,
		VM: create.Options{
			Name: v.Name, Namespace: v.Namespace, RunStrategy: strategy, Memory: create.DefaultMemory,
			TerminationGracePeriodSeconds: create.DefaultTerminationGracePeriodSeconds,
			Instancetype:                  v.Instancetype, Preference: v.Preference,
		},
	}
	if v.SSHKey != "" {
		o.VM.CloudInit.SSHKeys = []string{v.SSHKey}
	}
	claim, err := o.completeImage(ctx, c, v.Namespace)
	if err != nil {
		return err
	}
	vm, err := create.VM(o.VM)
	if err != nil {
		return err
	}
	if _, err := validate(vm); err != nil {
		return err
	}
	_, err = o.make(ctx, c, v.Namespace, claim, vm)
	return err
}

// manifestWith returns a list of the claim and the VM, in the order in which they are to be created.
func manifestWith(claim *corev1.PersistentVolumeClaim, vm *unstructured.Unstructured) (runtime.Object, error) {
	first, err := bare(claim)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "items": []any{first.Object, vm.Object},
	}}, nil
}

// bare returns a claim as a user would write it.
func bare(claim *corev1.PersistentVolumeClaim) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
	if err != nil {
		return nil, fmt.Errorf("write the manifest of claim %s: %w", claim.Name, err)
	}
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}, nil
}

// makeClaim creates the claim of --image. undo takes the error of the VM: when the server has refused it, the claim is
// deleted again; when nobody knows, it is left and named.
func (o *VMOptions) makeClaim(
	ctx context.Context, c *client.Client, namespace string, claim *corev1.PersistentVolumeClaim,
) (undo func(error) error, err error) {
	manifest, err := bare(claim)
	if err != nil {
		return nil, err
	}
	// A VM that is there has a claim of that name, most likely, which is not to be deleted. Where it cannot be read the
	// server says so when the VM is made.
	err = c.Read(ctx, client.YAMLPath(client.VMs, namespace, o.VM.Name), nil, &metav1.PartialObjectMetadata{})
	if err == nil {
		resource := schema.GroupResource{Group: v1.GroupVersion.Group, Resource: client.VMs}
		return nil, apierrors.NewAlreadyExists(resource, o.VM.Name)
	}
	created, err := c.CreateObject(ctx, "/api/v1", namespace, client.Claims, manifest, o.DryRun == cli.DryRunServer)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("claim %s/%s is there already; choose another --name, or delete it, if no VM "+
			"needs what is on it", namespace, claim.Name)
	case err != nil:
		return nil, fmt.Errorf("create claim %s/%s: %w", namespace, claim.Name, err)
	}
	uid := created.GetUID()
	return func(why error) error {
		left := fmt.Errorf("claim %s/%s, which was made for it, is left", namespace, claim.Name)
		var status apierrors.APIStatus
		switch {
		case o.DryRun == cli.DryRunServer:
			return nil
		case !errors.As(why, &status) || status.Status().Code < 400 || status.Status().Code >= 500:
			return left
		}
		err := c.DeleteObject(context.WithoutCancel(ctx), "/api/v1", namespace, client.Claims, claim.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return errors.Join(left, err)
		}
		return nil
	}, nil
}
