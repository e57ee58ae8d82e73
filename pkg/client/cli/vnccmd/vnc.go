// Package vnccmd is `virtctl vnc`: a guest's screen in a VNC viewer, a browser or the terminal, behind a local port, or
// as a picture.
package vnccmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/vnc"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/tui/screen"
	"github.com/virtkit/virtkit/pkg/stream"
)

// Options of `virtctl vnc`.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Name    string

	Address   string
	Port      int
	ProxyOnly bool
	Keep      bool
	Type      string
	Path      string
	Preserve  bool
	Web       bool
	NoBrowser bool
	Terminal  bool
	Draw      string
	Timeout   cli.Timeout
}

// NewCmdVNC makes the command.
func NewCmdVNC(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput(), Timeout: cli.Timeout{Unit: time.Second}}
	cmd := &cobra.Command{
		Use:   "vnc NAME",
		Short: "Show the screen of a virtual machine",
		Long: `Show the screen of a virtual machine.

A VNC viewer is started: remote-viewer or TigerVNC, on macOS also Chicken or RealVNC. With --proxy-only
virtctl prints the local port that any viewer can connect to, and ends when that viewer does.

With --web it is a page in the browser, and with --terminal this terminal: neither needs a viewer. A terminal
shows pictures by kitty's protocol, sixels, or half blocks, whichever it says it knows.

A screen has one session: this one takes over from another client's, unless --preserve-session is given.`,
		Example: cli.Examples(f.Program, `
			virtctl vnc demo
			virtctl vnc demo --web
			virtctl vnc demo --terminal
			virtctl vnc demo --proxy-only --port 5900
			virtctl vnc screenshot demo -f demo.png`),
		Args:              cli.Args(1, 1, "the name of one VM"),
		ValidArgsFunction: completioncmd.VMIs(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.ProxyOnly, "proxy-only", false, "Start no viewer: print the port for one, as {\"port\":N}")
	flags.StringVar(&o.Address, "address", "127.0.0.1",
		"`ADDRESS` to listen on, with --proxy-only; the screen is open to whoever reaches it")
	flags.IntVar(&o.Port, "port", 0, "`PORT` to listen on; 0 is a free one")
	flags.BoolVar(&o.Keep, "keep", false, "With --proxy-only: wait for the next viewer when one has gone, until "+
		"interrupted")
	flags.StringVar(&o.Type, "vnc-type", "", "`KIND` of viewer: tiger, chicken, real, remote-viewer")
	flags.StringVar(&o.Path, "vnc-path", "", "`FILE` that is the viewer; needs --vnc-type")
	flags.BoolVar(&o.Web, "web", false, "Show the screen on a page for your browser, which is opened if there is "+
		"one; the page's address goes to stdout")
	flags.BoolVar(&o.NoBrowser, "no-browser", false, "With --web: only print the address")
	flags.BoolVar(&o.Terminal, "terminal", false,
		"Draw the screen in this terminal, with its keyboard and mouse; Ctrl-] leaves")
	flags.StringVar(&o.Draw, "draw", "auto", "With --terminal: `HOW` to draw: auto, kitty, sixel, blocks")
	flags.BoolVar(&o.Preserve, "preserve-session", false, "Fail rather than take over from another client")
	flags.Var(&o.Timeout, "timeout", "How long to wait for a guest that does not run yet; a bare number is seconds")
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "draw", "auto", string(screen.Kitty), string(screen.Sixel), string(screen.Blocks))
	cli.CompleteFlag(cmd, "vnc-type", vnc.Kinds...)
	cli.CompleteFlag(cmd, "address", "127.0.0.1", "0.0.0.0", "::1")
	cmd.AddCommand(NewCmdScreenshot(f))
	return cmd
}

func (o *Options) validate() error {
	switch {
	case o.ProxyOnly && o.Web, o.ProxyOnly && o.Terminal, o.Web && o.Terminal:
		return cli.UsageErrorf("--proxy-only, --web and --terminal exclude each other")
	case o.Draw != "auto" && !slices.Contains(screen.Kinds, screen.Kind(o.Draw)):
		return cli.UsageErrorf("--draw %q is not one of auto, kitty, sixel, blocks", o.Draw)
	case o.Draw != "auto" && !o.Terminal:
		return cli.UsageErrorf("--draw needs --terminal")
	case o.Port < 0 || o.Port > 65535:
		return cli.UsageErrorf("--port %d is not a port, 0 to 65535", o.Port)
	case o.Path != "" && o.Type == "":
		return cli.UsageErrorf("--vnc-path needs --vnc-type, which says how the viewer takes its arguments")
	case o.Type != "" && !slices.Contains(vnc.Kinds, o.Type):
		return cli.UsageErrorf("--vnc-type %q is not one of tiger, chicken, real, remote-viewer", o.Type)
	case net.ParseIP(o.Address) == nil && o.Address != "localhost":
		return cli.UsageErrorf("--address %q is not an IP address", o.Address)
	case o.Keep && !o.ProxyOnly:
		return cli.UsageErrorf("--keep needs --proxy-only")
	case o.Output.Given() && !o.ProxyOnly && !o.Web:
		return cli.UsageErrorf("-o needs --proxy-only or --web: a viewer is nothing to print")
	}
	return errors.Join(o.validateWeb(), o.Output.Validate())
}

