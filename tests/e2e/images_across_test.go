//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/tests/instance"
)

// A VM boots from a copy of an image that another namespace shares, for a user who may clone from there and no other;
// no VolumeSnapshot is left in either namespace, and the VM keeps its disk when the image is deleted.
func TestImageOfAnotherNamespace(t *testing.T) {
	needSnapshots(t)
	t.Parallel()
	c := theCluster
	golden, ns := c.namespace(t, "restricted"), c.namespace(t, "restricted")
	c.virtctl(t, nil, "-n", golden, "image", "import", "docker://"+instance.TinyDisk(), "tiny/1", "--size", "512Mi",
		"--user", "root", "--wait-secs=120")
	c.tenant(t, ns)
	user := "user-of-" + ns
	c.grant(t, golden, user, "view")
	create := []string{
		"-n", ns, "--as", user, "create", "vm", "--name", "web", "--image", golden + "/tiny/1", "--image-size", "600Mi",
		"--memory", "128Mi", "--disk-bus", "virtio", "--cloud-init", "none", "--apply",
	}
	eventually(t, 20*time.Second, "the copy is refused to who may read the image alone", func() string {
		_, errOut, err := c.Virtctl(t.Context(), nil, create...)
		if err == nil || !strings.Contains(errOut, "virtualmachineclones/source") {
			return instead(errOut)
		}
		return ""
	})
	if _, err := c.Kube.RbacV1().Roles(golden).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "images-from-here"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{clones.Group}, Resources: []string{clones.Resource + "/" + clones.Subresource},
			Verbs: []string{"create"},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kube.RbacV1().RoleBindings(golden).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "images-from-here"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "images-from-here"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the VM is created", func() string {
		_, errOut, err := c.Virtctl(t.Context(), nil, create...)
		if err != nil {
			return instead(errOut)
		}
		return ""
	})
	(&guest{cluster: c, ns: ns, name: "web"}).waitLogin(t)

	claim, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "web-disk", metav1.GetOptions{})
	if err != nil || claim.Spec.Resources.Requests.Storage().String() != "600Mi" {
		t.Errorf("the copy is %+v, %v", claim.Spec, err)
	}
	made := &clonev1beta1.VirtualMachineClone{}
	eventually(t, time.Minute, "the clone is done", func() string {
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web-disk"}, made); err != nil {
			return err.Error()
		}
		if made.Status.Phase != clonev1beta1.Succeeded || made.Status.SnapshotName != nil || len(made.Finalizers) > 0 {
			return string(made.Status.Phase) + " " + strings.Join(made.Finalizers, " ")
		}
		return ""
	})
	eventually(t, time.Minute, "the clone leaves no VolumeSnapshot", func() string {
		for _, namespace := range []string{golden, ns} {
			if left := c.volumeSnapshots(t, namespace); left != "" {
				return left
			}
		}
		return c.copiesLeft(t, made)
	})
	c.virtctl(t, nil, "-n", golden, "image", "rm", "tiny/1", "--yes")

	// A claim of a VM is no image, whoever asks.
	c.grant(t, ns, user, "admin")
	if _, errOut, err := c.Virtctl(t.Context(), nil, "-n", golden, "create", "vm", "--name", "thief", "--image",
		ns+"/web/1", "--apply"); err == nil || !strings.Contains(errOut, "not found") {
		t.Errorf("the disk of a VM as an image: %v %s", err, errOut)
	}
	data := &clonev1beta1.VirtualMachineClone{ObjectMeta: metav1.ObjectMeta{
		Namespace: golden, Name: "data", Annotations: map[string]string{clones.NamespaceAnnotation: ns},
	}}
	data.Spec.Source = &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: "web-disk"}
	data.Spec.Target = &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: "data"}
	if err := c.Client.Create(t.Context(), data); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "has no image") {
		t.Errorf("a clone of a VM's disk: %v", err)
	}
	// The clone goes with the claim that it has made.
	c.virtctl(t, nil, "-n", ns, "stop", "web", "--wait", "--timeout=120s")
	if err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), "web-disk",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the clone is gone", func() string {
		err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(made), made)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "it is there"
	})
}

// grant gives a user a cluster role in a namespace.
func (c *cluster) grant(t *testing.T, ns, user, role string) {
	t.Helper()
	if _, err := c.Kube.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role + "-for-" + user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// volumeSnapshots names those of a namespace.
func (c *cluster) volumeSnapshots(t *testing.T, ns string) string {
	t.Helper()
	list := &snapshotsv1.VolumeSnapshotList{}
	if err := c.Client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		return err.Error()
	}
	var out []string
	for i := range list.Items {
		out = append(out, ns+"/"+list.Items[i].Name)
	}
	return strings.Join(out, ", ")
}
