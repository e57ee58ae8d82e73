package page

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
)

// pulled is the image that keys work on; there may be none.
type pulled struct {
	world *World
	row   *imageRow
}

const noImage = "there is no image here"

// claim returns the image's claim, or why there is none.
func (p pulled) claim() (*store.Image, string) {
	switch {
	case p.row == nil:
		return nil, noImage
	case p.row.claim == nil:
		return nil, "it was not pulled; f does that"
	}
	return p.row.claim, ""
}

// imageBindings returns the keys that do something to an image, wherever that is shown.
func imageBindings() keymap.Map[pulled] {
	has := func(p pulled) string {
		_, why := p.claim()
		return why
	}
	return keymap.Map[pulled]{
		{
			Keys: []string{"f"}, Name: "pull", Help: "bring the image of the catalogue to a claim of the namespace",
			Allowed: pulled.unpullable, Do: pulled.askPull,
		},
		{
			Keys: []string{"+"}, Name: "new", Help: "create a machine whose disk is a copy of the image",
			Allowed: pulled.unusable,
			Do:      func(p pulled) tea.Cmd { return Send(Open{NewImageVM(p.world, p.row.claim)}) },
		},
		{
			Keys: []string{"i"}, Name: "machines", Help: "the machines that boot from it or from a copy of it",
			Allowed: has,
			Do: func(p pulled) tea.Cmd {
				w, key := p.world, p.row.claim.Key()
				read := func() []*store.Machine { return imageUsers(w)[key] }
				users := newMachines(w, "VMs of "+p.row.title(), read)
				none := "No VM boots from " + p.row.title() + " or from a copy of it"
				users.lacks, users.advice = func() string { return none }, "+ on the image makes one"
				return Send(Open{users})
			},
		},
		{
			Keys: []string{"y"}, Name: "YAML", Help: "the claim as the server has it", Allowed: has,
			Do: func(p pulled) tea.Cmd { return Send(Open{newYAML(p.world, client.Claims, p.row.claim.Key())}) },
		},
		cancelBinding(func(p pulled) *Transfer {
			if p.row == nil {
				return nil
			}
			return p.row.pull
		}),
		{
			Keys: []string{"ctrl+d"}, Name: "delete", Help: "delete the image's claim", Allowed: pulled.undeletable,
			Do: pulled.askDelete,
		},
	}
}

// unpullable returns why an image cannot be pulled, empty when it can.
func (p pulled) unpullable() string {
	switch {
	case p.world.ReadOnly:
		return ReadOnly
	case p.row == nil:
		return noImage
	case p.row.pull != nil && !p.row.pull.over():
		return "it is being pulled"
	case p.row.entry == nil:
		return "it is in no catalogue"
	case p.row.claim != nil && p.row.claim.Deleting:
		return "its claim is being deleted"
	case p.row.claim != nil && p.row.claim.Phase == images.PhaseReady:
		return "it is there"
	case p.row.claim != nil && p.row.claim.Phase == images.PhasePulling:
		return "it is being pulled by another program"
	}
	return p.world.Actions.ForbiddenTo(p.row.namespace, "create", client.Claims)
}

func (p pulled) askPull() tea.Cmd {
	namespace, entry, actions := p.row.namespace, p.row.entry, p.world.Actions
	t := &Transfer{
		What: fmt.Sprintf("pull of image %s to namespace %s", p.row.ref, namespace), To: "a claim of " + entry.Size,
		Loses: "What has come stays, and the next pull goes on from there.", image: p.row.ref, namespace: namespace,
		context: p.world.Context,
	}
	task := p.world.Transfers.Task(t,
		p.world.Line(p.world.Program, "image pull", quoted(p.row.ref), "--namespace", quoted(namespace)),
		func(ctx context.Context, t *Transfer) error { return actions.PullImage(ctx, namespace, entry, t) })
	return Send(Ask{Question: fmt.Sprintf("Pull image %s to a claim of %s in namespace %s? It is downloaded to this "+
		"machine, verified, and uploaded.", p.row.ref, entry.Size, namespace), Task: task})
}

// unusable returns why no machine can be made of an image, empty when one can.
func (p pulled) unusable() string {
	claim, why := p.claim()
	switch {
	case p.world.ReadOnly:
		return ReadOnly
	case why != "":
		return why
	}
	return imageRefusal(p.world, claim)
}

// imageRefusal returns why no machine can be made of an image in the cluster.
func imageRefusal(w *World, claim *store.Image) string {
	switch {
	case claim.Deleting:
		return "its claim is being deleted"
	case claim.Phase != images.PhaseReady:
		return "its disk is not there yet: it is " + claim.Phase
	}
	if why := w.Actions.ForbiddenTo(claim.Namespace, "create", client.Claims); why != "" {
		return why
	}
	return w.Actions.ForbiddenTo(claim.Namespace, "create", client.VMs)
}

func (p pulled) undeletable() string {
	claim, why := p.claim()
	switch {
	case p.world.ReadOnly:
		return ReadOnly
	case why != "":
		return why
	case p.row.pulling():
		return "it is being pulled; " + cancelKey + " cancels that"
	case claim.Deleting:
		return "its claim is being deleted"
	case claim.Phase == images.PhaseUploading:
		return "an image is being uploaded to it; `" + p.world.Program + " image-upload pvc " + claim.Name +
			" --cancel` ends that"
	}
	return p.world.Actions.ForbiddenTo(claim.Namespace, "delete", client.Claims)
}

// askDelete asks before a claim is deleted, and says who boots from it.
func (p pulled) askDelete() tea.Cmd {
	claim, actions := p.row.claim, p.world.Actions
	question := fmt.Sprintf("Delete claim %s, which has image %s?", claim.Key(), claim.Ref)
	line := p.world.Line(p.world.Program, "image rm", quoted(claim.Ref), "--yes", "--namespace", claim.Namespace)
	if claim.Ref == "" {
		question = fmt.Sprintf("Delete claim %s, whose upload did not end well?", claim.Key())
		line = p.world.Line("kubectl delete pvc", claim.Name, "--namespace", claim.Namespace)
	}
	var own []*store.Machine
	for _, m := range p.row.users {
		for _, name := range m.Claims {
			if name == claim.Name {
				own = append(own, m)
			}
		}
	}
	switch {
	case len(own) > 0:
		question += " These boot from the claim itself, and lose their disk when they stop: " + userNames(own) + "."
	case len(p.row.users) > 0:
		question += " VMs that were made of it keep their disks."
	}
	return Send(Ask{Question: question, Typed: claim.Name, Task: Task{
		Line: line,
		Do:   func(ctx context.Context) error { return actions.RemoveImage(ctx, claim) },
	}})
}
