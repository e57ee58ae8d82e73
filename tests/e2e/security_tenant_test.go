//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/instance"
)

// tenant is a client of a user who has the role edit in a namespace.
func (c *cluster) tenant(t *testing.T, ns string) kubernetes.Interface {
	t.Helper()
	user := "user-of-" + ns
	_, err := c.Kube.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "user has the role edit", func() string {
		return missing(t, kube, &authorizationv1.ResourceAttributes{
			Namespace: ns, Verb: "create", Group: v1.GroupVersion.Group, Resource: "virtualmachines",
		})
	})
	return kube
}

// missing asks whether a client's user may do something, and says what keeps it from that; empty for nothing.
func missing(t *testing.T, kube kubernetes.Interface, what *authorizationv1.ResourceAttributes) string {
	t.Helper()
	review, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what},
		}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return err.Error()
	case !review.Status.Allowed:
		return "not allowed: " + review.Status.Reason
	}
	return ""
}

// A VM waits for a claim; its tenant makes the pod that it is about to have, and tries the rest of what made pods pass
// for launchers.
func TestTenantIsNoLauncher(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	user := c.tenant(t, ns)
	g := c.create(t, newVM(ns, "victim", v1.RunStrategyAlways, withClaim("late")))
	waiting := g.waitPhase(t, bootTime, v1.Pending)

	denied := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "virtkit-launcher-pods") {
			t.Errorf("%s: %v", what, err)
		}
	}
	impostor := vmicontroller.Pod(waiting, vmicontroller.Facts{Image: instance.Launcher()})
	_, err := user.CoreV1().Pods(ns).Create(t.Context(), impostor, metav1.CreateOptions{})
	denied("the VM's own pod", err)
	impostor.Name = "holder"
	impostor.Finalizers = []string{"example.com/never"}
	_, err = user.CoreV1().Pods(ns).Create(t.Context(), impostor, metav1.CreateOptions{})
	denied("a pod that holds the VM", err)

	c.claim(t, ns, "late", corev1.PersistentVolumeFilesystem)
	g.waitLogin(t)
	pod := g.pod(t)
	if _, recorded := g.vmi(t).Status.ActivePods[pod.UID]; !recorded {
		t.Errorf("activePods %v, want %s", g.vmi(t).Status.ActivePods, pod.UID)
	}
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "spy", Image: pod.Spec.Containers[0].Image, SecurityContext: pod.Spec.Containers[0].SecurityContext,
		},
		TargetContainerName: names.ContainerCompute,
	})
	_, err = user.CoreV1().Pods(ns).UpdateEphemeralContainers(t.Context(), pod.Name, &pod, metav1.UpdateOptions{})
	if err == nil {
		t.Error("the tenant's container is in the launcher's pod")
	}
	_, err = c.Kube.CoreV1().Pods(ns).UpdateEphemeralContainers(t.Context(), pod.Name, &pod, metav1.UpdateOptions{})
	denied("a container of an administrator's", err)
}
