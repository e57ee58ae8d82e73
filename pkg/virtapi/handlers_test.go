package virtapi

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// A broken node answers at the address of another one's virt-handler: virt-api tells it nothing, by whichever way it
// asks.
func TestAnotherNodesHandler(t *testing.T) {
	objects := pairOf(v1.RunStrategyAlways, instance(v1.Running))
	objects["virtualmachineinstances/vm"].(*v1.VirtualMachineInstance).Status.NodeName = "node2"
	c := newCluster(t, objects, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("node1 was asked %s for node2", r.URL.Path)
	})
	pod, err := c.core.CoreV1().Pods(names.Namespace).Get(t.Context(), "pending", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1"} // where node1's is
	if _, err := c.core.CoreV1().Pods(names.Namespace).UpdateStatus(t.Context(),
		pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for {
		address, err := c.q.nodes.handler("node2")
		if host, _, _ := net.SplitHostPort(address); err == nil && host == "127.0.0.1" {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("node2 has no address: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsServiceUnavailable(err) ||
			!strings.Contains(err.Error(), "not the virt-handler of node node2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = c.dial("virtualmachineinstances/vm/console", nil)
	refused("console", err)
	target, err := c.q.nodes.target(objects["virtualmachineinstances/vm"].(*v1.VirtualMachineInstance), "pause", nil)
	if err != nil {
		t.Fatal(err)
	}
	refused("pause", put(t.Context(), c.q.handlers.of("node2"), target, "node2"))
	answer, err := c.q.answer(t.Context(), target, "node2", nil)
	if err == nil {
		answer.Body.Close()
	}
	refused("log", err)
	if _, err := c.q.nodeStats(t.Context(), "node2", target.Host, nil); err == nil ||
		!strings.Contains(err.Error(), "not the virt-handler of node node2") {
		t.Errorf("stats: %v", err)
	}
}
