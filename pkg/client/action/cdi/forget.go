package cdi

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// mostConflicts bounds how often a claim is read and changed again that others change meanwhile.
const mostConflicts = 10

// forget removes from the claim what an upload through the API server, of which CDI has replaced the disk, says there:
// that of one that failed would keep VMs from using the image, and that of one to come would let it be replaced
// unasked.
func (u *uploading) forget(ctx context.Context) error {
	for try := 1; ; try++ {
		claim, err := u.claim(ctx, u.Name)
		if err != nil || claim == nil {
			return err
		}
		old := uploads.Replaced(claim.Annotations)
		if len(old) == 0 {
			return nil
		}
		gone := map[string]any{}
		for _, key := range old {
			gone[key] = nil
		}
		err = u.change(ctx, "/api/v1", client.Claims, map[string]any{
			"annotations": gone, "resourceVersion": claim.ResourceVersion, // no upload has begun since
		})
		switch {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err) || try == mostConflicts:
			return fmt.Errorf("note that CDI has replaced the disk of an earlier upload: %w; do so with `kubectl "+
				"annotate pvc %s -n %s %s-`", err, u.Name, u.Namespace, strings.Join(old, "- "))
		}
	}
}
