// Package provision is the dynamic provisioner behind the StorageClass local. A claim becomes a directory, or for
// volumeMode Block a loop device on a sparse file, below the instance's volumes directory, which all nodes
// see: so every access mode works, from every node, at once.
//
//	in:  PersistentVolumeClaims that the PV controller has marked for us, PersistentVolumes that were released
//	out: PersistentVolumes, their data
//
// Data is erased for one reason: the API server has a volume of ours, with reclaimPolicy Delete, whose claim was
// deleted. That an object is missing proves nothing, since etcd may have been restored or started anew; such data is
// kept and listed.
package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Name is the provisioner's name, and Class that of its StorageClass.
const (
	Name  = "virt-local.virtkit.io/local"
	Class = "local"
)

// Annotations of the external provisioning protocol; they are not in k8s.io/api.
// See https://kubernetes.io/docs/reference/labels-annotations-taints/.
const (
	annotationProvisioner   = "volume.kubernetes.io/storage-provisioner"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
)

// StorageClass returns the class that claims get by default.
func StorageClass() *storagev1.StorageClass {
	reclaim, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	return &storagev1.StorageClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        Class,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:       Name,
		ReclaimPolicy:     &reclaim,
		VolumeBindingMode: &binding,
	}
}

// Store keeps the data of volumes.
type Store interface {
	// Directory makes the directory of a volume and returns its path.
	Directory(volume string) (string, error)
	// Block makes a block device of at least size bytes and returns a path that leads to it for good.
	Block(volume string, size int64) (string, error)
	// SetAside moves a volume's data to where it waits for its erasure, with a record of why; it may be there already.
	SetAside(volume string, record Record) error
	// IsAside reports whether SetAside was begun for a volume whose data is not erased.
	IsAside(volume string) (bool, error)
	// PutBack undoes SetAside.
	PutBack(volume string) error
	// Erase erases what was set aside of a volume.
	Erase(volume string) error
	// Volumes lists the volumes that have data, set aside or not.
	Volumes() ([]string, error)
}

type provisioner struct {
	client kubernetes.Interface
	store  Store
	claims corelisters.PersistentVolumeClaimLister
	vols   corelisters.PersistentVolumeLister
	queue  workqueue.TypedRateLimitingInterface[key]
	// claim does what a claim needs.
	claim func(*provisioner, context.Context, key) error
}

// key is a claim (with namespace) or a volume (without).
type key struct{ namespace, name string }

// Run provisions until ctx is done.
func Run(ctx context.Context, client kubernetes.Interface, store Store) error {
	return runFor(ctx, client, store, (*provisioner).provide)
}

// EraseOld erases the volumes that Run has made as their claims are deleted, until ctx is done, and makes none: for an
// instance whose classes are another provisioner's since.
func EraseOld(ctx context.Context, client kubernetes.Interface, store Store) error {
	return runFor(ctx, client, store, func(*provisioner, context.Context, key) error { return nil })
}

func runFor(
	ctx context.Context, client kubernetes.Interface, store Store, claim func(*provisioner, context.Context, key) error,
) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	p := &provisioner{
		client: client, store: store, claim: claim,
		claims: factory.Core().V1().PersistentVolumeClaims().Lister(),
		vols:   factory.Core().V1().PersistentVolumes().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[key](200*time.Millisecond, time.Minute),
		),
	}
	enqueue := func(obj any) {
		if o, ok := obj.(metav1.Object); ok {
			p.queue.Add(key{o.GetNamespace(), o.GetName()})
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().PersistentVolumeClaims().Informer(), factory.Core().V1().PersistentVolumes().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch claims and volumes: %w", err)
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	if ctx.Err() != nil {
		return nil
	}
	if err := p.reportUnowned(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "List data without a volume")
	}
	var workers wait.Group
	for range 4 {
		workers.Start(func() {
			for p.next(ctx) {
				continue
			}
		})
	}
	<-ctx.Done()
	p.queue.ShutDown()
	workers.Wait()
	return nil
}

func (p *provisioner) next(ctx context.Context) bool {
	k, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(k)
	reconcile := p.claim
	if k.namespace == "" {
		reconcile = (*provisioner).volume
	}
	if err := reconcile(p, ctx, k); err != nil {
		klog.FromContext(ctx).Error(err, "Provision", "namespace", k.namespace, "name", k.name)
		p.queue.AddRateLimited(k)
	} else {
		p.queue.Forget(k)
	}
	return true
}

// provide gives a claim that waits for us its volume.
func (p *provisioner) provide(ctx context.Context, k key) error {
	claim, err := p.claims.PersistentVolumeClaims(k.namespace).Get(k.name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if claim.Annotations[annotationProvisioner] != Name || claim.Spec.VolumeName != "" ||
		claim.DeletionTimestamp != nil {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	if _, err := p.vols.Get(name); err == nil {
		return nil
	}
	if reason := unsupported(claim); reason != "" {
		return p.event(ctx, claim, corev1.EventTypeWarning, "ProvisioningFailed", reason)
	}
	// etcd may have been restored to before the claim was deleted.
	if err := p.store.PutBack(name); err != nil {
		return err
	}
	var path string
	if isBlock(claim) {
		path, err = p.store.Block(name, claim.Spec.Resources.Requests.Storage().Value())
	} else {
		path, err = p.store.Directory(name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make data: %w", err),
			p.event(ctx, claim, corev1.EventTypeWarning, "ProvisioningFailed", err.Error()))
	}
	class, err := p.client.StorageV1().StorageClasses().Get(ctx, className(claim), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get storage class: %w", err)
	}
	_, err = p.client.CoreV1().PersistentVolumes().Create(ctx, Volume(claim, class, path), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create volume: %w", err)
	}
	return p.event(ctx, claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "made volume "+name)
}

func className(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

func isBlock(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

func unsupported(claim *corev1.PersistentVolumeClaim) string {
	switch {
	case claim.Spec.Selector != nil:
		return "StorageClass local cannot choose volumes by spec.selector"
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return "StorageClass local cannot fill a volume from spec.dataSource"
	}
	return ""
}

// Volume returns the volume for a claim, whose data is at path.
func Volume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, path string) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	source := corev1.PersistentVolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectory)},
	}
	var affinity *corev1.VolumeNodeAffinity
	if isBlock(claim) {
		mode = corev1.PersistentVolumeBlock
		source = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
		// The API wants an affinity for this kind; every node has the label.
		everywhere := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists},
		}}
		affinity = &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{everywhere}},
		}
	}
	reclaim := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{annotationProvisionedBy: Name},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    &mode,
			PersistentVolumeSource:        source,
			NodeAffinity:                  affinity,
			PersistentVolumeReclaimPolicy: reclaim,
			StorageClassName:              className(claim),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
				UID: claim.UID,
			},
		},
	}
}

func (p *provisioner) event(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, kind, reason, message string,
) error {
	now := metav1.Now()
	_, err := p.client.CoreV1().Events(claim.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%x", claim.Name, now.UnixNano()),
			Namespace: claim.Namespace,
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim",
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
		},
		Type: kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: Name},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("record event: %w", err)
	}
	return nil
}
