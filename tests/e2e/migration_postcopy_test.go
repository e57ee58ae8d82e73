//go:build e2e

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/progress"
)

// breakPostCopy breaks a migration off while the guest runs on the other node and its memory still comes (post-copy):
// the instance ends Failed and says why, and the VM starts anew, once.
func breakPostCopy(t *testing.T, g *guest, con *console, policy *v1alpha1.MigrationPolicy) {
	t.Helper()
	was := policy.DeepCopy()
	policy.Spec.BandwidthPerMigration = resource.NewQuantity(4<<20, resource.BinarySI) // time to hit it
	policy.Spec.CompletionTimeoutPerGiB, policy.Spec.AllowAutoConverge = ptr(int64(3)), ptr(false)
	if err := g.Client.Patch(t.Context(), policy, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	con.run(t, "kill $!; true") // the dirtier: what is left then comes as slowly as the policy says
	before := g.vmi(t)
	m := g.migrate(t, "broken-off")
	// Post-copy is said when it is asked for, and not taken back when the migration fails before the guest has left. A
	// second account is from when it has.
	var first float64
	eventually(t, 60*time.Second, "the guest goes by post-copy", func() string {
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err.Error()
		}
		p, err := progress.Parse(m.Annotations[names.AnnotationProgress])
		switch {
		case err != nil:
			t.Fatal(err)
		case m.Status.Phase == v1.MigrationSucceeded || m.Status.Phase == v1.MigrationFailed:
			t.Fatalf("it is over before it could be broken off: %s, %+v", m.Status.Phase, p)
		case p == nil || p.Mode != string(v1.MigrationPostCopy):
			return "not yet"
		case first == 0:
			first = p.ElapsedSeconds
		}
		if p.ElapsedSeconds <= first {
			return "since just now"
		}
		return ""
	})
	g.targetQEMU(t, m, syscall.SIGKILL)
	g.waitMigration(t, m, v1.MigrationFailed)
	if reason := m.Status.MigrationState.FailureReason; !strings.Contains(reason, "guest has ended") &&
		!strings.Contains(reason, "post-copy") {
		t.Errorf("the migration failed because %s", reason)
	}
	eventually(t, 60*time.Second, "the VM has a new instance, which runs, in one pod", func() string {
		vmi := g.vmi(t)
		if vmi == nil {
			return "none"
		}
		if vmi.UID == before.UID {
			if vmi.Status.Phase == v1.Succeeded {
				t.Fatalf("the instance ended as if its guest had: %+v", vmi.Status)
			}
			if vmi.Status.Phase == v1.Failed && vmi.Status.Reason != "GuestCrashed" {
				t.Fatalf("the instance failed because of %s: %+v", vmi.Status.Reason, vmi.Status.Conditions)
			}
			return "the old one is " + string(vmi.Status.Phase)
		}
		running := 0
		for _, pod := range g.pods(t) {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if vmi.Status.Phase != v1.Running || running != 1 {
			return instead(string(vmi.Status.Phase))
		}
		return ""
	})
	eventually(t, 30*time.Second, "an event says that the guest failed with its migration", func() string {
		list, err := g.Kube.CoreV1().Events(g.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if text := list.Items[i].Message; strings.HasPrefix(text,
				"The VirtualMachineInstance failed: The guest crashed: its migration failed") &&
				strings.Contains(text, "post-copy") {
				return ""
			}
		}
		return "none"
	})
}
