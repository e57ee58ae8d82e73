package portforwardcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Run forwards until it is interrupted.
func Run(ctx context.Context, o *Options) error {
	if id := o.Factory.Getenv(sessionVariable); o.Background && id == "" {
		return o.spawn(ctx)
	}
	c, ns, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	target := forward.Target{Namespace: ns}
	if o.Name != "" {
		t, err := cli.ParseTarget(o.Name, ns)
		if err != nil {
			return err
		}
		target = forward.Target(t)
		if err := o.check(ctx, c, target); err != nil {
			return err
		}
	}
	if err := allowed(ctx, c, target); err != nil {
		return err
	}
	if o.Stdio {
		return o.stdio(ctx, c, target)
	}
	s, err := o.open(c, target)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// check reports early a machine that does not exist, or that is not running. Whoever may forward but not read is not
// bothered.
func (o *Options) check(ctx context.Context, c *client.Client, t forward.Target) error {
	vmi, err := c.VMI(ctx, t.Namespace, t.Name)
	switch {
	case err == nil:
		if vmi.Status.Phase != v1.Running {
			o.say("%s is %s; connections wait for it", t, vmi.Status.Phase)
		}
		return nil
	case apierrors.IsForbidden(err):
		return nil
	case !apierrors.IsNotFound(err) || t.Instance:
		return err
	}
	vm, err := c.VM(ctx, t.Namespace, t.Name)
	if err != nil {
		if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}
	state, remedy := string(vm.Status.PrintableStatus), ""
	switch {
	case cli.AskedToStart(vm):
		state = "being started"
	case vm.Status.PrintableStatus == v1.VirtualMachineStatusStopped:
		remedy = "; " + o.Factory.StartIt(cli.Target(t))
	}
	o.say("%s is %s; connections wait for it%s", t, state, remedy)
	return nil
}

// allowed returns an error for a user who may not forward ports of a machine or, without a name, of those of a
// namespace. An API server that cannot be asked leaves it to the first connection.
func allowed(ctx context.Context, c *client.Client, t forward.Target) error {
	resource := client.VMs
	if t.Instance {
		resource = client.VMIs
	}
	group := v1.SubresourceStorageGroupVersion
	may, err := c.May(ctx, authorizationv1.ResourceAttributes{
		Verb: "get", Group: group.Group, Version: group.Version, Resource: resource, Subresource: "portforward",
		Namespace: t.Namespace, Name: t.Name,
	})
	if err != nil || may {
		return ctx.Err()
	}
	of := "machines in namespace " + t.Namespace
	if t.Name != "" {
		of = t.String()
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: group.Group, Resource: resource}, t.Name, nil)
	forbidden.ErrStatus.Message = fmt.Sprintf("not allowed: you may not forward ports of %s; check with "+
		"`kubectl auth can-i get %s.%s --subresource=portforward -n %s`", of, resource, group.Group, t.Namespace)
	return forbidden
}

func (o *Options) say(format string, args ...any) {
	fmt.Fprintf(o.Factory.IO.ErrOut, format+"\n", args...)
}

// session is what one command line forwards.
type session struct {
	o         *Options
	id        string
	forwarder *forward.Forwarder
	socks     *forward.Socks
	locals    []*forward.Local
	proxies   []net.Listener
	report    *forward.Session

	open     atomic.Int64 // connections
	printing sync.Mutex
}

// open opens the local ports.
func (o *Options) open(c *client.Client, t forward.Target) (*session, error) {
	s := &session{o: o, id: o.Factory.Getenv(sessionVariable)}
	if s.id == "" {
		s.id = o.Factory.RandomName(5)
	}
	s.forwarder = &forward.Forwarder{
		Dial: forward.To(c, t), Standby: forward.StandbyTo(c, t), Patience: o.Wait.Duration, Notify: s.notify,
	}
	s.socks = &forward.Socks{Opener: c, Namespace: t.Namespace, Patience: o.Wait.Duration, Notify: s.notify}
	var err error
	if s.locals, err = o.listen(expand(o.Addresses)); err != nil {
		return nil, err
	}
	socks, err := s.listenSocks()
	if err != nil {
		s.close()
		return nil, err
	}
	name := ""
	if o.Name != "" {
		name = "vm/" + t.Name
		if t.Instance {
			name = "vmi/" + t.Name
		}
	}
	s.report = forward.NewSession(s.id, t.Namespace, name, s.locals, socks)
	s.report.PID, s.report.Context = os.Getpid(), o.Factory.Connection().Context
	s.report.CreationTimestamp = metav1.NewTime(o.Factory.Now())
	return s, nil
}

