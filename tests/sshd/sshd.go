// Package sshd is a small ssh server for tests: it knows some keys and passwords, runs commands of few words, forwards
// ports and serves sftp on this machine's files.
//
// Its commands: `exit N`; `cat` copies input to output; `both` writes to stdout and stderr; `size` says the terminal's
// size, and again whenever that changes; `wait` ends by the first signal it gets; `drop` cuts the connection; anything
// else is said back.
package sshd

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Server is one machine.
type Server struct {
	// HostKey is what it is known by.
	HostKey ssh.Signer
	// Keys may log in, as any user.
	Keys []ssh.PublicKey
	// Password is what the user may log in with; "" is none. Interactive asks for it by questions.
	Password    string
	Interactive bool
	// Dir is where sftp's relative paths begin.
	Dir string

	work sync.WaitGroup
}

// NewKey makes a key.
func NewKey() (ed25519.PrivateKey, ssh.Signer, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, nil, err
	}
	signer, err := ssh.NewSignerFromKey(key)
	return key, signer, err
}

var errDenied = errors.New("denied")

func (s *Server) config() *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			for _, known := range s.Keys {
				if string(known.Marshal()) == string(key.Marshal()) {
					return nil, nil
				}
			}
			return nil, errDenied
		},
	}
	if s.Password != "" && s.Interactive {
		config.KeyboardInteractiveCallback = func(
			_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge,
		) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"What is the \x1b[31mword? "}, []bool{false})
			if err != nil || len(answers) != 1 || answers[0] != s.Password {
				return nil, errDenied
			}
			return nil, nil
		}
	} else if s.Password != "" {
		config.PasswordCallback = func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			if string(password) != s.Password {
				return nil, errDenied
			}
			return nil, nil
		}
	}
	config.AddHostKey(s.HostKey)
	return config
}

// Serve speaks with one client until it goes, and closes conn.
func (s *Server) Serve(conn net.Conn) {
	defer conn.Close()
	c, channels, requests, err := ssh.NewServerConn(conn, s.config())
	if err != nil {
		return
	}
	defer c.Close()
	var work sync.WaitGroup
	work.Go(func() { s.global(c, requests) })
	for nc := range channels {
		switch nc.ChannelType() {
		case "session":
			if ch, reqs, err := nc.Accept(); err == nil {
				work.Go(func() { s.session(c, ch, reqs) })
			}
		case "direct-tcpip":
			work.Go(func() { direct(nc) })
		default:
			_ = nc.Reject(ssh.UnknownChannelType, "no such channel")
		}
	}
	work.Wait()
}

// direct connects to where the client wants.
func direct(nc ssh.NewChannel) {
	var to struct {
		Host   string
		Port   uint32
		Origin string
		From   uint32
	}
	if err := ssh.Unmarshal(nc.ExtraData(), &to); err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(to.Host, fmt.Sprint(to.Port)))
	if err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, reqs, err := nc.Accept()
	if err != nil {
		conn.Close()
		return
	}
	go ssh.DiscardRequests(reqs)
	splice(ch, conn.(*net.TCPConn))
}

func splice(ch ssh.Channel, conn *net.TCPConn) {
	defer ch.Close()
	defer conn.Close()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(ch, conn); _ = ch.CloseWrite() })
	both.Go(func() { _, _ = io.Copy(conn, ch); _ = conn.CloseWrite() })
	both.Wait()
}

// global listens for the client.
func (s *Server) global(c *ssh.ServerConn, requests <-chan *ssh.Request) {
	var work sync.WaitGroup
	defer work.Wait()
	for r := range requests {
		if r.Type != "tcpip-forward" {
			_ = r.Reply(false, nil)
			continue
		}
		var bind struct {
			Host string
			Port uint32
		}
		if err := ssh.Unmarshal(r.Payload, &bind); err != nil {
			_ = r.Reply(false, nil)
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(bind.Port)))
		if err != nil {
			_ = r.Reply(false, nil)
			continue
		}
		port := uint32(l.Addr().(*net.TCPAddr).Port)
		_ = r.Reply(true, ssh.Marshal(struct{ Port uint32 }{port}))
		work.Go(func() { _ = c.Wait(); l.Close() })
		work.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				ch, reqs, err := c.OpenChannel("forwarded-tcpip", ssh.Marshal(struct {
					Host   string
					Port   uint32
					Origin string
					From   uint32
				}{bind.Host, port, "127.0.0.1", 1}))
				if err != nil {
					conn.Close()
					continue
				}
				go ssh.DiscardRequests(reqs)
				work.Go(func() { splice(ch, conn.(*net.TCPConn)) })
			}
		})
	}
}

// session is one command, shell or subsystem.
func (s *Server) session(c *ssh.ServerConn, ch ssh.Channel, reqs <-chan *ssh.Request) {
	defer ch.Close()
	signals := make(chan string, 10)
	sizes := make(chan string, 10)
	for r := range reqs {
		switch r.Type {
		case "pty-req":
			var pty struct {
				Term                string
				Width, Height, X, Y uint32
				Modes               string
			}
			_ = r.Reply(ssh.Unmarshal(r.Payload, &pty) == nil, nil)
			sizes <- fmt.Sprintf("%s %dx%d", pty.Term, pty.Width, pty.Height)
		case "window-change":
			var size struct{ Width, Height, X, Y uint32 }
			if ssh.Unmarshal(r.Payload, &size) == nil {
				sizes <- fmt.Sprintf("%dx%d", size.Width, size.Height)
			}
		case "signal":
			var signal struct{ Name string }
			if ssh.Unmarshal(r.Payload, &signal) == nil {
				signals <- signal.Name
			}
		case "shell", "exec":
			var command struct{ Line string }
			if r.Type == "exec" && ssh.Unmarshal(r.Payload, &command) != nil {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			s.work.Add(1)
			go func() {
				defer s.work.Done()
				defer ch.Close()
				run(c, ch, command.Line, signals, sizes)
			}()
		case "subsystem":
			_ = r.Reply(true, nil)
			server, err := sftp.NewServer(ch, sftp.WithServerWorkingDirectory(s.Dir))
			if err != nil {
				return
			}
			s.work.Add(1)
			go func() {
				defer s.work.Done()
				defer ch.Close()
				_ = server.Serve()
			}()
		default:
			if r.WantReply {
				_ = r.Reply(false, nil)
			}
		}
	}
}

func run(c *ssh.ServerConn, ch ssh.Channel, line string, signals, sizes <-chan string) {
	exit := func(code int) {
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
	}
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "exit":
		code, _ := strconv.Atoi(rest)
		exit(code)
	case "cat":
		_, _ = io.Copy(ch, ch)
		exit(0)
	case "both":
		_, _ = io.WriteString(ch, "out\n")
		_, _ = io.WriteString(ch.Stderr(), "err\n")
		exit(0)
	case "size":
		fmt.Fprintln(ch, <-sizes)
		if rest == "twice" {
			fmt.Fprintln(ch, <-sizes)
		}
		exit(0)
	case "wait":
		fmt.Fprintln(ch, "waiting")
		signal := <-signals
		_, _ = ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal         string
			Core           bool
			Message, Labng string
		}{Signal: signal}))
	case "drop":
		c.Close()
	case "":
		_, _ = io.WriteString(ch, "welcome\r\n")
		_, _ = io.Copy(ch, ch)
		exit(0)
	default:
		fmt.Fprintf(ch, "you said %s\n", line)
		exit(0)
	}
}
