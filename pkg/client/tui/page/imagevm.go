package page

import (
	"cmp"
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// ImageVM is a machine whose disk is a copy of an image. What is empty is as `create vm --image` has it.
type ImageVM struct {
	Namespace, Name          string
	Image, Size              string
	Instancetype, Preference string
	RunStrategy, SSHKey      string
}

// The fields of the form, in their order.
const (
	imageVMName = iota
	imageVMSize
	imageVMType
	imageVMPreference
	imageVMStarts
	imageVMKey
)

// imageVM is what the page that makes a machine of an image knows.
type imageVM struct {
	*Request
	claim *store.Image // the row when the page was opened

	key   string // the file with the user's own SSH key
	noKey error  // why there is none
}

// NewImageVM makes the page that makes a machine of an image.
func NewImageVM(w *World, claim *store.Image) *Request {
	p := &imageVM{claim: claim}
	own := "your own"
	if p.key, p.noKey = w.Actions.OwnKey(); p.noKey != nil {
		own = "none"
	}
	p.Request = newRequest(w, "VM of image "+claim.Ref, "makes the VM", []formField{
		imageVMName:       {title: "Name", example: "of the VM"},
		imageVMSize:       {title: "Disk", flag: "image-size", example: "the image's " + claim.Size},
		imageVMType:       {title: "Instance type", flag: "instancetype", example: cmp.Or(claim.Instancetype, "none")},
		imageVMPreference: {title: "Preference", flag: "preference", example: cmp.Or(claim.Preference, "none")},
		imageVMStarts: {title: "Starts", flag: "run-strategy", options: []option{
			{"", "now"}, {"Halted", "later"},
		}},
		imageVMKey: {title: "SSH key", flag: "ssh-key", example: own},
	})
	p.inputs[imageVMKey].CharLimit = 4096
	p.refuse, p.describe, p.ask = p.refusal, p.says, p.asks
	return p.Request
}

// row returns the image as it is now; nil when it is gone.
func (p *imageVM) row() *store.Image { return p.world.Images.Get(p.claim.Key()) }

func (p *imageVM) refusal() string {
	row := p.row()
	if row == nil || row.UID != p.claim.UID {
		return "the image has been deleted"
	}
	if p.world.ReadOnly {
		return ReadOnly
	}
	if why := imageRefusal(p.world, row); why != "" {
		return why
	}
	name := p.value(imageVMName)
	if wrong := misnamed(name); wrong != "" {
		return wrong
	}
	if p.world.Machines.Get(store.Key{Namespace: row.Namespace, Name: name}) != nil {
		return "name: there is a VM " + row.Namespace + "/" + name
	}
	if text := p.value(imageVMSize); text != "" {
		size, err := resource.ParseQuantity(text)
		if err != nil {
			return fmt.Sprintf("disk: %q is no size, such as 20Gi", text)
		}
		if have, err := resource.ParseQuantity(row.Size); err == nil && size.Cmp(have) < 0 {
			return "disk: the image has " + row.Size + ", and its copy cannot have less"
		}
	}
	if key := p.value(imageVMKey); key != "" && !create.IsPublicKey(key) {
		return "ssh key: that is no public key, which is TYPE BASE64 [COMMENT]"
	}
	return ""
}

func (p *imageVM) says() []widget.Line {
	disk := cmp.Or(p.value(imageVMName), "NAME") + "-disk"
	login := widget.Line{Text: p.login(), Role: theme.Text}
	if p.noKey != nil && p.value(imageVMKey) == "" {
		login = widget.Line{Text: login.Text + " Give a public key.", Role: theme.Warn}
	}
	return []widget.Line{
		{
			Text: fmt.Sprintf("Its disk is claim %s of namespace %s, a copy of claim %s. It stays when the VM is "+
				"deleted.",
				disk, p.claim.Namespace, p.claim.Name),
			Role: theme.Text,
		},
		login,
		{Text: "+ on the page of VMs has other disks, and more of what a VM may have.", Role: theme.Dim},
	}
}

// login says who can log in to the guest.
func (p *imageVM) login() string {
	account := "the image's account"
	if p.claim.User != "" {
		account = "account " + p.claim.User
	}
	switch {
	case p.value(imageVMKey) != "":
		return "The given SSH key lets you log in with " + account + "."
	case p.noKey != nil:
		return "Nobody can log in to the guest: " + p.noKey.Error() + "."
	}
	return "SSH key " + p.key + " lets you log in with " + account + "."
}

func (p *imageVM) asks() tea.Cmd {
	w, actions := p.world, p.world.Actions
	p.key, p.noKey = actions.OwnKey() // it may have been made since
	vm := ImageVM{
		Namespace: p.claim.Namespace, Name: p.value(imageVMName), Image: p.claim.Ref, Size: p.value(imageVMSize),
		Instancetype: p.value(imageVMType), Preference: p.value(imageVMPreference),
		RunStrategy: p.value(imageVMStarts), SSHKey: p.value(imageVMKey),
	}
	words := []string{w.Program, "create vm --name", quoted(vm.Name), "--image", quoted(vm.Image)}
	words = append(words, p.words(imageVMSize)...)
	note := ""
	return Send(Ask{
		Question: fmt.Sprintf("Make VM %s/%s of image %s? %s", vm.Namespace, vm.Name, vm.Image, p.login()), Task: Task{
			Line: w.Line(append(words, "--namespace", vm.Namespace, "--apply")...),
			Do: func(ctx context.Context) (err error) {
				note, err = actions.CreateFromImage(ctx, vm)
				return err
			},
			Then: func(err error) tea.Msg {
				if err != nil { // it is shown, and the form stays
					return nil
				}
				key := store.Key{Namespace: vm.Namespace, Name: vm.Name}
				return Replace{Old: p.Request, Page: NewMachine(w, key), Notice: Capital(note)}
			},
		},
	})
}
