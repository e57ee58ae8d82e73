package cluster

import (
	"context"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cgroup"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/component"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/node"
)

// StopNode ends a node as a power cut would: every process of it at the same moment, none with time to say so.
// Its images and volumes stay. The caller has locked the state directory, here and below.
func StopNode(ctx context.Context, n instance.Node) error {
	hierarchies, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	return (&node.Component{Node: n, Hierarchies: hierarchies}).Stop(ctx)
}

// StartNode starts a node that was stopped, and returns when Kubernetes has it as Ready.
func StartNode(ctx context.Context, n instance.Node, tools node.Tools, report Report) error {
	hierarchies, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	stack := component.Stack{
		Components: []component.Component{
			&node.Component{Node: n, Tools: tools, Hierarchies: hierarchies, NodeReady: nodeReady(n.Instance)},
		},
		Report: report,
	}
	return stack.Up(ctx)
}

// CutNode takes a node off the network; what runs on it runs on.
func CutNode(n instance.Node) error { return hostnet.Cut(n) }

// HealNode undoes CutNode.
func HealNode(n instance.Node) error { return hostnet.Heal(n) }
