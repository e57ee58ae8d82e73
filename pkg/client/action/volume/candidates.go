package volume

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// Reader reads paths of the API server.
type Reader interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// Claim is a PersistentVolumeClaim as somebody sees it who is to choose one.
type Claim struct {
	Name, Class string
	// Size is what the claim has, or as long as it has nothing what it asks for: 10Gi.
	Size string
	// Modes are its access modes as kubectl has them: RWO,RWX.
	Modes string
	// Status is Pending, Bound, Lost or Terminating.
	Status string
	// UsedBy are the machines whose volumes it is, with vmi/ before those that no VM has made.
	UsedBy []string
}

// Candidates returns the claims of a namespace by name. users is false where the caller may not read whose volumes they
// are; UsedBy is empty then.
func Candidates(ctx context.Context, api Reader, namespace string) (found []Claim, users bool, err error) {
	err = pages(ctx, api, "/api/v1", namespace, "persistentvolumeclaims", func(c *corev1.PersistentVolumeClaim) {
		found = append(found, claimOf(c))
	})
	if err != nil {
		return nil, false, fmt.Errorf("list the claims of %s: %w", namespace, err)
	}
	slices.SortFunc(found, func(a, b Claim) int { return strings.Compare(a.Name, b.Name) })
	of, err := usersOf(ctx, api, namespace)
	switch {
	case apierrors.IsForbidden(err):
		return found, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("list the machines of %s: %w", namespace, err)
	}
	for i := range found {
		found[i].UsedBy = of[found[i].Name]
	}
	return found, true, nil
}

func claimOf(c *corev1.PersistentVolumeClaim) Claim {
	out := Claim{Name: c.Name, Status: claims.Status(c)}
	if c.Spec.StorageClassName != nil {
		out.Class = *c.Spec.StorageClassName
	}
	size, ok := c.Status.Capacity[corev1.ResourceStorage]
	if !ok {
		size, ok = c.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	if ok {
		out.Size = size.String()
	}
	short := map[corev1.PersistentVolumeAccessMode]string{
		corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX",
		corev1.ReadWriteOncePod: "RWOP",
	}
	var modes []string
	for _, mode := range c.Spec.AccessModes {
		modes = append(modes, short[mode])
	}
	out.Modes = strings.Join(modes, ",")
	return out
}

// usersOf returns by claim which machines of a namespace have it as a volume.
func usersOf(ctx context.Context, api Reader, namespace string) (map[string][]string, error) {
	users := claims.Users{}
	if err := machines(ctx, api, namespace, users); err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for claim, of := range users {
		for _, user := range of {
			out[claim] = append(out[claim], user.String())
		}
		slices.Sort(out[claim])
	}
	return out, nil
}

// Users returns who uses the claims of a namespace: VMs, VMIs and pods. What the caller may not read is left out.
func Users(ctx context.Context, api Reader, namespace string) (claims.Users, error) {
	users := claims.Users{}
	if err := machines(ctx, api, namespace, users); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list the machines of %s: %w", namespace, err)
	}
	var pods []corev1.Pod
	err := pages(ctx, api, "/api/v1", namespace, "pods", func(pod *corev1.Pod) {
		// Of each pod only what names its claims is kept.
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: pod.Name, UID: pod.UID, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
			},
			Spec: corev1.PodSpec{Volumes: pod.Spec.Volumes}, Status: corev1.PodStatus{Phase: pod.Status.Phase},
		})
	})
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list the pods of %s: %w", namespace, err)
	}
	users.AddPods(pods)
	return users, nil
}

// machines adds the VMs and VMIs of a namespace to the users of claims.
func machines(ctx context.Context, api Reader, namespace string, users claims.Users) error {
	group := "/apis/" + v1.GroupVersion.String()
	if err := pages(ctx, api, group, namespace, client.VMs, users.AddVM); err != nil {
		return err
	}
	return pages(ctx, api, group, namespace, client.VMIs, users.AddVMI)
}

// pageSize is how many objects are read at once: of thousands of machines only the names of their claims are kept.
const pageSize = "500"

// pages reads all objects of a resource.
func pages[T any](
	ctx context.Context, api Reader, group, namespace, resource string, each func(*T),
) error {
	query := url.Values{"limit": {pageSize}}
	for {
		var list struct {
			metav1.ListMeta `json:"metadata"`
			Items           []T `json:"items"`
		}
		if err := api.Read(ctx, path.Join(group, "namespaces", namespace, resource), query, &list); err != nil {
			return err
		}
		for i := range list.Items {
			each(&list.Items[i])
		}
		if list.Continue == "" {
			return nil
		}
		query.Set("continue", list.Continue)
	}
}
