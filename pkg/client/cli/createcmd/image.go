package createcmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// imageDisk is the name of the volume that --image makes.
const imageDisk = "disk"

// completeImage makes the copy of --image, a claim or what makes it, and the VM's first disk of it; nil for an image
// that is a DataSource, which CDI copies for the VM. Where nothing says how to log in, the caller's own SSH key does.
func (o *VMOptions) completeImage(ctx context.Context, c *client.Client, namespace string) (*imageCopy, error) {
	from, ref, err := images.SplitNamespace(o.Image)
	if err != nil {
		return nil, cli.UsageErrorf("--image: %s", err)
	}
	if from == "" {
		from = namespace
	}
	if o.Pull {
		if ref, err = o.pullMissing(ctx, c, namespace, from, ref); err != nil {
			return nil, err
		}
	}
	image, err := o.findImage(ctx, c, from, ref, from == namespace)
	if err != nil {
		return nil, err
	}
	if image.Claim == "" {
		if err := o.cloneSource(image); err != nil {
			return nil, err
		}
		o.giveKey(image.User)
		return nil, nil
	}
	var source corev1.PersistentVolumeClaim
	path := "/api/v1/namespaces/" + from + "/" + client.Claims + "/" + image.Name
	if err := c.Read(ctx, path, nil, &source); err != nil {
		return nil, fmt.Errorf("read claim %s/%s: %w", from, image.Name, err)
	}
	claim, err := images.Clone(&source, o.VM.Name+"-"+imageDisk, o.ImageSize)
	if err != nil {
		return nil, cli.UsageErrorf("--image-size: %s", err)
	}
	claim.Namespace = o.VM.Namespace
	out := &imageCopy{claim: claim}
	if from != namespace {
		out = &imageCopy{clone: images.Across(&source, claim.Name, o.ImageSize)}
		out.clone.Namespace = o.VM.Namespace
		if err := o.giveDefaults(ctx, c, namespace, &source); err != nil {
			return nil, err
		}
	}
	disk := create.Volume{Kind: create.Claim, Source: claim.Name, Name: imageDisk}
	o.VM.Volumes = slices.Insert(o.VM.Volumes, 0, disk)
	o.giveKey(image.User)
	return out, nil
}

// cloneSource gives the VM a DataVolume of the DataSource, called as the claim of other images. The server infers an
// instance type and a preference of the DataSource's labels.
func (o *VMOptions) cloneSource(image *images.Pulled) error {
	if o.ImageSize != "" {
		size, err := resource.ParseQuantity(o.ImageSize)
		if err != nil || size.Sign() <= 0 {
			return cli.UsageErrorf("--image-size: %q is no size; write one such as 10Gi", o.ImageSize)
		}
		if have, err := resource.ParseQuantity(image.Size); err == nil && size.Cmp(have) < 0 {
			return cli.UsageErrorf("--image-size: the image has %s, and its copy cannot have less; ask for %s or more",
				image.Size, image.Size)
		}
	}
	const suffix = "-" + imageDisk
	name := strings.ReplaceAll(o.VM.Name, ".", "-") // the volume has the same name, a label
	name = strings.TrimRight(name[:min(len(name), validation.DNS1123LabelMaxLength-len(suffix))], "-") + suffix
	for _, inference := range []*create.Inference{&o.VM.InferInstancetype, &o.VM.InferPreference} {
		if inference.From == imageDisk {
			inference.From = name
		}
	}
	o.VM.Volumes = slices.Insert(o.VM.Volumes, 0, create.Volume{
		Kind: create.Import, Name: name, Field: "image",
		Import: create.DataSource{
			Type: "ds", Source: image.Namespace + "/" + image.DataSource, Size: o.ImageSize,
		},
	})
	return nil
}

// giveDefaults gives the VM the instance type and the preference of an image in another namespace, unless flags say
// otherwise. The server could not infer them, since the claim with their labels is made later.
func (o *VMOptions) giveDefaults(
	ctx context.Context, c *client.Client, namespace string, image *corev1.PersistentVolumeClaim,
) error {
	give := func(field string, i *create.Inference, labels [2]string, into *string) error {
		flag := "--infer-" + field
		if i.From == imageDisk { // the copy
			i.From, i.Explicit = "", true
			flag += "-from"
		}
		if i.Off || i.From != "" || *into != "" {
			return nil
		}
		i.Off = true
		name, kind := image.Labels[labels[0]], image.Labels[labels[1]]
		var err error
		switch {
		case name == "":
			err = cli.UsageErrorf("claim %s/%s has no label %s", image.Namespace, image.Name, labels[0])
		case uploads.OfNamespace(kind):
			err = cli.UsageErrorf("%s %s is of namespace %s, and can be used there alone", kind, name, image.Namespace)
		default:
			err = o.Factory.CheckReferent(ctx, c, namespace, cli.Referent{Field: field, Kind: kind, Name: name})
			if err != nil {
				err = fmt.Errorf("label %s of claim %s/%s: %w", labels[0], image.Namespace, image.Name, err)
			}
		}
		if err != nil && i.Explicit {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if err == nil {
			*into = name
		}
		return nil
	}
	if !o.VM.MemoryGiven && o.VM.CPU == 0 {
		labels := [2]string{uploads.LabelInstancetype, uploads.LabelInstancetypeKind}
		if err := give("instancetype", &o.VM.InferInstancetype, labels, &o.VM.Instancetype); err != nil {
			return err
		}
	}
	labels := [2]string{uploads.LabelPreference, uploads.LabelPreferenceKind}
	return give("preference", &o.VM.InferPreference, labels, &o.VM.Preference)
}

// findImage returns an image that is there; own says that the namespace is the VM's.
func (o *VMOptions) findImage(
	ctx context.Context, c *client.Client, namespace, ref string, own bool,
) (*images.Pulled, error) {
	if _, _, err := images.ParseRef(ref); err != nil {
		return nil, cli.UsageErrorf("--image: %s", err)
	}
	list, err := images.List(ctx, c, namespace)
	if err != nil {
		return nil, fmt.Errorf("--image: %w", err)
	}
	image, err := list.FindAlias(ref)
	if err != nil {
		return nil, fmt.Errorf("--image: %w in namespace %s; %s", err, namespace, o.whence(namespace, ref, own))
	}
	switch image.Phase {
	case images.PhaseReady:
	case images.PhaseNotReady:
		return nil, fmt.Errorf("--image: DataSource %s/%s has no disk to copy: %s", namespace, image.DataSource,
			image.Message)
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

// whence returns how a namespace, the VM's own or another, gets the image.
func (o *VMOptions) whence(namespace, ref string, own bool) string {
	if _, unknown := images.Builtin().Find(ref); unknown != nil { // unless the cluster has a catalogue with it
		return fmt.Sprintf("`%s image list --available%s` shows what can be pulled", o.Factory.Program,
			o.Factory.InNamespace(namespace))
	}
	brings := fmt.Sprintf("`%s image pull %s%s` brings it", o.Factory.Program, ref, o.Factory.InNamespace(namespace))
	if own {
		brings += ", as --pull does with --apply"
	}
	return brings
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
	copied, err := o.completeImage(ctx, c, v.Namespace)
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
	_, err = o.make(ctx, c, v.Namespace, copied, vm)
	return err
}
