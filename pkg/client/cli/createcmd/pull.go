package createcmd

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/imagecmd"
)

// completePull checks what --pull needs.
func (o *VMOptions) completePull() error {
	switch {
	case !o.Pull:
		return nil
	case o.Image == "":
		return cli.UsageErrorf("--pull: which image? Name it with --image, such as --image=debian/13")
	case !o.Apply:
		return cli.UsageErrorf("--pull brings an image into the cluster, which a command that prints a manifest "+
			"leaves as it is; add --apply, or call `%s image pull` before", o.Factory.Program)
	}
	return nil
}

// pullMissing pulls an image of the catalogue to the VM's namespace, unless the namespace has it, and returns the
// reference by which it is found there. What is wrong with the VM is said before a byte is downloaded.
func (o *VMOptions) pullMissing(
	ctx context.Context, c *client.Client, namespace, from, ref string,
) (found string, err error) {
	if _, _, err := images.ParseRef(ref); err != nil {
		return "", cli.UsageErrorf("--image: %s", err)
	}
	list, err := images.List(ctx, c, from)
	if err != nil {
		return "", fmt.Errorf("--image: %w", err)
	}
	if have, err := list.FindAlias(ref); err == nil && there(have) {
		return ref, nil
	}
	if from != namespace {
		return "", cli.UsageErrorf("--pull: it brings an image to the VM's namespace %s, and not to %s; call "+
			"`%s image pull %s -n %s` before", namespace, from, o.Factory.Program, ref, from)
	}
	image, err := imagecmd.Find(ctx, o.Factory, ref)
	if err != nil {
		return "", fmt.Errorf("--pull: %w", err)
	}
	// By an alias of a catalogue that the program has not.
	if have, err := list.Find(image.Ref()); err == nil && there(have) {
		return image.Ref(), nil
	}
	if err := o.checkBeforePull(ctx, c, namespace, image); err != nil {
		return "", err
	}
	if o.DryRun != cli.DryRunNone {
		return "", fmt.Errorf("--pull: image %s is not in namespace %s, and a dry run pulls nothing; call "+
			"`%s image pull %s%s` before", image.Ref(), namespace, o.Factory.Program, image.Ref(),
			o.Factory.InNamespace(namespace))
	}
	fmt.Fprintf(o.Factory.IO.ErrOut, "note: image %s is not in namespace %s: it is pulled first\n", image.Ref(),
		namespace)
	if err := imagecmd.PullNeeded(ctx, o.Factory, c, namespace, image); err != nil {
		return "", fmt.Errorf("pull image %s: %w", image.Ref(), err)
	}
	fmt.Fprintf(o.Factory.IO.ErrOut, "note: claim %s/%s has image %s, for other VMs, too; `%s image rm %s%s` deletes "+
		"it\n", namespace, imagecmd.ClaimName(image), image.Ref(), o.Factory.Program, image.Ref(),
		o.Factory.InNamespace(namespace))
	return image.Ref(), nil
}

// there reports whether no pull is to bring an image: it has its disk, or is a DataSource that CDI fills.
func there(have *images.Pulled) bool {
	return have.Phase == images.PhaseReady || have.Claim == ""
}

// checkBeforePull says what is wrong with the VM, as far as that can be known without its disk.
func (o *VMOptions) checkBeforePull(
	ctx context.Context, c *client.Client, namespace string, image *images.Image,
) error {
	if o.ImageSize != "" {
		asked, err := resource.ParseQuantity(o.ImageSize)
		if err != nil {
			return cli.UsageErrorf("--image-size: %q is no size; write one such as 10Gi", o.ImageSize)
		}
		if least, err := resource.ParseQuantity(image.Size); err == nil && asked.Cmp(least) < 0 {
			return cli.UsageErrorf("--image-size: the image has %s, and its copy cannot have less; ask for %s or more",
				image.Size, image.Size)
		}
	}
	trial := o.VM
	trial.Volumes = slices.Insert(slices.Clone(o.VM.Volumes), 0,
		create.Volume{Kind: create.Claim, Source: o.VM.Name + "-" + imageDisk, Name: imageDisk})
	vm, err := create.VM(trial)
	if err != nil {
		return flagError(err)
	}
	if _, err := validate(vm); err != nil {
		return err
	}
	if err := o.checkReferents(ctx, c, namespace, vm); err != nil {
		return err
	}
	err = c.Read(ctx, client.YAMLPath(client.VMs, namespace, o.VM.Name), nil, &metav1.PartialObjectMetadata{})
	if err == nil { // what cannot be read is said when the VM is made
		of := schema.GroupResource{Group: v1.GroupVersion.Group, Resource: client.VMs}
		return fmt.Errorf("create VM %s/%s: %w", namespace, o.VM.Name, apierrors.NewAlreadyExists(of, o.VM.Name))
	}
	claim := o.VM.Name + "-" + imageDisk
	if _, err := c.ReadMetadata(ctx, "/api/v1/namespaces/"+namespace+"/"+client.Claims+"/"+claim); err == nil {
		return copyExists("claim", namespace, claim, "it") // of a VM of that name that was deleted, say
	}
	return nil
}
