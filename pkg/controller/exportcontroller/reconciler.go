package exportcontroller

import (
	"context"
	"fmt"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// Reconciler reads exports, snapshots and their contents, and what leads to exports from outside, from Client's cache,
// and past it VMs, VMIs, claims, the
// export's pod and Service, and the pods that use a claim: of these the cache keeps too little. It creates Secrets,
// claims, Services and pods, deletes pods and exports, and writes the exports' status and an annotation of its
// Services.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache.
	Live     client.Reader
	Recorder record.EventRecorder
	Config   func() config.Config
	// Image and ImagePullPolicy are virt-server's.
	Image           string
	ImagePullPolicy corev1.PullPolicy
	Now             func() time.Time
	// Suffix is a random end of a name, Token a random secret.
	Suffix, Token func() string
	// CDI and Snapshots read and write DataVolumes and VolumeSnapshots, if the cluster has them.
	CDI       DataVolumes
	Snapshots VolumeSnapshots
	// Entrances reads what leads to exports from outside of the cluster.
	Entrances Entrances

	writes *frame.Writes
}

// DataVolumes has the methods of cdi.Access that an export calls.
type DataVolumes interface {
	Get(ctx context.Context, namespace, name string) (*cdiv1.DataVolume, error)
	Follow(c controller.Controller, users handler.MapFunc)
}

// VolumeSnapshots has the methods of volumesnapshots.Access that an export calls.
type VolumeSnapshots interface {
	Served() bool
	Get(ctx context.Context, namespace, name string) (*snapshotsv1.VolumeSnapshot, error)
	Follow(c controller.Controller, users handler.MapFunc)
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.writes = frame.NewWrites(r.Client)
	of := func(concerns func(*v1beta1.VirtualMachineExport, client.Object) bool) handler.MapFunc {
		return func(ctx context.Context, object client.Object) []reconcile.Request {
			return r.exports(ctx, object, concerns)
		}
	}
	named := func(kind string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(of(func(e *v1beta1.VirtualMachineExport, object client.Object) bool {
			return exports.SourceKind(&e.Spec.Source) == kind && e.Spec.Source.Name == object.GetName()
		}))
	}
	unready := of(func(e *v1beta1.VirtualMachineExport, _ client.Object) bool {
		return e.Status == nil || e.Status.Phase != v1beta1.Ready
	})
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("virtualmachineexport").
		For(&v1beta1.VirtualMachineExport{}).
		Owns(&corev1.Pod{}).
		Owns(&corev1.Service{}).
		Watches(&v1.VirtualMachine{}, named(exports.KindVM)).
		Watches(&v1.VirtualMachineInstance{}, named(exports.KindVM)).
		Watches(&snapshotv1beta1.VirtualMachineSnapshot{}, named(exports.KindSnapshot)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(unready)).
		Watches(&networkingv1.Ingress{}, handler.EnqueueRequestsFromMapFunc(r.all)).
		Build(&frame.Frame[*v1beta1.VirtualMachineExport, View, Step]{
			Writes: r.writes, Look: r.look, Next: Next, Apply: r.apply,
		})
	if err != nil {
		return err
	}
	r.CDI.Follow(built, unready)
	r.Snapshots.Follow(built, unready)
	r.Entrances.Follow(built, r.all)
	return nil
}

// all returns the exports of all namespaces: what leads to them from outside is for each.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var list v1beta1.VirtualMachineExportList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list exports")
		return nil
	}
	return frame.Requests(list.Items, func(*v1beta1.VirtualMachineExport) bool { return true })
}

// exports returns the exports in an object's namespace that the object concerns.
func (r *Reconciler) exports(
	ctx context.Context, object client.Object, concerns func(*v1beta1.VirtualMachineExport, client.Object) bool,
) []reconcile.Request {
	var list v1beta1.VirtualMachineExportList
	err := r.Client.List(ctx, &list, client.InNamespace(object.GetNamespace()), client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list exports")
		return nil
	}
	return frame.Requests(list.Items, func(e *v1beta1.VirtualMachineExport) bool { return concerns(e, object) })
}

func (r *Reconciler) apply(ctx context.Context, view View, step *Step) error {
	export := view.Export
	if step.DeleteExport {
		if _, err := r.writes.Delete(ctx, export); err != nil {
			return fmt.Errorf("delete the export: %w", err)
		}
		return nil
	}
	if step.DeletePod {
		if _, err := r.writes.Delete(ctx, view.Pod); err != nil {
			return fmt.Errorf("delete pod %s: %w", view.Pod.Name, err)
		}
	}
	if err := step.created(&view, r.create(ctx, view, step)); err != nil {
		return err
	}
	if err := frame.PatchStatus(ctx, r.writes, export, &export.Status, step.Status); err != nil {
		return err
	}
	for _, event := range step.Events {
		r.Recorder.Event(export, event.Type, event.Reason, event.Message)
	}
	return nil
}

// create makes what is missing, in the order in which one needs the other.
func (r *Reconciler) create(ctx context.Context, view View, step *Step) error {
	if secret := step.CreateToken; secret != nil {
		if err := madeBefore("the token's Secret", r.writes.Create(ctx, secret)); err != nil {
			return err
		}
	}
	for _, claim := range step.CreateClaims {
		if err := madeBefore("claim "+claim.Name, r.writes.Create(ctx, claim)); err != nil {
			return err
		}
	}
	service := view.Service
	if step.CreateService != nil {
		service = step.CreateService
		if err := made("Service", service.Name, r.writes.Create(ctx, service)); err != nil {
			return err
		}
	}
	if step.CreateIdentity {
		if err := r.identify(ctx, view.Issued, service); err != nil {
			return err
		}
	}
	if secret := step.CreateManifests; secret != nil {
		if err := madeBefore("the manifests' Secret", r.writes.Create(ctx, secret)); err != nil {
			return err
		}
	}
	if step.CreatePod != nil {
		return made("pod", step.CreatePod.Name, r.writes.Create(ctx, step.CreatePod))
	}
	return step.Failed
}

// identify gives the export's Service a certificate. One whose name did not get into the Service goes with the export.
func (r *Reconciler) identify(ctx context.Context, issued *Issued, service *corev1.Service) error {
	if err := r.writes.Create(ctx, issued.Secret); err != nil {
		return fmt.Errorf("create the certificate's Secret: %w", err)
	}
	err := r.writes.Change(ctx, service, func() {
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, identityAnnotation, issued.Annotation)
	})
	if err != nil {
		return fmt.Errorf("name the certificate in Service %s: %w", service.Name, err)
	}
	return nil
}
