package sshcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/ssh"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// proxyCommand returns the ProxyCommand for ssh_config(5): this program, as a pipe to the guest's port.
func (l *login) proxyCommand(program string, m machine) string {
	kind := "vm"
	if m.Instance {
		kind = "vmi"
	}
	words := append([]string{program, "port-forward", "--stdio=true"}, l.connection...)
	words = append(words, kind+"/"+m.Name+"/"+m.Namespace, l.Port.String())
	for i, word := range words {
		words[i] = strings.ReplaceAll(quote(word), "%", "%%")
	}
	return "ProxyCommand=" + strings.Join(words, " ")
}

var harmless = regexp.MustCompile(`^[A-Za-z0-9_./:=@,+-]+$`)

// quote makes a word safe for the shell that runs the ProxyCommand.
func quote(word string) string {
	if harmless.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// localArgs returns the arguments of this machine's ssh and scp that say how to reach the guest.
func (l *login) localArgs(program string, m machine) []string {
	args := []string{"-o", l.proxyCommand(program, m)}
	if l.knownHostsGiven {
		file := l.KnownHosts
		if file == "" {
			file = os.DevNull
			args = append(args, "-o", "StrictHostKeyChecking=no")
		}
		args = append(args, "-o", "UserKnownHostsFile="+file)
	}
	if l.Checking != string(ssh.Ask) {
		args = append(args, "-o", "StrictHostKeyChecking="+l.Checking)
	}
	for _, file := range l.Identities {
		args = append(args, "-i", file)
	}
	for _, opt := range l.LocalOpts {
		args = append(args, words(opt)...)
	}
	return args
}

// words cuts an option such as "-o StrictHostKeyChecking=no" into the option and its value, as KubeVirt's users write
// it; ssh itself takes both in one word only when no space is between them.
func words(opt string) []string {
	if name, value, found := strings.Cut(opt, " "); found && len(name) == 2 && name[0] == '-' {
		return []string{name, strings.TrimSpace(value)}
	}
	return []string{opt}
}

// destination returns the guest as ssh names it.
func destination(m machine) string {
	host := ssh.HostName(m.Target)
	if m.user != "" {
		return m.user + "@" + host
	}
	return host
}

// runLocal runs this machine's ssh or scp on our own streams. Its code becomes ours.
func (l *login) runLocal(ctx context.Context, name string, args []string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("there is no %s on this machine; leave out --local-ssh and --local-ssh-opts to use the one "+
			"built in", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = l.Factory.IO.In, l.Factory.IO.RawOut(), l.Factory.IO.RawErr()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return &cli.ExitError{Code: exit.ExitCode()}
	case err != nil:
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}

// program returns the path of this program, to start virtctl again.
func (l *login) program() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return path, nil
}
