//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
)

// The VMs of a pool have names and Secrets with their numbers. A changed template reaches them one after the other, and
// what is taken from the pool stays.
func TestPool(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	for i := range 3 {
		seed := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("seed-%d", i)},
			StringData: map[string]string{"userdata": fmt.Sprintf("#!/bin/sh\necho number %d >/www/number\n", i)},
		}
		if err := c.Client.Create(t.Context(), seed); err != nil {
			t.Fatal(err)
		}
	}
	template := newVM(ns, "db", v1.RunStrategyAlways, withUserData(""))
	template.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr(int64(0))
	template.Spec.Template.Spec.Volumes[1].CloudInitNoCloud = &v1.CloudInitNoCloudSource{
		UserDataSecretRef: &corev1.LocalObjectReference{Name: "seed"},
	}
	labels := map[string]string{"app": "db"}
	one := intstr.FromInt32(1)
	pool := &poolv1beta1.VirtualMachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"},
		Spec: poolv1beta1.VirtualMachinePoolSpec{
			Replicas: ptr(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels}, MaxUnavailable: &one,
			NameGeneration: &poolv1beta1.VirtualMachinePoolNameGeneration{AppendIndexToSecretRefs: ptr(true)},
			VirtualMachineTemplate: &poolv1beta1.VirtualMachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec,
			},
		},
	}
	if err := c.Client.Create(t.Context(), pool); err != nil {
		t.Fatalf("create pool: %v", err)
	}
	c.record(t, ns)
	ready := func(n int32) {
		t.Helper()
		eventually(t, 2*time.Minute, fmt.Sprintf("%d of %d are ready", n, n), func() string {
			if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
				return err.Error()
			}
			if pool.Status.Replicas != n || pool.Status.ReadyReplicas != n {
				return fmt.Sprintf("%+v", pool.Status)
			}
			return ""
		})
	}
	ready(2)
	machines := []*guest{{cluster: c, ns: ns, name: "db-0"}, {cluster: c, ns: ns, name: "db-1"}}
	for i, g := range machines {
		address := g.forwarded(t, 80, forward.TCP)
		eventually(t, bootTime, g.name+" has the Secret of its number", func() string {
			if body, err := page(address, "/number"); err != nil ||
				strings.TrimSpace(string(body)) != fmt.Sprintf("number %d", i) {
				return fmt.Sprintf("%q, %v", body, err)
			}
			return ""
		})
	}

	// One after the other.
	before := pool.DeepCopy()
	pool.Spec.VirtualMachineTemplate.Spec.Template.Spec.Domain.Chassis = &v1.Chassis{Asset: "two"}
	if err := c.Client.Patch(t.Context(), pool, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "both guests are of the new template", func() string {
		away, old := 0, 0
		for _, g := range machines {
			vmi := &v1.VirtualMachineInstance{}
			if err := c.Client.Get(t.Context(), g.key(), vmi); err != nil {
				away++
				continue
			}
			if vmi.Spec.Domain.Chassis == nil {
				old++
			}
			if vmi.DeletionTimestamp != nil || vmi.Status.Phase != v1.Running {
				away++
			}
		}
		if away > 1 {
			t.Errorf("%d guests are away at a time", away)
		}
		if away+old > 0 {
			return fmt.Sprintf("%d away, %d of the old template", away, old)
		}
		return ""
	})
	ready(2)

	// One leaves the pool and runs on.
	left := machines[0].vm(t)
	uid, guestUID := left.UID, machines[0].vmi(t).UID
	was := left.DeepCopy()
	left.OwnerReferences = nil
	if err := c.Client.Patch(t.Context(), left, client.MergeFrom(was)); err != nil {
		t.Fatal(err)
	}
	// The pool's status says two as well before it is known that one has left.
	eventually(t, 2*time.Minute, "another is made and ready", func() string {
		another := &v1.VirtualMachine{}
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "db-2"}, another); err != nil {
			return err.Error()
		}
		if !another.Status.Ready {
			return instead(string(another.Status.PrintableStatus))
		}
		return ""
	})
	ready(2)
	eventually(t, time.Minute, "virtctl list shows what the pool has", func() string {
		out := c.virtctl(t, nil, "-n", ns, "list", "vmpool", "--no-headers")
		if strings.HasPrefix(strings.Join(strings.Fields(out), " "), "db 2 2 2 ") {
			return ""
		}
		return instead(out)
	})
	if out := c.virtctl(t, nil, "-n", ns, "scale", "db", "--replicas=0", "--current-replicas=2",
		"--wait"); out != "vmpool/db scaled to 0\nvmpool/db has no replicas, and those that it had are gone\n" {
		t.Errorf("virtctl scale: %s", out)
	}
	eventually(t, time.Minute, "the pool is empty", func() string {
		var list v1.VirtualMachineList
		if err := c.Client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return err.Error()
		}
		if len(list.Items) != 1 {
			return fmt.Sprintf("%d VMs", len(list.Items))
		}
		return ""
	})
	if machines[0].vm(t).UID != uid || machines[0].vmi(t).UID != guestUID {
		t.Error("the VM that left the pool is another, or its guest is")
	}
}

// record logs, while the test runs, what becomes of a namespace's pools and of the readiness of its VMs.
func (c *cluster) record(t *testing.T, ns string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	t.Cleanup(func() { cancel(); recording.Wait() })
	recording.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for last := ""; ctx.Err() == nil; <-tick.C {
			var pools poolv1beta1.VirtualMachinePoolList
			var vms v1.VirtualMachineList
			if c.Client.List(ctx, &pools, client.InNamespace(ns)) != nil ||
				c.Client.List(ctx, &vms, client.InNamespace(ns)) != nil {
				continue
			}
			var now []string
			for _, pool := range pools.Items {
				now = append(now, fmt.Sprintf("%s %d/%d", pool.Name, pool.Status.ReadyReplicas, pool.Status.Replicas))
			}
			for _, vm := range vms.Items {
				about := fmt.Sprintf("%s %s", vm.Name, vm.Status.PrintableStatus)
				for _, condition := range vm.Status.Conditions {
					if condition.Type == v1.VirtualMachineReady {
						about += fmt.Sprintf(" %s %s", condition.Status, condition.Reason)
					}
				}
				now = append(now, about)
			}
			if state := strings.Join(now, ", "); state != last {
				t.Logf("%s %s", time.Now().Format("15:04:05.000"), state)
				last = state
			}
		}
	})
}
