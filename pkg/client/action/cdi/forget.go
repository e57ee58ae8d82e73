package cdi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// mostConflicts bounds how often a claim is read and changed again that others change meanwhile.
const mostConflicts = 10

// forget removes from the claim what an upload through the API server, of which CDI has replaced the disk, says there:
// that of one that failed would keep VMs from using the image, and that of one to come would let it be replaced
// unasked. With it go the labels of an image that was pulled, which is no longer there. Labels of instance types and
// preferences stay: KubeVirt has them, and who uploads may have set them.
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
		metadata := map[string]any{
			"annotations": nothing(old), "resourceVersion": claim.ResourceVersion, // no upload has begun since
		}
		do := fmt.Sprintf("`kubectl annotate pvc %s -n %s %s-`", u.Name, u.Namespace, strings.Join(old, "- "))
		if labels := imageLabels(claim); len(labels) > 0 {
			metadata["labels"] = nothing(labels)
			do += fmt.Sprintf(" and `kubectl label pvc %s -n %s %s-`", u.Name, u.Namespace, strings.Join(labels, "- "))
		}
		err = u.change(ctx, "/api/v1", client.Claims, metadata)
		switch {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err) || try == mostConflicts:
			return fmt.Errorf("note that CDI has replaced the disk of an earlier upload: %w; do so with %s", err, do)
		}
	}
}

// imageLabels returns the labels that an upload through the API server gave the claim since it brought an image of a
// catalogue. A claim without the state of one has them from whoever made it, for the disk that CDI was to bring.
func imageLabels(claim *corev1.PersistentVolumeClaim) (out []string) {
	if uploads.StateOf(claim.Annotations) == nil {
		return nil
	}
	for _, label := range slices.Sorted(maps.Keys(claim.Labels)) {
		if uploads.IsImage(label) {
			out = append(out, label)
		}
	}
	return out
}

// nothing returns what a merge patch has for keys that are to go.
func nothing(keys []string) map[string]any {
	out := map[string]any{}
	for _, key := range keys {
		out[key] = nil
	}
	return out
}
