//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/progress"
)

// dirtier changes 40 MiB of memory over and over.
const dirtier = `dd if=/dev/urandom of=/tmp/a bs=1M count=40 2>/dev/null; (while :; do dd if=/tmp/a of=/tmp/b bs=1M conv=notrunc 2>/dev/null; done) & true`

// A guest that changes its memory faster than the policy lets it be copied is slowed down where the policy says so, and
// goes by post-copy when its time is over where the policy says that; what happens shows. Each in a migration of its
// own: how soon QEMU slows a guest down depends on the machine, and a guest that is slow enough needs no post-copy.
func TestMigrationLimits(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "dirty", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Memory.Guest = ptr(resource.MustParse("192Mi"))
		vm.Spec.Template.ObjectMeta.Labels["limits"] = ns
	}))
	const bandwidth = 16 << 20
	policy := &v1alpha1.MigrationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Spec: v1alpha1.MigrationPolicySpec{
			Selectors: &v1alpha1.Selectors{
				NamespaceSelector:              v1alpha1.LabelSelector{"kubernetes.io/metadata.name": ns},
				VirtualMachineInstanceSelector: v1alpha1.LabelSelector{"limits": ns},
			},
			BandwidthPerMigration:   resource.NewQuantity(bandwidth, resource.BinarySI),
			CompletionTimeoutPerGiB: ptr(int64(600)),
			AllowAutoConverge:       ptr(true),
		},
	}
	if err := c.Client.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Client.Delete(ctx, policy); err != nil {
			t.Errorf("delete the policy: %v", err)
		}
	})
	g.waitLogin(t)
	home := g.vmi(t).Status.NodeName
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.run(t, dirtier)

	slowDown(t, g)
	was := policy.DeepCopy()
	policy.Spec.CompletionTimeoutPerGiB, policy.Spec.AllowAutoConverge, policy.Spec.AllowPostCopy = ptr(int64(20)),
		ptr(false), ptr(true)
	if err := c.Client.Patch(t.Context(), policy, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}

	m := g.migrate(t, "limited")
	var most progress.Progress
	modes := map[string]bool{}
	eventually(t, 150*time.Second, "the migration ends", func() string {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err.Error()
		}
		p, err := progress.Parse(m.Annotations[names.AnnotationProgress])
		if err != nil {
			t.Fatal(err)
		}
		if p == nil {
			return "no progress yet"
		}
		modes[p.Mode] = true
		if p.Mode == "PreCopy" {
			most.BandwidthBytesPerSecond = max(most.BandwidthBytesPerSecond, p.BandwidthBytesPerSecond)
		}
		if m.Status.Phase == v1.MigrationSucceeded && p.Done {
			return ""
		}
		if m.Status.Phase == v1.MigrationFailed {
			t.Fatalf("failed: %s", m.Status.MigrationState.FailureReason)
		}
		return string(m.Status.Phase) + " " + m.Annotations[names.AnnotationProgress]
	})
	if !modes["PreCopy"] || !modes["PostCopy"] {
		t.Errorf("modes %v, want both", modes)
	}
	if most.BandwidthBytesPerSecond == 0 || most.BandwidthBytesPerSecond > bandwidth*3/2 {
		t.Errorf("copied with %d bytes a second, of %d", most.BandwidthBytesPerSecond, bandwidth)
	}
	vmi := g.vmi(t)
	ms := vmi.Status.MigrationState
	if ms.Mode != v1.MigrationPostCopy || ms.MigrationPolicyName == nil || *ms.MigrationPolicyName != ns ||
		ms.MigrationConfiguration == nil ||
		!*ms.MigrationConfiguration.AllowWorkloadDisruption ||
		*ms.MigrationConfiguration.CompletionTimeoutPerGiB != 20 {
		t.Errorf("migrationState %+v", ms)
	}
	if vmi.Status.NodeName == home {
		t.Errorf("the guest is still on %s", home)
	}
	eventually(t, 30*time.Second, "events tell", func() string {
		list, err := c.Kube.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var text string
		for i := range list.Items {
			text += list.Items[i].Message + "\n"
		}
		if !strings.Contains(text, "(post-copy)") {
			return "no event about post-copy"
		}
		return ""
	})
	con = g.openConsole(t, "")
	con.send(t, "\r")
	con.expect(t, 30*time.Second, shellPrompt)
	if got := con.run(t, "cmp /tmp/a /tmp/a && echo whole"); got != "whole" {
		t.Errorf("after the move: %q", got)
	}

	breakPostCopy(t, g, con, policy)
}

// slowDown begins a migration, waits until the guest is slowed down, and cancels it: the guest stays where it was.
func slowDown(t *testing.T, g *guest) {
	t.Helper()
	home := g.vmi(t).Status.NodeName
	m := g.migrate(t, "slowed")
	eventually(t, 120*time.Second, "the guest is slowed down", func() string {
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
			return err.Error()
		}
		p, err := progress.Parse(m.Annotations[names.AnnotationProgress])
		switch {
		case err != nil:
			t.Fatal(err)
		case m.Status.Phase == v1.MigrationSucceeded || m.Status.Phase == v1.MigrationFailed:
			t.Fatalf("it is over before the guest was slowed down: %s, %+v", m.Status.Phase, p)
		case p == nil || p.ThrottlePercent == 0:
			return string(m.Status.Phase) + " " + m.Annotations[names.AnnotationProgress]
		}
		return ""
	})
	if err := g.Client.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "the cancelled migration is gone, and the guest where it was", func() string {
		if err := g.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%s, %v", m.Status.Phase, err)
		}
		vmi := g.vmi(t)
		if vmi.Status.NodeName != home {
			t.Fatalf("the guest is on %s, not on %s", vmi.Status.NodeName, home)
		}
		if ms := vmi.Status.MigrationState; ms == nil || !ms.Completed {
			return "the VMI does not say that the migration has ended"
		}
		return ""
	})
}
