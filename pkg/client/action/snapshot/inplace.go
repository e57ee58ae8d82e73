package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/names"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// InPlace says which claims a restore replaces under their names.
type InPlace struct {
	// Deleted are the claims that exist and are deleted; Foreign are those of them that the target does not have now.
	Deleted, Foreign []string
	// Unread says that the caller may not read which claims the snapshot has; the server looks at them all the same.
	Unread bool
	// Trouble says why the server would refuse it, "" when it would not.
	Trouble string
}

// Says names the claims that are deleted, in a sentence; "" when none is.
func (i *InPlace) Says(target string) string {
	switch {
	case i != nil && i.Unread:
		return "Claims of the names in the snapshot are deleted, and made anew."
	case i == nil || len(i.Deleted) == 0:
		return ""
	}
	text := "Deleted, and made anew under their names: claims " + strings.Join(i.Deleted, ", ")
	if len(i.Foreign) > 0 {
		text += "; VM " + target + " does not have " + strings.Join(i.Foreign, ", ") + " now"
	}
	return text + "."
}

// LookInPlace returns what Look does, and what a restore in place would delete, which is not refused yet.
func LookInPlace(ctx context.Context, c *client.Client, namespace, name string, o RestoreOptions) (*Plan, error) {
	o.VolumePolicy = ""
	p, err := Look(ctx, c, namespace, name, o)
	if err != nil {
		return nil, err
	}
	p.InPlace, err = lookInPlace(ctx, c, p)
	return p, err
}

func lookInPlace(ctx context.Context, c *client.Client, p *Plan) (*InPlace, error) {
	out, namespace := &InPlace{}, p.Snapshot.Namespace
	content, err := Content(ctx, c, p.Snapshot)
	if apierrors.IsForbidden(err) {
		return &InPlace{Unread: true}, nil
	}
	if err != nil || content == nil {
		return out, err
	}
	users, err := volume.Users(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	for _, backup := range vmsnapshots.Backups(content) {
		name := backup.PersistentVolumeClaim.Name
		claim := &corev1.PersistentVolumeClaim{}
		at := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/persistentvolumeclaims/" + url.PathEscape(name)
		switch err := c.Read(ctx, at, nil, claim); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil && !apierrors.IsForbidden(err): // who may not read it is to know that it may be deleted
			return nil, fmt.Errorf("read claim %s/%s: %w", namespace, name, err)
		}
		out.Deleted = append(out.Deleted, name)
		state := p.Exists && claim.Labels[vmstate.Prefix] == names.LabelValue(p.Target)
		if !state && !slices.Contains(p.claims(), name) {
			out.Foreign = append(out.Foreign, name)
		}
		trouble, lasting := vmsnapshots.InUse(namespace, name, p.Target, users)
		if trouble != "" && (out.Trouble == "" || lasting) {
			out.Trouble = trouble
		}
	}
	return out, nil
}

// claims returns the claims that the target has now.
func (p *Plan) claims() (out []string) {
	for _, claim := range p.Claims {
		out = append(out, claim)
	}
	return out
}

// refuse returns why a restore in place would be refused.
func (i *InPlace) refuse(p *Plan) error {
	if i.Trouble == "" {
		return nil
	}
	return fmt.Errorf("restore snapshot %s/%s: %w", p.Snapshot.Namespace, p.Snapshot.Name, errors.New(i.Trouble))
}

// InClaims names the volumes that are restored, each with the claim that the target has for it now.
func (p *Plan) InClaims() string {
	var out []string
	for _, name := range p.Volumes {
		switch claim := p.Claims[name]; {
		case claim != "":
			name += " (claim " + claim + ")"
		case p.Exists && name != vmsnapshots.StateVolume(p.Target):
			name += " (which it does not have now)"
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// isInPlace reports options of a restore that replaces claims under their names.
func (o *RestoreOptions) isInPlace() bool {
	return o.VolumePolicy == string(snapshotv1beta1.VolumeRestorePolicyInPlace)
}
