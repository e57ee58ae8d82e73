package store

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/host"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// Node is one node of the cluster, as far as guests go.
type Node struct {
	Name    string
	Created time.Time
	Labels  map[string]string
	// Ready is the kubelet's word; Schedulable is virt-handler's, that guests can run here.
	Ready, Schedulable bool
	// Cordoned is whether nothing new is placed here.
	Cordoned bool
	// Heartbeat is when virt-handler was last heard.
	Heartbeat time.Time
	// Roles are as kubectl shows them; Taints as in a manifest, key=value:effect.
	Roles  []string
	Taints []string
	// CPU and Memory are what the kubelet gives to pods; Devices how many guests may use hardware virtualisation, 0
	// where none.
	CPU, Memory resource.Quantity
	Devices     int64
	Kubelet     string
}

// roleLabel precedes the name of a node's role.
const roleLabel = "node-role.kubernetes.io/"

// OfNode makes a node's row.
func OfNode(n *corev1.Node) *Node {
	row := &Node{
		Name: n.Name, Created: n.CreationTimestamp.Time, Labels: n.Labels,
		Ready:       conditions.True(n.Status.Conditions, corev1.NodeReady),
		Schedulable: life.TakesVMs(n), Cordoned: n.Spec.Unschedulable,
		CPU: n.Status.Allocatable[corev1.ResourceCPU], Memory: n.Status.Allocatable[corev1.ResourceMemory],
		Kubelet: n.Status.NodeInfo.KubeletVersion,
	}
	if q, ok := n.Status.Allocatable[names.ResourceKVM]; ok {
		row.Devices = q.Value()
	}
	for label := range n.Labels {
		if role, ok := strings.CutPrefix(label, roleLabel); ok && role != "" {
			row.Roles = append(row.Roles, role)
		}
	}
	slices.Sort(row.Roles)
	for i := range n.Spec.Taints {
		row.Taints = append(row.Taints, n.Spec.Taints[i].ToString())
	}
	if at, err := host.Heartbeat(n); err == nil {
		row.Heartbeat = at
	}
	return row
}
