package gather

import (
	"context"
	"net/url"

	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// copies reads the clones that are to make claims that a volume names and that do not exist.
func (g *gathering) copies(ctx context.Context) {
	f := &g.facts
	missing := false
	for _, claim := range f.Claims {
		missing = missing || claim == nil
	}
	if !missing {
		return
	}
	g.all(ctx, map[string]func(context.Context) error{
		client.Clones: func(ctx context.Context) error {
			var list clonev1beta1.VirtualMachineCloneList
			path := clone.Group + "/namespaces/" + url.PathEscape(f.Namespace) + "/" + client.Clones
			if err := g.client.Read(ctx, path, nil, &list); err != nil {
				return ignoreAbsent(err)
			}
			f.Copies = map[string]*clonev1beta1.VirtualMachineClone{}
			for i := range list.Items {
				made := &list.Items[i]
				if clones.OfImage(made) && made.Spec.Target != nil && made.DeletionTimestamp == nil {
					f.Copies[made.Spec.Target.Name] = made
				}
			}
			return nil
		},
	})
}
