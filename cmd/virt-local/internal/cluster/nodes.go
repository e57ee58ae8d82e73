package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cgroup"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/component"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/csi"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/node"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/process"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/provision"
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

// Runs reports whether anything of the instance runs.
func Runs(in *instance.Instance) (bool, error) {
	files := []string{ControlPlanePIDFile(in)}
	for _, n := range in.NodeList() {
		files = append(files, node.PIDFile(n))
	}
	for _, file := range files {
		id, err := process.ReadFile(file)
		if err != nil {
			return false, err
		}
		if id.Alive() {
			return true, nil
		}
	}
	return false, nil
}

// RemoveVolumes erases data that status lists since no object is for it, all of it or none.
func RemoveVolumes(ctx context.Context, in *instance.Instance, names []string) error {
	admin, err := Admin(in)
	if err != nil {
		return err
	}
	client, err := clientFor(admin, "virt-local-volume")
	if err != nil {
		return err
	}
	disk := provision.Disk{Dir: in.Path("volumes")}
	unowned, err := provision.Unowned(ctx, client, disk)
	if err != nil {
		return err
	}
	var old, others []string
	for _, name := range names {
		if slices.Contains(unowned, name) {
			old = append(old, name)
		} else {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		if in.Storage != instance.CSI {
			return fmt.Errorf("%q is no data without an object, which is all that can be removed here: virt-local "+
				"status lists it; delete the claim of anything else", others[0])
		}
		if err := csi.Remove(ctx, in, others); err != nil {
			return err
		}
	}
	for _, name := range old {
		record := provision.Record{Volume: name, Time: metav1.Now()}
		if err := errors.Join(disk.SetAside(name, record), disk.Erase(name)); err != nil {
			return err
		}
	}
	return nil
}
