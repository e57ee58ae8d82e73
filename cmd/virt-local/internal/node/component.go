package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cgroup"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/component"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/process"
)

// Component is a node seen from the machine.
type Component struct {
	instance.Node
	Tools       Tools
	Hierarchies []cgroup.Hierarchy
	// NodeReady reports whether the API server has the node as Ready since the moment given.
	NodeReady func(ctx context.Context, node string, since time.Time) error

	started time.Time
}

// Name returns the node's name.
func (c *Component) Name() string { return c.NodeName() }

// PIDFile names the node's init.
func PIDFile(n instance.Node) string { return n.Path("run", n.NodeName()+".pid") }

// Init writes the configuration, and clears away what a dead node left.
func (c *Component) Init(ctx context.Context) error {
	alive, err := c.alive()
	if err != nil || alive {
		return err
	}
	if err := c.Stop(ctx); err != nil {
		return err
	}
	if err := Certificates(c.Node); err != nil {
		return err
	}
	resolvConf, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the machine's resolv.conf: %w", err)
	}
	files, err := Files(c.Node, c.Tools, c.Path("pki"), ResolvConf(resolvConf, c.DNSIPs()))
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := instance.WriteFile(c.Dir("etc", name), content, 0o644); err != nil {
			return err
		}
	}
	return cgroup.Make(c.Hierarchies, c.NodeCgroup())
}

func (c *Component) alive() (bool, error) {
	id, err := process.ReadFile(PIDFile(c.Node))
	return id.Alive(), err
}

// Start starts the node's init and lays its network. A node that runs and was cut off is connected again.
func (c *Component) Start(context.Context) error {
	switch alive, err := c.alive(); {
	case err != nil:
		return err
	case alive:
		return hostnet.Heal(c.Node)
	}
	c.started = time.Now()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer w.Close()
	id, err := process.Detached{
		Args:       Args(c.Node),
		Log:        c.LogDir() + "/init.log",
		PIDFile:    PIDFile(c.Node),
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		Files:      []*os.File{r},
	}.Start()
	r.Close()
	if err != nil {
		return err
	}
	if err := hostnet.Connect(c.Node, id.PID); err != nil {
		return err
	}
	if _, err := w.Write([]byte{1}); err != nil {
		return fmt.Errorf("release the node's init: %w; see %s", err, c.LogDir()+"/init.log")
	}
	return nil
}

// Args returns the arguments of a node's init, by which it is also found.
func Args(n instance.Node) []string {
	return []string{"node-init", "--state-dir", n.StateDir, "--number", fmt.Sprint(n.Number)}
}

// Ready waits until the node is Ready in the API and its kube-proxy has written its rules.
func (c *Component) Ready(ctx context.Context) error {
	return component.Poll(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		if alive, err := c.alive(); err != nil || !alive {
			return component.Permanent(fmt.Errorf("%w; see %s", component.ErrEnded, c.LogDir()+"/init.log"))
		}
		if err := c.NodeReady(ctx, c.NodeName(), c.started); err != nil {
			return err
		}
		return c.proxyHealthy(ctx)
	})
}

// answerTime bounds one question whether kube-proxy is well; on a slow machine it takes seconds.
const answerTime = 15 * time.Second

// proxyHealthy reports whether kube-proxy has written its rules, so that Services work.
func (c *Component) proxyHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+netip.AddrPortFrom(c.IPs()[0], proxyHealthPort).String()+"/healthz", nil)
	if err != nil {
		return component.Permanent(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask kube-proxy: %w", err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("kube-proxy is not healthy: %s", res.Status)
	}
	return nil
}

// Stop kills the node, as a power cut would, and removes what is left of it on the machine.
func (c *Component) Stop(ctx context.Context) error {
	id, err := process.ReadFile(PIDFile(c.Node))
	if err != nil {
		return err
	}
	strays, err := process.Find(Args(c.Node)...)
	if err != nil {
		return err
	}
	for _, id := range append(strays, id) {
		if err := id.End(ctx, 0); err != nil {
			return err
		}
	}
	if err := hostnet.Disconnect(c.Node); err != nil {
		return err
	}
	if err := cgroup.Remove(c.Hierarchies, c.NodeCgroup(), 10*time.Second); err != nil {
		return err
	}
	if err := os.Remove(PIDFile(c.Node)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pid file: %w", err)
	}
	return nil
}
