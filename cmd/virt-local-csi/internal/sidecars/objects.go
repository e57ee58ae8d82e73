package sidecars

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/driver"
)

// The classes.
const (
	// Local is the default: every access mode, from every node.
	Local = "local"
	// LocalNode is what local disks are in other clusters: a volume is on the node of its first pod, and only there.
	LocalNode = "local-node"
	// LocalPlain is of a driver that can neither snapshot nor clone nor expand.
	LocalPlain = "local-plain"
)

const (
	defaultClass         = "storageclass.kubernetes.io/is-default-class"
	defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"
)

// StorageClasses returns the classes as they are made.
func StorageClasses() []*storagev1.StorageClass {
	class := func(name, provisioner string, binding storagev1.VolumeBindingMode) *storagev1.StorageClass {
		reclaim := corev1.PersistentVolumeReclaimDelete
		return &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
			ReclaimPolicy: &reclaim, VolumeBindingMode: &binding,
		}
	}
	expand := true
	local := class(Local, driver.Name, storagev1.VolumeBindingImmediate)
	local.Annotations, local.AllowVolumeExpansion = map[string]string{defaultClass: "true"}, &expand
	node := class(LocalNode, driver.Name, storagev1.VolumeBindingWaitForFirstConsumer)
	node.Parameters, node.AllowVolumeExpansion = map[string]string{driver.Placement: "node"}, &expand
	return []*storagev1.StorageClass{local, node, class(LocalPlain, driver.Plain, storagev1.VolumeBindingImmediate)}
}

// SnapshotClass returns the class of snapshots of the volumes of Local and LocalNode, which have one driver.
func SnapshotClass() *snapshotv1.VolumeSnapshotClass {
	return &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: Local, Annotations: map[string]string{defaultSnapshotClass: "true"}},
		Driver:     driver.Name, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
}

// CSIDrivers returns the CSIDriver objects, which say how Kubernetes treats the drivers: nothing is to be attached
// before a node stages it; a pod's fsGroup may write to volumes of every access mode; and where volumes of one node go
// depends on what room there is.
func CSIDrivers() []*storagev1.CSIDriver {
	var all []*storagev1.CSIDriver
	for _, name := range []string{driver.Name, driver.Plain} {
		no, room, group := false, name == driver.Name, storagev1.FileFSGroupPolicy
		all = append(all, &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.CSIDriverSpec{
				AttachRequired: &no, PodInfoOnMount: &no, FSGroupPolicy: &group, StorageCapacity: &room,
				VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
			},
		})
	}
	return all
}

// makeClasses makes what is missing. A class local of the provisioner that virt-local had before is replaced, for its
// provisioner cannot be changed; what users have annotated it with stays.
func makeClasses(ctx context.Context, c clients) error {
	for _, d := range CSIDrivers() {
		if err := makeDriver(ctx, c, d); err != nil {
			return fmt.Errorf("create CSIDriver %s: %w", d.Name, err)
		}
	}
	classes := c.kubernetes.StorageV1().StorageClasses()
	for _, class := range StorageClasses() {
		_, err := classes.Create(ctx, class, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = replaceOld(ctx, c, class)
		}
		if err != nil {
			return fmt.Errorf("create StorageClass %s: %w", class.Name, err)
		}
	}
	return nil
}

func makeSnapshotClass(ctx context.Context, c clients) error {
	class := SnapshotClass()
	_, err := c.snapshots.SnapshotV1().VolumeSnapshotClasses().Create(ctx, class, metav1.CreateOptions{})
	if fails(err) {
		return fmt.Errorf("create VolumeSnapshotClass %s: %w", class.Name, err)
	}
	return nil
}

// makeDriver makes a CSIDriver, or brings what may change of one up to date.
func makeDriver(ctx context.Context, c clients, d *storagev1.CSIDriver) error {
	drivers := c.kubernetes.StorageV1().CSIDrivers()
	_, err := drivers.Create(ctx, d, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	now, err := drivers.Get(ctx, d.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	wanted := now.DeepCopy()
	wanted.Spec.FSGroupPolicy, wanted.Spec.StorageCapacity = d.Spec.FSGroupPolicy, d.Spec.StorageCapacity
	if equality.Semantic.DeepEqual(now, wanted) {
		return nil
	}
	_, err = drivers.Update(ctx, wanted, metav1.UpdateOptions{})
	return err
}

// oldProvisioner is that of the volumes which virt-local made before it had a CSI driver.
const oldProvisioner = "virt-local.virtkit.io/local"

func replaceOld(ctx context.Context, c clients, class *storagev1.StorageClass) error {
	classes := c.kubernetes.StorageV1().StorageClasses()
	old, err := classes.Get(ctx, class.Name, metav1.GetOptions{})
	if err != nil || old.Provisioner != oldProvisioner {
		return err
	}
	if err := classes.Delete(ctx, old.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(old.UID)),
	}); err != nil {
		return err
	}
	class.Annotations = maps.Clone(old.Annotations)
	_, err = classes.Create(ctx, class, metav1.CreateOptions{})
	return err
}

func fails(err error) bool { return err != nil && !apierrors.IsAlreadyExists(err) }

//go:embed crds/*.yaml
var crds embed.FS

// CRDs returns external-snapshotter's CustomResourceDefinitions.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := crds.ReadDir("crds")
	if err != nil {
		return nil, err
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, f := range files {
		text, err := crds.ReadFile("crds/" + f.Name())
		if err != nil {
			return nil, err
		}
		crd := new(apiextensionsv1.CustomResourceDefinition)
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		all = append(all, crd)
	}
	return all, nil
}

// makeCRDs makes what is missing, and waits until the API server serves it.
func makeCRDs(ctx context.Context, config *rest.Config) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	all, err := CRDs()
	if err != nil {
		return err
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range all {
		if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); fails(err) {
			return fmt.Errorf("create CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range all {
		served := func(ctx context.Context) (bool, error) {
			now, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
			return err == nil && established(now), nil
		}
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, served)
		if err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
