//go:build integration

package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/env"
)

// fenceAfter is short, and longer than other tests leave a node unheard of.
const fenceAfter = 10 * time.Second

// A VM whose node is lost starts elsewhere without anybody's word when its launcher must have ended the guest: so long after
// the node's last heartbeat, and not before.
func TestLauncherEndsGuestOfLostNode(tt *testing.T) {
	t := newTest(tt)
	node, err := cluster.CreateNode(t.ctx, "fencing")
	t.must(err)
	t.createVM(v1.RunStrategyAlways)
	vmi, pod := t.run("fencing")
	if !slices.Contains(pod.Spec.Containers[0].Args, "--fence-after="+fenceAfter.String()) {
		t.Fatalf("the launcher is not told: %v", pod.Spec.Containers[0].Args)
	}
	t.must(cluster.SetNodeReady(t.ctx, node, corev1.ConditionUnknown))
	t.waitPhase(v1.Unknown)
	// virt-controller has asked for the heartbeat by now, or does soon: this one, which came late, counts instead.
	t.eventually("a late heartbeat", func() (bool, error) {
		if err := cluster.Client.Get(t.ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return false, err
		}
		before := node.DeepCopy()
		node.Annotations[v1.VirtHandlerHeartbeat] = env.Heartbeat(time.Now().Add(-time.Hour))
		return true, cluster.Client.Patch(t.ctx, node, client.MergeFrom(before))
	})
	last := time.Now()
	t.must(wait.PollUntilContextTimeout(t.ctx, 50*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
		var now v1.VirtualMachineInstance
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(vmi), &now)
		return now.UID != "" && now.UID != vmi.UID, client.IgnoreNotFound(err)
	}))
	if waited := time.Since(last); waited < fenceAfter {
		t.Errorf("it starts %s after the last heartbeat, while the old guest may run", waited)
	}
	t.waitGone(pod)
}
