package cdi

import (
	"cmp"
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DeniedError says that a VM may not clone what its template names.
type DeniedError struct {
	// Account is the service account that was asked about, Reason CDI's reason.
	Account, Reason string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%s; give service account %q the right to create datavolumes/source (cdi.kubevirt.io) there, "+
		"or clone from the VM's own namespace",
		e.Reason, e.Account)
}

// Authorize asks whether the VM may have the DataVolume. What is cloned from another namespace must be open to the
// service account that the VM runs as, since virt-controller, who makes the DataVolume, may read everywhere. The
// DataSource that the DataVolume may refer to is replaced by what it stands for, so that it cannot stand for something
// else afterwards. The error is a *DeniedError when it may not. live reads past the cache.
func Authorize(
	ctx context.Context, writer client.Writer, live client.Reader, vm *v1.VirtualMachine, dv *cdiv1.DataVolume,
) error {
	if err := resolve(ctx, live, dv); err != nil {
		return err
	}
	account := serviceAccount(vm)
	// CDI asks for no right for a DataVolume that is said to be filled, or to be a volume already: it clones nothing
	// for it, and it gives no token to who may not clone. virt-controller gets the token, with which the DataVolume's
	// user could have the source cloned once the annotation is gone or the volume is not there.
	asked := dv.DeepCopy()
	delete(asked.Annotations, cdiv1.AnnPrePopulated)
	delete(asked.Annotations, cdiv1.AnnCheckStaticVolume)
	response, err := asked.AuthorizeSA(asked.Namespace, asked.Name, reviewer{ctx, writer, live}, vm.Namespace, account)
	switch {
	case err != nil && !response.Allowed: // CDI's package gives an error that is none along with some that are allowed.
		return fmt.Errorf("may its source be cloned: %w", err)
	case !response.Allowed:
		return &DeniedError{Account: vm.Namespace + "/" + account, Reason: response.Reason}
	}
	return nil
}

// serviceAccount returns the service account that the VM's workload has: that of its serviceAccount volume, else the
// namespace's default, as in KubeVirt.
func serviceAccount(vm *v1.VirtualMachine) string {
	if vm.Spec.Template != nil {
		for i := range vm.Spec.Template.Spec.Volumes {
			if source := vm.Spec.Template.Spec.Volumes[i].ServiceAccount; source != nil {
				return source.ServiceAccountName
			}
		}
	}
	return "default"
}

// resolve writes what a DataSource stands for into the DataVolume, if that is to be cloned.
func resolve(ctx context.Context, live client.Reader, dv *cdiv1.DataVolume) error {
	ref := dv.Spec.SourceRef
	if ref == nil || ref.Kind != cdiv1.DataVolumeDataSource {
		return nil
	}
	namespace := dv.Namespace
	if ref.Namespace != nil && *ref.Namespace != "" {
		namespace = *ref.Namespace
	}
	var from cdiv1.DataSource
	if err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, &from); err != nil {
		return fmt.Errorf("get DataSource %s/%s: %w", namespace, ref.Name, err)
	}
	meant := from.Spec.Source
	if meant.DataSource != nil {
		meant = from.Status.Source
	}
	resolved := &cdiv1.DataVolumeSource{PVC: meant.PVC.DeepCopy(), Snapshot: meant.Snapshot.DeepCopy()}
	switch {
	case resolved.PVC != nil:
		resolved.PVC.Namespace = cmp.Or(resolved.PVC.Namespace, namespace)
	case resolved.Snapshot != nil:
		resolved.Snapshot.Namespace = cmp.Or(resolved.Snapshot.Namespace, namespace)
	default:
		return fmt.Errorf("DataSource %s/%s stands for no claim and no snapshot yet", namespace, ref.Name)
	}
	dv.Spec.Source, dv.Spec.SourceRef = resolved, nil
	return nil
}

// reviewer lets CDI's package ask the API server.
type reviewer struct {
	ctx    context.Context
	writer client.Writer
	live   client.Reader
}

// CreateSar implements cdiv1.AuthorizationHelperProxy.
func (r reviewer) CreateSar(review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	return review, r.writer.Create(r.ctx, review)
}

// GetNamespace implements cdiv1.AuthorizationHelperProxy. It is asked whether the source's namespace exists, which CDI
// finds out by itself when it clones; virt-controller need not be able to read namespaces for it.
func (reviewer) GetNamespace(string) (*corev1.Namespace, error) { return &corev1.Namespace{}, nil }

// GetDataSource implements cdiv1.AuthorizationHelperProxy.
func (r reviewer) GetDataSource(namespace, name string) (*cdiv1.DataSource, error) {
	source := &cdiv1.DataSource{}
	return source, r.live.Get(r.ctx, types.NamespacedName{Namespace: namespace, Name: name}, source)
}