// Run shows the screen until the user, the viewer or the guest ends the session.
func Run(ctx context.Context, o *Options) error {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	switch {
	case o.ProxyOnly:
		return s.proxy(ctx)
	case o.Web:
		return s.web(ctx)
	case o.Terminal:
		return s.terminal(ctx)
	}
	return s.viewer(ctx)
}

// session is the command at work.
type session struct {
	*Options
	client *client.Client
	target cli.Target
	// first is the screen, opened before anything is started, so that what is wrong is known early.
	first *stream.Conn
}

// open finds the machine and opens its screen.
func (o *Options) open(ctx context.Context) (*session, error) {
	c, target, err := o.Factory.Machine(o.Name)
	if err != nil {
		return nil, err
	}
	s := &session{Options: o, client: c, target: target}
	if o.Timeout.Duration > 0 {
		ctx, cancel := context.WithTimeout(ctx, o.Timeout.Duration)
		defer cancel()
		if _, err := wait.Until(ctx, c, target.Namespace, target.Name, wait.Running()); err != nil {
			return nil, err
		}
	}
	s.first, err = s.dial(ctx)
	return s, err
}

func (s *session) dial(ctx context.Context) (*stream.Conn, error) {
	conn, err := s.client.VNC(ctx, s.target.Namespace, s.target.Name, s.Preserve)
	if apierrors.IsNotFound(err) {
		if err = s.Factory.NotRunning(ctx, s.client, s.target, err); !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return conn, s.explain(err)
}

// explain returns an error with what it is about, and what fixes it.
func (s *session) explain(err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	var closed *stream.CloseError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case stream.NotYet(err):
		hint = fmt.Sprintf("; --timeout 5m waits for it, `%s start %s%s` starts it", s.Factory.Program, s.target.Name,
			s.Factory.InNamespace(s.target.Namespace))
	case apierrors.IsServiceUnavailable(err) && s.Preserve && strings.Contains(err.Error(), "in use"):
		// Not the 503 of a server in trouble. The word is KubeVirt's, whose virt-api has no reason of its own for it.
		return fmt.Errorf("screen of %s/%s: %s; without --preserve-session it is taken over", s.target.Namespace,
			s.target.Name, err)
	case errors.As(err, &closed):
		return fmt.Errorf("screen of %s/%s: %w", s.target.Namespace, s.target.Name, err)
	}
	return fmt.Errorf("screen of %s/%s: %w%s", s.target.Namespace, s.target.Name, err, hint)
}

// listen opens the local port, of an address, for what is to be there, and ends the session where that fails.
func (s *session) listen(ctx context.Context, address, what string) (net.Listener, error) {
	l, err := listen(ctx, address, s.Port, what)
	if err != nil {
		return nil, errors.Join(err, s.first.Close())
	}
	return l, nil
}

func listen(ctx context.Context, address string, port int, what string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("open a port for %s: %w; choose another --port", what, err)
	}
	return l, nil
}

// say writes a notice to a user at a terminal.
func (s *session) say(format string, args ...any) {
	if s.Factory.IO.ErrIsTTY {
		fmt.Fprintf(s.Factory.IO.ErrOut, format, args...)
	}
}

// proxy prints where the screen is and serves it.
func (s *session) proxy(ctx context.Context) error {
	l, err := s.listen(ctx, s.Address, "a viewer")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := s.print(port, "vnc://"+net.JoinHostPort(s.Address, strconv.Itoa(port))); err != nil {
		return errors.Join(err, l.Close(), s.first.Close())
	}
	p := &vnc.Proxy{Dial: s.dial, Keep: s.Keep, Ended: func(err error) {
		if err != nil {
			s.say("%s\n", s.explain(err))
		}
	}}
	if err := p.Serve(ctx, l, s.first); err != nil {
		return s.explain(err)
	}
	return ctx.Err() // interrupted, or nil when the viewer has gone
}

// print writes the port as KubeVirt's virtctl does, or the report that -o asks for.
func (s *session) print(port int, url string) error {
	if s.Output.Given() {
		return s.Output.Print(vnc.NewSessionReport(s.target.Namespace, s.target.Name, s.Address, port, url),
			s.Factory.IO.Out)
	}
	return json.NewEncoder(s.Factory.IO.Out).Encode(struct {
		Port int `json:"port"`
	}{port})
}
