package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"
)

// handshake bounds one try to connect: QEMU takes the connection long before there is anybody to answer.
const handshake = 30 * time.Second

// connect opens an SSH connection to the machine of a directory.
func connect(ctx context.Context, dir string) (*ssh.Client, error) {
	config, err := sshConfig(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	p, err := port(ctx, dir)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(p))
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to the lab: %w", err)
	}
	return ssh.NewClient(c, channels, requests), nil
}

// Run runs a shell command in the machine, as root, until it ends or ctx does. What it writes goes to out as it comes.
func (m *Machine) Run(ctx context.Context, stdin io.Reader, out, errOut io.Writer, command string) error {
	session, err := m.Client.NewSession()
	if err != nil {
		return fmt.Errorf("run in the lab: %w", err)
	}
	defer session.Close()
	session.Stdin, session.Stdout, session.Stderr = stdin, out, errOut
	if err := session.Start(command); err != nil {
		return fmt.Errorf("run in the lab: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		_ = session.Signal(ssh.SIGTERM) // both fail only when it has ended
		_ = session.Close()
	})()
	err = session.Wait()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		var exit *ssh.ExitError
		if !errors.As(err, &exit) && ctx.Err() == nil {
			err = errors.Join(err, m.whyEnded())
		}
		return fmt.Errorf("in the lab, %s: %w", command, err)
	}
	return nil
}

// Output runs a shell command and returns what it printed; an error has what it complained of.
func (m *Machine) Output(ctx context.Context, command string) (string, error) {
	var out, complaint bytes.Buffer
	err := m.Run(ctx, nil, &out, &complaint, command)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, lastLines(complaint.String(), 10))
	}
	return strings.TrimSpace(out.String()), err
}

// Forward listens on a free port of loopback, until ctx ends, for connections to an address as the machine sees it.
func (m *Machine) Forward(ctx context.Context, address string) (local string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go m.carry(conn, address)
		}
	}()
	return listener.Addr().String(), nil
}

// carry joins a connection to one inside, until either ends.
func (m *Machine) carry(conn net.Conn, address string) {
	defer conn.Close()
	inside, err := m.Client.Dial("tcp", address)
	if err != nil {
		return // the client sees that it is closed, as if nobody listened
	}
	defer inside.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, inside}, {inside, conn}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			way[0].Close()
			way[1].Close()
		})
	}
	both.Wait()
}

// Shell gives this process's terminal a shell in the machine, and returns its exit code. Without a terminal the shell
// reads commands from stdin.
func (m *Machine) Shell(ctx context.Context) (code int, err error) {
	session, err := m.Client.NewSession()
	if err != nil {
		return 0, err
	}
	defer session.Close()
	defer context.AfterFunc(ctx, func() { session.Close() })()
	session.Stdin, session.Stdout, session.Stderr = os.Stdin, os.Stdout, os.Stderr
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		columns, rows, err := term.GetSize(fd)
		if err != nil {
			return 0, err
		}
		kind := os.Getenv("TERM")
		if kind == "" {
			kind = "vt100"
		}
		if err := session.RequestPty(kind, rows, columns, ssh.TerminalModes{}); err != nil {
			return 0, err
		}
		before, err := term.MakeRaw(fd)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, term.Restore(fd, before)) }()
		defer followSize(fd, session)()
	}
	if err := session.Shell(); err != nil {
		return 0, err
	}
	err = session.Wait()
	if exit := (*ssh.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitStatus(), nil
	}
	return 0, err
}