// listenSocks opens the SOCKS5 ports, if there are to be any, and returns their addresses.
func (s *session) listenSocks() ([]string, error) {
	if s.o.Socks == "" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(s.o.Socks)
	if err != nil {
		return nil, err
	}
	var socks []string
	for _, address := range expand([]string{host}) {
		l, err := forward.ListenSocks(net.JoinHostPort(address, port))
		if err != nil {
			return nil, fmt.Errorf("%w; choose another with --socks=ADDRESS:PORT", err)
		}
		s.proxies = append(s.proxies, l)
		socks = append(socks, l.Addr().String())
	}
	return socks, nil
}

// expand makes localhost the two addresses that it stands for, where this machine has both.
func expand(addresses []string) []string {
	var out []string
	for _, address := range addresses {
		if address != "localhost" {
			out = append(out, address)
			continue
		}
		out = append(out, "127.0.0.1")
		if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
			_ = l.Close() // it was only to see whether there is one
			out = append(out, "::1")
		}
	}
	return out
}

func (s *session) close() {
	for _, l := range s.locals {
		_ = l.Close() // on the way out with an error
	}
	for _, l := range s.proxies {
		_ = l.Close()
	}
}

// run announces the ports and serves them.
func (s *session) run(ctx context.Context) error {
	if s.o.Background {
		return s.runBackground(ctx)
	}
	if s.o.Output.Given() {
		if err := s.o.Output.Print(s.report, s.o.Factory.IO.Out); err != nil {
			s.close()
			return err
		}
	}
	s.announce()
	if err := s.serve(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// announce prints where the ports are.
func (s *session) announce() {
	for _, line := range describe(s.report) {
		s.o.say("forwarding %s", line)
	}
}

// describe returns a session's ports, one a line.
func describe(report *forward.Session) []string {
	var lines []string
	for _, p := range report.Ports {
		lines = append(lines, fmt.Sprintf("%s %s to %s port %d", p.Protocol, p.Address, report.Target, p.TargetPort))
	}
	for _, address := range report.Socks {
		lines = append(lines, fmt.Sprintf("SOCKS5 %s to machines by name", address))
	}
	return lines
}

// serve forwards until ctx ends.
func (s *session) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, 1+len(s.proxies))
	var serving sync.WaitGroup
	if len(s.locals) > 0 {
		serving.Go(func() {
			errs[0] = s.forwarder.Serve(ctx, s.locals)
			cancel()
		})
	}
	for i, l := range s.proxies {
		serving.Go(func() {
			errs[i+1] = s.socks.Serve(ctx, l)
			cancel()
		})
	}
	serving.Wait()
	return errors.Join(errs...)
}

// notify prints what happens to connections: what goes wrong always, the rest at a terminal.
func (s *session) notify(e forward.Event) {
	switch e.Kind {
	case forward.Opened:
		s.open.Add(1)
	case forward.Closed:
		s.open.Add(-1)
	case forward.Waiting, forward.Failed:
	}
	line := sentence(e, s.o.Factory.Connection())
	if line == "" || e.Err == nil && !s.o.Factory.IO.ErrIsTTY {
		return
	}
	s.printing.Lock()
	defer s.printing.Unlock()
	s.o.say("%s", line)
}

// sentence returns an event in a line.
func sentence(e forward.Event, c cli.Connection) string {
	at := fmt.Sprintf("%s connection from %s for port %d", e.Protocol, e.Client, e.Port)
	switch {
	case e.Kind == forward.Opened:
		return "handling " + at
	case e.Kind == forward.Waiting:
		return fmt.Sprintf("%s waits: %s", at, line(cli.Explain(e.Err, c)))
	case e.Kind == forward.Failed:
		return fmt.Sprintf("%s failed: %s", at, line(cli.Explain(e.Err, c)))
	case e.Err != nil:
		return fmt.Sprintf("%s was lost: %s", at, line(e.Err.Error()))
	}
	return ""
}

func line(text string) string { return strings.Join(strings.Fields(text), " ") }

// stdio carries one connection over the standard streams.
func (o *Options) stdio(ctx context.Context, c *client.Client, t forward.Target) error {
	p := o.Ports[0]
	conn, err := forward.Dial(ctx, c, t, p.Remote, p.Protocol)
	if err != nil {
		return o.Factory.NotRunning(ctx, c, cli.Target(t), err)
	}
	err = forward.Stdio(ctx, conn, p.Protocol, o.Factory.IO.In, o.Factory.IO.RawOut(), func() bool {
		// Whoever reads our output learns of its end; at a terminal nobody would know what is waited for.
		if closer, ok := o.Factory.IO.RawOut().(io.Closer); ok {
			_ = closer.Close() // all has been written
		}
		return !o.Factory.IO.InIsTTY
	})
	if errors.Is(err, io.ErrClosedPipe) {
		return nil // whoever read our output has had enough
	}
	return err
}
