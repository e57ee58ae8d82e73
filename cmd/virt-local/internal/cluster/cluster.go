// Package cluster puts an instance together: which components it has, in which order they come and go, and
// what must be gone when it is down.
//
//	network ──► control-plane, node1, node2, …, images (side by side)
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cgroup"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/component"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/controlplane"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/csi"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/images"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/node"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/payload"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/pki"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/process"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/provision"
)

// Report is called for components that begin (ready false) and that are ready.
type Report func(name string, ready bool, took time.Duration)

// Up brings the instance up, or what is missing of it, and loads the image archives into its nodes.
// The caller has claimed the instance's slot and locked its state directory.
func Up(ctx context.Context, in *instance.Instance, tools node.Tools, archives []images.Archive, report Report) error {
	hierarchies, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	if err := payload.Unpack(in.Path("bin")); err != nil {
		return err
	}
	if in.Storage == instance.CSI {
		if err := payload.UnpackCSI(in.Path("bin")); err != nil {
			return err
		}
	}
	// The certificates first, and here, so that control plane and nodes need not wait for each other.
	certs := pki.ControlPlane(append([]string{in.HostIPs()[0].String()}, instance.Texts(in.KubernetesIPs())...)...)
	if err := (pki.Dir{Path: in.Path("pki")}).Ensure(certs); err != nil {
		return err
	}
	pause, err := images.Pause(node.PauseImage)
	if err != nil {
		return err
	}
	together := component.Together{Report: report, Components: []component.Component{&controlPlane{in: in}}}
	for _, n := range in.NodeList() {
		together.Components = append(together.Components,
			&node.Component{Node: n, Tools: tools, Hierarchies: hierarchies, NodeReady: nodeReady(in)})
	}
	together.Components = append(together.Components,
		&imageLoad{in: in, archives: append([]images.Archive{pause}, archives...)})
	stack := component.Stack{Components: []component.Component{network{in}, together}, Report: report}
	return stack.Up(ctx)
}

// Down ends everything of the instance that runs, and removes its traces outside of the state directory.
func Down(ctx context.Context, in *instance.Instance) error {
	hierarchies, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	var all component.Together
	// Nodes that are there, however many the instance should have.
	for k := 1; k <= instance.MaxNodes; k++ {
		n := instance.Node{Instance: in, Number: k}
		if _, err := os.Stat(n.Dir()); err == nil || k <= in.Nodes {
			all.Components = append(all.Components, &node.Component{Node: n, Hierarchies: hierarchies})
		}
	}
	// The control plane goes first: it would wait long for the watches of nodes that no longer answer.
	stack := component.Stack{Components: []component.Component{network{in}, all, &controlPlane{in: in}}}
	err = stack.Down(ctx)
	return errors.Join(
		err,
		provision.Disk{Dir: in.Path("volumes")}.DetachAll(),
		csi.Release(ctx, in),
		cgroup.Remove(hierarchies, in.Cgroup(), 10*time.Second),
	)
}

// network is hostnet as a component.
type network struct{ in *instance.Instance }

func (network) Name() string                  { return "network" }
func (network) Init(context.Context) error    { return nil }
func (n network) Start(context.Context) error { return hostnet.Up(n.in) }
func (network) Ready(context.Context) error   { return nil }
func (n network) Stop(context.Context) error  { return hostnet.Down(n.in) }

// lastClass is what the CSI controller makes last.
const lastClass = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/local"

// controlPlane is the process that runs package controlplane.
type controlPlane struct{ in *instance.Instance }

// ControlPlanePIDFile names the control plane's process.
func ControlPlanePIDFile(in *instance.Instance) string { return in.Path("run", "control-plane.pid") }

// ControlPlaneLog names the log of the control plane.
func ControlPlaneLog(in *instance.Instance) string { return in.Path("logs", "control-plane.log") }

// ControlPlaneArgs returns the arguments of the control plane's process, by which it is also found.
func ControlPlaneArgs(in *instance.Instance) []string {
	return []string{"cluster-control-plane", "--state-dir", in.StateDir}
}

func (*controlPlane) Name() string { return "control-plane" }

func (c *controlPlane) alive() (bool, error) {
	id, err := process.ReadFile(ControlPlanePIDFile(c.in))
	return id.Alive(), err
}

// Init ends a control plane that lost its pid file.
func (c *controlPlane) Init(ctx context.Context) error {
	if alive, err := c.alive(); err != nil || alive {
		return err
	}
	return c.Stop(ctx)
}

func (c *controlPlane) Start(context.Context) error {
	if alive, err := c.alive(); err != nil || alive {
		return err
	}
	_, err := process.Detached{
		Args: ControlPlaneArgs(c.in), Log: ControlPlaneLog(c.in), PIDFile: ControlPlanePIDFile(c.in),
	}.Start()
	return err
}

func (c *controlPlane) Ready(ctx context.Context) error {
	admin, err := Admin(c.in)
	if err != nil {
		return err
	}
	// In the order in which they come to be.
	class := "/apis/storage.k8s.io/v1/storageclasses/" + provision.Class
	if c.in.Storage == instance.CSI {
		class = lastClass
	}
	paths := []string{
		"/readyz", "/api/v1/namespaces/default/serviceaccounts/default", class,
	}
	if c.in.Multus {
		paths = append(paths, multusPaths...)
	}
	for _, path := range paths {
		check := controlplane.HealthCheck(admin, path)
		err := component.Poll(ctx, 50*time.Millisecond, func(ctx context.Context) error {
			if alive, err := c.alive(); err != nil || !alive {
				return component.Permanent(fmt.Errorf("%w; see %s", component.ErrEnded, ControlPlaneLog(c.in)))
			}
			return check(ctx)
		})
		if err != nil {
			return err
		}
	}
	if c.in.Storage != instance.CSI {
		return nil
	}
	return component.Poll(ctx, 50*time.Millisecond, c.csiRuns)
}

