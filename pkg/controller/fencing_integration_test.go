//go:build integration

package controller

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	handlernode "github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/env"
)

// fenceAfter is short, and longer than other tests leave a node unheard of.
const fenceAfter = 16 * time.Second

// vouching are two virt-handlers whose heartbeats are acknowledged, which lets virt-controller count the silence of
// others.
type vouching struct {
	t     *test
	taken map[string]string
}

func (v *vouching) beat(ctx context.Context) error {
	for _, name := range []string{"vouching-a", "vouching-b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		patch, err := handlernode.Patch(false, time.Now(),
			map[string]string{names.AnnotationHeartbeatTaken: v.taken[name]})
		if err == nil {
			err = cluster.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
		}
		if err != nil {
			return err
		}
		v.taken[name] = node.ResourceVersion
	}
	return nil
}

// until beats until there is another VMI than the one that is given up, and returns how long that took.
func (v *vouching) until(begin time.Time, vmi *v1.VirtualMachineInstance, limit time.Duration) (time.Duration, error) {
	err := wait.PollUntilContextTimeout(v.t.ctx, 250*time.Millisecond, limit, true,
		func(ctx context.Context) (bool, error) {
			if err := v.beat(ctx); err != nil {
				return false, err
			}
			var now v1.VirtualMachineInstance
			err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(vmi), &now)
			return now.UID != "" && now.UID != vmi.UID, client.IgnoreNotFound(err)
		})
	return time.Since(begin), err
}

// A VM whose node is lost starts elsewhere without anybody's word when its launcher must have ended the guest: so long
// after the node's last heartbeat, and not before. It does not while virt-handler was stopped in order.
func TestLauncherEndsGuestOfLostNode(tt *testing.T) {
	t := newTest(tt)
	node, err := cluster.CreateNode(t.ctx, "fencing")
	t.must(err)
	others := &vouching{t: t, taken: map[string]string{}}
	for _, name := range []string{"vouching-a", "vouching-b"} {
		other, err := cluster.CreateNode(t.ctx, name)
		t.must(err)
		t.Cleanup(func() { t.must(client.IgnoreNotFound(cluster.Client.Delete(context.Background(), other))) })
	}
	t.createVM(v1.RunStrategyAlways)
	vmi, pod := t.run("fencing")
	if !slices.Contains(pod.Spec.Containers[0].Args, "--fence-after="+fenceAfter.String()) {
		t.Fatalf("the launcher is not told: %v", pod.Spec.Containers[0].Args)
	}
	t.must(cluster.SetNodeReady(t.ctx, node, corev1.ConditionUnknown))
	t.waitPhase(v1.Unknown)
	annotate := func(what string, annotations map[string]any) time.Time {
		t.Helper()
		data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		t.must(err)
		t.eventually(what, func() (bool, error) {
			return true, cluster.Client.Patch(t.ctx, node, client.RawPatch(types.MergePatchType, data))
		})
		return time.Now()
	}
	// virt-controller has asked for the heartbeat by now, or does soon: this one, which came late, counts instead.
	begin := annotate("a late heartbeat, the last", map[string]any{
		v1.VirtHandlerHeartbeat:         env.Heartbeat(time.Now().Add(-time.Hour)),
		names.AnnotationFencingSet:      "fencing,vouching-a,vouching-b",
		names.AnnotationHeartbeatPaused: string(pod.UID),
	})
	if waited, err := others.until(begin, vmi, fenceAfter+15*time.Second); !wait.Interrupted(err) {
		t.Fatalf("it starts %s after virt-handler was stopped in order: %v", waited, err)
	}
	begin = annotate("it counts again", map[string]any{names.AnnotationHeartbeatPaused: nil})
	waited, err := others.until(begin, vmi, 90*time.Second)
	t.must(err)
	if waited < fenceAfter {
		t.Errorf("it starts %s after the last heartbeat, while the old guest may run", waited)
	}
	t.waitGone(pod)
}
