package imagefile

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// There looks whether the claim is there, says so in o.Claim, and returns how it differs from the one that is asked
// for, in a sentence; empty when it does not. An upload replaces the disk of a claim: mine says why the claim is
// another's, "" when it is not. Of one that is not there the StorageClass must be. One that may not be read counts as
// not there: it cannot be made anew, and nothing is uploaded to it.
func (o *Options) There(
	ctx context.Context, f *cli.Factory, c *client.Client, t cli.Target,
	mine func(*corev1.PersistentVolumeClaim) string,
) (string, error) {
	var there corev1.PersistentVolumeClaim
	err := c.Read(ctx, "/api/v1/namespaces/"+t.Namespace+"/"+client.Claims+"/"+t.Name, nil, &there)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", f.CheckStorageClass(ctx, c, o.Claim.StorageClass)
	case err != nil:
		return "", fmt.Errorf("look for claim %s/%s: %w", t.Namespace, t.Name, err)
	}
	if why := mine(&there); why != "" {
		return "", fmt.Errorf("claim %s/%s is there already, and %s", t.Namespace, t.Name, why)
	}
	o.Claim.There = true
	said := differences(&there, o.Claim, o.Block)
	if said == "" {
		return "", nil
	}
	return fmt.Sprintf("claim %s/%s is there already and is not made anew: %s", t.Namespace, t.Name, said), nil
}

// differences returns how an existing claim differs from the one that is asked for: it is smaller, no block device
// although one is meant, or of another class.
func differences(there *corev1.PersistentVolumeClaim, asked upload.Claim, block bool) string {
	var out []string
	size := there.Status.Capacity[corev1.ResourceStorage]
	if size.IsZero() {
		size = there.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	if size.Cmp(resource.MustParse(asked.Size)) < 0 {
		out = append(out, fmt.Sprintf("it has %s rather than %s", size.String(), asked.Size))
	}
	if mode := there.Spec.VolumeMode; block && mode != nil && *mode != corev1.PersistentVolumeBlock {
		out = append(out, "it is a file system rather than a block device")
	}
	if class := there.Spec.StorageClassName; asked.StorageClass != "" && class != nil && *class != asked.StorageClass {
		out = append(out, fmt.Sprintf("its storage class is %q rather than %q", *class, asked.StorageClass))
	}
	return strings.Join(out, ", ")
}
