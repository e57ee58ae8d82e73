package images

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/cdi"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// Unneeded returns an error while copies of the image on a claim are to be made: of a claim without a volume, whose
// class makes one when the VM starts, of what the image's claim has then; of a DataVolume that CDI has not filled; and
// of a VolumeSnapshot that is not ready, as of a copy in another namespace.
func Unneeded(ctx context.Context, r Reader, namespace, claim string) error {
	var list corev1.PersistentVolumeClaimList
	if err := r.Read(ctx, "/api/v1/namespaces/"+namespace+"/"+client.Claims, nil, &list); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	out, err := unfilled(ctx, r, namespace, claim)
	if err != nil {
		return err
	}
	for i := range list.Items {
		from := list.Items[i].Spec.DataSource
		if from != nil && from.Kind == "PersistentVolumeClaim" && from.Name == claim &&
			list.Items[i].Status.Phase == corev1.ClaimPending && list.Items[i].DeletionTimestamp == nil {
			out = append(out, list.Items[i].Name)
		}
	}
	if len(out) == 0 {
		return copied(ctx, r, namespace, claim)
	}
	slices.Sort(out)
	return fmt.Errorf("the image on claim %s/%s is not deleted: copies of it have no volume yet and would get none: "+
		"%s; start the VMs that have them first, or delete them", namespace, claim,
		strings.Join(slices.Compact(out), ", ")) // a DataVolume and its claim have one name
}

// copied returns an error while a VolumeSnapshot of the claim is not ready. Of a copy in another namespace it is in the
// image's, so who may delete the image need not see the other. Who may not read VolumeSnapshots is not asked to.
func copied(ctx context.Context, r Reader, namespace, claim string) error {
	var list snapshotsv1.VolumeSnapshotList
	path := "/apis/" + snapshotsv1.SchemeGroupVersion.String() + "/namespaces/" + namespace + "/" +
		store.VolumeSnapshots
	if err := r.Read(ctx, path, nil, &list); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("list VolumeSnapshots: %w", err)
	}
	var out []string
	for i := range list.Items {
		snapshot := &list.Items[i]
		source := snapshot.Spec.Source.PersistentVolumeClaimName
		if source == nil || *source != claim || snapshot.DeletionTimestamp != nil ||
			snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse {
			continue
		}
		what := "VolumeSnapshot " + snapshot.Name
		if of := snapshot.Annotations[clones.CloneAnnotation]; of != "" {
			what = "VirtualMachineClone " + of
		}
		out = append(out, what)
	}
	if len(out) == 0 {
		return nil
	}
	slices.Sort(out)
	return fmt.Errorf("the image on claim %s/%s is not deleted: it is being copied: %s; wait until that is done, or "+
		"delete what copies it", namespace, claim, strings.Join(out, ", "))
}

// unfilled returns the DataVolumes that CDI is yet to fill from a claim or from a DataSource that stands for it; those
// of other namespaces as NAMESPACE/NAME.
func unfilled(ctx context.Context, r Reader, namespace, claim string) ([]string, error) {
	var volumes cdiv1.DataVolumeList
	if err := everywhere(ctx, r, cdi.DataVolumes, namespace, &volumes); err != nil || len(volumes.Items) == 0 {
		return nil, err
	}
	var list cdiv1.DataSourceList
	if err := everywhere(ctx, r, cdi.DataSources, namespace, &list); err != nil {
		return nil, err
	}
	sources := map[string]bool{}
	for i := range list.Items {
		d := &list.Items[i]
		if of := standsFor(d); of != nil && of.Name == claim && cmp.Or(of.Namespace, d.Namespace) == namespace {
			sources[d.Namespace+"/"+d.Name] = true
		}
	}
	var out []string
	for i := range volumes.Items {
		dv := &volumes.Items[i]
		copies := false
		if source := dv.Spec.Source; source != nil && source.PVC != nil {
			copies = source.PVC.Name == claim && cmp.Or(source.PVC.Namespace, dv.Namespace) == namespace
		}
		if ref := dv.Spec.SourceRef; ref != nil && ref.Kind == cdiv1.DataVolumeDataSource {
			of := dv.Namespace
			if ref.Namespace != nil {
				of = cmp.Or(*ref.Namespace, of)
			}
			copies = copies || sources[of+"/"+ref.Name]
		}
		if !copies || dv.Status.Phase == cdiv1.Succeeded || dv.DeletionTimestamp != nil {
			continue
		}
		name := dv.Name
		if dv.Namespace != namespace {
			name = dv.Namespace + "/" + name
		}
		out = append(out, name)
	}
	return out, nil
}

// everywhere reads CDI's objects of all namespaces, or of one where the others may not be read; none where there is no
// CDI, or where they may not be read at all.
func everywhere(ctx context.Context, r Reader, resource, namespace string, into any) error {
	err := r.Read(ctx, cdi.Group+"/"+resource, nil, into)
	if apierrors.IsForbidden(err) {
		err = r.Read(ctx, cdi.Group+"/namespaces/"+namespace+"/"+resource, nil, into)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("list %s: %w", resource, err)
	}
	return nil
}
