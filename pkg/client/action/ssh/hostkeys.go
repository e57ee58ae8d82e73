package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Checking says what to do about a host key that is not known; the words are those of OpenSSH's StrictHostKeyChecking.
type Checking string

const (
	// Ask asks the user, and refuses where there is none.
	Ask Checking = "ask"
	// Strict refuses.
	Strict Checking = "yes"
	// AcceptNew remembers it. A key that differs from a known one is refused.
	AcceptNew Checking = "accept-new"
	// Unchecked takes any key, also one that differs from a known one.
	Unchecked Checking = "no"
)

// HostKeys are the keys that guests are known by: a file as OpenSSH's known_hosts.
type HostKeys struct {
	// File is where they are; it and its directory are made when needed. "" checks nothing.
	File string
	// Checking is Ask unless set.
	Checking Checking
	// Prompt asks; nil is nobody to ask.
	Prompt Prompter
	// Notify, which may be nil, is called with notices for the user.
	Notify func(notice string)
}

// HostKeyError is a guest that is not the one that is known, or is not known.
type HostKeyError struct{ msg string }

func (e *HostKeyError) Error() string { return e.msg }

// nowhere is the address of a stream, which has none that a host key could be known by.
var nowhere = &net.TCPAddr{IP: net.IPv4zero}

// callback checks the key of address, HOST:PORT. algorithms are those of the known keys, which must be asked for: a
// server has several keys and would else offer one that is not known. nil is any.
func (h *HostKeys) callback(address string) (check ssh.HostKeyCallback, algorithms []string, err error) {
	if h.File == "" {
		return ssh.InsecureIgnoreHostKey(), nil, nil //nolint:gosec // the user's wish
	}
	known := func(string, net.Addr, ssh.PublicKey) error { return &knownhosts.KeyError{} }
	if _, err := os.Stat(h.File); err == nil {
		read, err := knownhosts.New(h.File)
		if err != nil {
			return nil, nil, fmt.Errorf("read the known hosts: %w", err)
		}
		known = read
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the known hosts: %w", err)
	}
	var unlike *knownhosts.KeyError
	if errors.As(known(address, nowhere, noKey{}), &unlike) {
		for _, want := range unlike.Want {
			algorithms = append(algorithms, algorithmsOf(want.Key.Type())...)
		}
	}
	return func(_ string, _ net.Addr, key ssh.PublicKey) error {
		return h.check(address, key, known(address, nowhere, key))
	}, algorithms, nil
}

// algorithmsOf returns the signature algorithms of a kind of key.
func algorithmsOf(kind string) []string {
	if kind == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSA}
	}
	return []string{kind}
}

// noKey equals no key.
type noKey struct{ ssh.PublicKey }

func (noKey) Type() string    { return "none" }
func (noKey) Marshal() []byte { return nil }

func (h *HostKeys) check(address string, key ssh.PublicKey, err error) error {
	host := knownhosts.Normalize(address)
	var unlike *knownhosts.KeyError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &unlike):
		return &HostKeyError{fmt.Sprintf("the host key of %s: %s", host, err)}
	case len(unlike.Want) > 0 && h.Checking == Unchecked:
		h.notify(fmt.Sprintf("Warning: the host key of %s has changed and is not checked.", host))
		return nil
	case len(unlike.Want) > 0:
		old := unlike.Want[0]
		return &HostKeyError{fmt.Sprintf("the host key of %s has changed: it is %s %s, and %s:%d has another. Either "+
			"the machine is a new one, as one that starts from a container disk is each time, or someone intercepts "+
			"the connection. If it is new, forget the old key with `ssh-keygen -R '%s' -f '%s'`",
			host, key.Type(), ssh.FingerprintSHA256(key), old.Filename, old.Line, host, h.File)}
	case h.Checking == Strict:
		return &HostKeyError{fmt.Sprintf("the host key of %s is not known: %s %s is not in %s", host, key.Type(),
			ssh.FingerprintSHA256(key), h.File)}
	case h.Checking != AcceptNew && h.Checking != Unchecked:
		if err := h.ask(host, key); err != nil {
			return err
		}
	}
	return h.remember(host, key)
}

func (h *HostKeys) ask(host string, key ssh.PublicKey) error {
	print := ssh.FingerprintSHA256(key)
	if h.Prompt == nil {
		return &HostKeyError{fmt.Sprintf("the host key of %s is not known, and there is no terminal to ask: it is %s "+
			"%s; trust it with --strict-host-key-checking=accept-new", host, key.Type(), print)}
	}
	question := fmt.Sprintf("The authenticity of host '%s' can't be established.\n%s key fingerprint is %s.\nAre you "+
		"sure you want to continue connecting (yes/no/[fingerprint])? ", host, key.Type(), print)
	for {
		answer, err := h.Prompt.Line(question)
		if err != nil {
			return fmt.Errorf("ask about the host key: %w", err)
		}
		switch answer = strings.TrimSpace(answer); {
		case strings.EqualFold(answer, "yes"), answer == print:
			return nil
		case strings.EqualFold(answer, "no"):
			return &HostKeyError{"host key verification failed"}
		}
		question = "Please type 'yes', 'no' or the fingerprint: "
	}
}

// remember adds the key to the file.
func (h *HostKeys) remember(host string, key ssh.PublicKey) error {
	if err := os.MkdirAll(filepath.Dir(h.File), 0o700); err != nil {
		return fmt.Errorf("remember the host key: %w", err)
	}
	line := []byte(knownhosts.Line([]string{host}, key) + "\n")
	old, err := os.ReadFile(h.File)
	if err == nil && len(old) > 0 && !bytes.HasSuffix(old, []byte("\n")) {
		line = slices.Insert(line, 0, '\n')
	}
	file, err := os.OpenFile(h.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("remember the host key: %w", err)
	}
	_, err = file.Write(line)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("remember the host key: %w", err)
	}
	h.notify(fmt.Sprintf("Warning: Permanently added '%s' (%s) to the list of known hosts.", host, key.Type()))
	return nil
}

func (h *HostKeys) notify(notice string) {
	if h.Notify != nil {
		h.Notify(notice)
	}
}