// csiRuns finds out whether the CSI driver's controller runs. It may have ended since it made its last object, and is
// then started again.
func (c *controlPlane) csiRuns(context.Context) error {
	id, err := process.ReadFile(ControlPlanePIDFile(c.in))
	if err != nil {
		return component.Permanent(err)
	}
	p, err := csiController(c.in, id)
	if err != nil {
		return component.Permanent(err)
	}
	if !p.Running {
		return fmt.Errorf("%s does not run; see %s", csi.Controller, csi.ControllerLog(c.in))
	}
	return nil
}

func (c *controlPlane) Stop(ctx context.Context) error {
	id, err := process.ReadFile(ControlPlanePIDFile(c.in))
	if err != nil {
		return err
	}
	strays, err := process.Find(ControlPlaneArgs(c.in)...)
	if err != nil {
		return err
	}
	for _, id := range append(strays, id) {
		if err := id.End(ctx, controlplane.ShutdownTime+2*time.Second); err != nil {
			return err
		}
	}
	if err := os.Remove(ControlPlanePIDFile(c.in)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pid file: %w", err)
	}
	return nil
}

// Admin returns an administrator's credentials.
func Admin(in *instance.Instance) (kubeconfig.Credentials, error) {
	return kubeconfig.Load(in.Server(), in.Path("pki"), pki.Admin)
}

// nodeReady returns a check that wants a node Ready, by a report since the given time.
func nodeReady(in *instance.Instance) func(context.Context, string, time.Time) error {
	var once sync.Once
	var client *http.Client
	var clientErr error
	return func(ctx context.Context, name string, since time.Time) error {
		once.Do(func() {
			var admin kubeconfig.Credentials
			if admin, clientErr = Admin(in); clientErr == nil {
				client, clientErr = controlplane.Client(admin)
			}
		})
		if clientErr != nil {
			return component.Permanent(clientErr)
		}
		return nodeReadySince(ctx, client, in.Server()+"/api/v1/nodes/"+name, since)
	}
}

func nodeReadySince(ctx context.Context, client *http.Client, url string, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, controlplane.AnswerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return component.Permanent(err)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("it has not registered yet: %s", res.Status)
	}
	var n corev1.Node
	if err := json.NewDecoder(res.Body).Decode(&n); err != nil {
		return fmt.Errorf("read the node: %w", err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status != corev1.ConditionTrue {
			return fmt.Errorf("it is not Ready: %s", c.Message)
		}
		if c.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			return errors.New("its kubelet has not reported since the node was started")
		}
		return nil
	}
	return errors.New("it has no condition Ready yet")
}

// imageLoad loads archives into all nodes at once.
type imageLoad struct {
	in       *instance.Instance
	archives []images.Archive
}

func (*imageLoad) Name() string                { return "images" }
func (*imageLoad) Init(context.Context) error  { return nil }
func (*imageLoad) Start(context.Context) error { return nil }
func (*imageLoad) Stop(context.Context) error  { return nil }
func (l *imageLoad) Ready(ctx context.Context) error {
	_, err := LoadImages(ctx, l.in, l.archives)
	return err
}

// Loaded is the result of LoadImages for an archive on a node.
type Loaded struct {
	Node     string   `json:"node"`
	Archive  string   `json:"archive"`
	Images   []string `json:"images"`
	Imported bool     `json:"imported"`
}

// LoadImages imports archives into every node's containerd, the nodes side by side, waiting for nodes that
// are only just starting. What is there already is left alone.
func LoadImages(ctx context.Context, in *instance.Instance, archives []images.Archive) ([]Loaded, error) {
	nodes := in.NodeList()
	done := make([][]Loaded, len(nodes))
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			done[i], errs[i] = loadInto(ctx, n, archives)
			if errs[i] != nil {
				errs[i] = fmt.Errorf("load images into %s: %w", n.NodeName(), errs[i])
			}
		})
	}
	wg.Wait()
	var all []Loaded
	for _, d := range done {
		all = append(all, d...)
	}
	return all, errors.Join(errs...)
}

func loadInto(ctx context.Context, n instance.Node, archives []images.Archive) ([]Loaded, error) {
	var id process.ID
	err := component.Poll(ctx, 50*time.Millisecond, func(context.Context) error {
		var err error
		if id, err = process.ReadFile(node.PIDFile(n)); err != nil {
			return component.Permanent(err)
		}
		if !id.Alive() {
			return errors.New("the node does not run")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	containerd, err := images.Connect(ctx, filepath.Join(fmt.Sprintf("/proc/%d/root", id.PID), node.ContainerdSocket))
	if err != nil {
		return nil, err
	}
	defer containerd.Close()
	var done []Loaded
	for _, a := range archives {
		names, imported, err := containerd.Load(ctx, a)
		if err != nil {
			return done, err
		}
		done = append(done, Loaded{n.NodeName(), a.Name, names, imported})
	}
	return done, nil
}
