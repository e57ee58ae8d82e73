// Package sshcmd is `virtctl ssh` and `virtctl scp`: shells, commands, forwarded ports and copies over ssh, through the
// API server, so that the guest needs no address that can be reached.
package sshcmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	gossh "golang.org/x/crypto/ssh"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/action/ssh"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/terminal"
)

// login is what ssh and scp have in common: who logs in where, and how.
type login struct {
	Factory    *cli.Factory
	User       string
	Identities []string
	KnownHosts string
	Port       port
	Checking   string
	Timeout    cli.Timeout
	LocalSSH   bool
	LocalOpts  []string

	// knownHostsGiven and localGiven are whether the flags were.
	knownHostsGiven, localGiven bool
	// connection is the flags that choose the cluster, as the user gave them.
	connection []string
}

// knownHosts is the default file, below ~/.ssh; it is KubeVirt's.
const knownHosts = "kubevirt_known_hosts"

func (l *login) addFlags(cmd *cobra.Command) {
	l.Port = 22
	flags := cmd.Flags()
	flags.StringVarP(&l.User, "username", "l", "", "The `USER` to log in as; else USER@ of the name, else your own")
	flags.StringArrayVarP(&l.Identities, "identity-file", "i", nil,
		"A private key `FILE`; else the agent's keys and ~/.ssh/id_rsa, id_ecdsa and id_ed25519")
	flags.StringVar(&l.KnownHosts, "known-hosts", "", "The `FILE` of known host keys, ~/.ssh/"+knownHosts+
		" unless given; empty checks none")
	flags.StringVar(&l.Checking, "strict-host-key-checking", string(ssh.Ask),
		"What to do about an unknown host key: ask, yes: refuse it, accept-new: remember it, no: take any")
	flags.VarP(&l.Port, "port", "p", "The guest's port")
	flags.Var(&l.Timeout, "timeout", "Wait so long for the guest to run and its ssh server to listen; 0 tries once")
	flags.BoolVar(&l.LocalSSH, "local-ssh", false, "Use this machine's own ssh; --local-ssh-opts implies it")
	cli.CompleteFlag(cmd, "strict-host-key-checking", string(ssh.Ask), string(ssh.Strict), string(ssh.AcceptNew),
		string(ssh.Unchecked))
}

// complete fills in what depends on the command line and the environment.
func (l *login) complete(cmd *cobra.Command) error {
	l.knownHostsGiven, l.localGiven = cmd.Flags().Changed("known-hosts"), cmd.Flags().Changed("local-ssh")
	l.connection = cli.ConnectionWords(cmd)
	if len(l.LocalOpts) > 0 && !l.localGiven {
		l.LocalSSH = true
	}
	switch ssh.Checking(l.Checking) {
	case ssh.Ask, ssh.Strict, ssh.AcceptNew, ssh.Unchecked:
		return l.checkIdentities()
	}
	return cli.UsageErrorf("--strict-host-key-checking: %q is not one of ask, yes, accept-new, no", l.Checking)
}

// checkIdentities refuses key files that are not there, unless they are this machine's ssh's business.
func (l *login) checkIdentities() error {
	if l.LocalSSH {
		return nil
	}
	for _, file := range l.Identities {
		if _, err := os.Stat(file); err != nil { // to open a pipe would take what it has
			return cli.Unreadable("--identity-file", file, err)
		}
	}
	return nil
}

// machine is a name on the command line.
type machine struct {
	user string
	forward.Target
}

// parse reads [USER@]NAME, with a kind and a namespace as cli.ParseTarget has them. --username comes last, as in
// KubeVirt.
func (l *login) parse(text string) (machine, error) {
	ns, err := l.Factory.Namespace()
	if err != nil {
		return machine{}, err
	}
	user, name := "", text
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		user, name = text[:at], text[at+1:]
		if user == "" {
			return machine{}, cli.UsageErrorf("%q: there is no user before the @", text)
		}
	}
	t, err := cli.ParseTarget(name, ns)
	if err != nil {
		return machine{}, err
	}
	if user == "" {
		user = l.User
	}
	return machine{user, forward.Target{Namespace: t.Namespace, Name: t.Name, Instance: t.Instance}}, nil
}

// localUser returns the user's name on this machine.
func (l *login) localUser() string {
	for _, name := range []string{"USER", "USERNAME", "LOGNAME"} {
		if user := l.Factory.Getenv(name); user != "" {
			return user
		}
	}
	return "root"
}

// connect logs in.
func (l *login) connect(ctx context.Context, m machine) (*gossh.Client, error) {
	c, err := l.Factory.Client()
	if err != nil {
		return nil, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	if m.user == "" {
		m.user = l.localUser()
	}
	host := ssh.HostName(m.Target)
	keys := ssh.HostKeys{File: l.KnownHosts, Checking: ssh.Checking(l.Checking), Notify: l.say}
	if !l.knownHostsGiven && home != "" {
		keys.File = filepath.Join(home, ".ssh", knownHosts)
	}
	auth := ssh.Auth{
		Identities: l.Identities, AgentSocket: l.Factory.Getenv("SSH_AUTH_SOCK"),
		Who: m.user + "@" + m.Name,
	}
	for _, name := range ssh.DefaultIdentities {
		if home != "" && len(l.Identities) == 0 {
			auth.Defaults = append(auth.Defaults, filepath.Join(home, ".ssh", name))
		}
	}
	term, done := terminal.Asking(l.Factory.IO)
	defer done()
	if term != nil {
		asks := prompter{ctx, term}
		keys.Prompt, auth.Prompt = asks, asks
	}
	printed := false
	conn, err := ssh.Dial(ctx, c, m.Target, uint16(l.Port), l.Timeout.Duration, func(why error) {
		if !printed {
			l.say(fmt.Sprintf("Waiting for ssh of %s: %s", m.Name, why))
		}
		printed = true
	})
	if err != nil {
		return nil, l.Factory.NotRunning(ctx, c, cli.Target(m.Target), err)
	}
	client,
		err := ssh.Connect(ctx, conn, ssh.Login{User: m.user, Host: host, Port: uint16(l.Port), Auth: auth, Keys: keys})
	if errors.Is(err, ssh.ErrDenied) {
		return nil,
			&cli.ExitError{
				Code: cli.ExitNotAllowed,
				Err: fmt.Errorf("%w; name a key with -i, load one with ssh-add, or log in from a terminal to give a "+
					"password", err),
			}
	}
	return client, err
}

// say writes a notice to a user at a terminal.
func (l *login) say(notice string) {
	if l.Factory.IO.ErrIsTTY {
		fmt.Fprintln(l.Factory.IO.ErrOut, notice)
	}
}

// prompter asks at a terminal.
type prompter struct {
	ctx  context.Context //nolint:containedctx // the library's callbacks have none
	term *terminal.Terminal
}

func (p prompter) Secret(question string) (string, error) { return p.term.Ask(p.ctx, question, false) }

func (p prompter) Line(question string) (string, error) { return p.term.Ask(p.ctx, question, true) }

// port is a flag that takes a port.
type port uint16

// String implements pflag.Value.
func (p *port) String() string { return fmt.Sprint(uint16(*p)) }

// Type implements pflag.Value.
func (*port) Type() string { return "port" }

// Set implements pflag.Value.
func (p *port) Set(text string) error {
	n, err := net.LookupPort("tcp", text)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a port from 1 to 65535", text)
	}
	*p = port(n)
	return nil
}
