package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// system is the guest that a Config is applied to. Root is "/" but in tests.
type system struct {
	Root string
	// exec runs a command with an input and gives its output; nil runs it for real.
	exec func(stdin string, words ...string) (string, error)
}

func (s *system) path(name string) string { return filepath.Join(s.Root, name) }

func (s *system) run(stdin string, words ...string) (string, error) {
	if s.exec != nil {
		return s.exec(stdin, words...)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", words[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// chown changes who a file belongs to.
func (s *system) chown(owner string, flagsAndName ...string) error {
	words := append([]string{"chown"}, flagsAndName[:len(flagsAndName)-1]...)
	_, err := s.run("", append(words, owner, flagsAndName[len(flagsAndName)-1])...)
	return err
}

// local does everything that must be there before services and logins: one failure does not
// keep the rest from being done.
func (s *system) local(c *Config) error {
	var failed []error
	try := func(what string, err error) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		}
	}
	for _, i := range c.Ignored {
		say("cloud-init: " + i)
	}
	try("hostname", s.hostname(c.Hostname))
	for _, u := range c.Users {
		try("user "+u.Name, s.addUser(u))
	}
	try("ssh keys", s.authorize("root", c.Keys))
	if c.User != "root" && c.User != "" {
		try("ssh keys", s.authorize(c.User, c.Keys))
	}
	try("password", s.passwords(c))
	if c.SSHPassword != nil && !*c.SSHPassword {
		try("ssh_pwauth", s.write("/etc/dropbear/no-passwords", nil, 0o644))
	}
	if c.InstanceID != "" {
		try("instance-id", s.write("/run/cloud-init/instance-id", []byte(c.InstanceID+"\n"), 0o644))
	}
	for _, f := range c.Files {
		try("write_files "+f.Path, s.file(f))
	}
	if len(c.Boot) > 0 {
		try("bootcmd", s.script("/run/cloud-init/bootcmd", shellScript(c.Boot)))
	}
	return errors.Join(failed...)
}

// final runs the user's own commands.
func (s *system) final(c *Config) error {
	if len(c.Script) > 0 {
		return s.script("/run/cloud-init/user-data", c.Script)
	}
	if len(c.Run) > 0 {
		return s.script("/run/cloud-init/runcmd", shellScript(c.Run))
	}
	return nil
}

func (s *system) write(name string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.path(name), data, mode); err != nil {
		return err
	}
	return os.Chmod(s.path(name), mode)
}

func (s *system) hostname(name string) error {
	name, _, _ = strings.Cut(name, ".")
	if name == "" {
		return nil
	}
	if err := s.write("/etc/hostname", []byte(name+"\n"), 0o644); err != nil {
		return err
	}
	if err := s.write("/etc/hosts", []byte("127.0.0.1 localhost\n127.0.1.1 "+name+"\n::1 localhost\n"), 0o644); err !=
		nil {
		return err
	}
	if s.Root != "/" {
		return nil
	}
	return syscall.Sethostname([]byte(name))
}

// passwords sets those of the default user and of chpasswd.
func (s *system) passwords(c *Config) error {
	set := c.Set
	if c.Password != "" {
		p := Password{Name: c.User, Value: c.Password, Type: "text"}
		if hashed(c.Password) {
			p.Type = "hash"
		}
		set = append([]Password{p}, set...)
	}
	var failed []error
	for _, p := range set {
		if p.Type == "RANDOM" {
			p.Value = rand.Text()[:20]
			say(fmt.Sprintf("cloud-init: password of %s is %s", p.Name, p.Value))
		}
		failed = append(failed, s.password(p))
	}
	return errors.Join(failed...)
}

func (s *system) password(p Password) error {
	if strings.ContainsAny(p.Value, "\r\n") {
		return fmt.Errorf("user %s: a password is one line", p.Name)
	}
	hash := p.Value
	if p.Type != "hash" {
		var err error
		if hash, err = s.run(p.Value+"\n", "mkpasswd", "-m", "sha512", "-P", "0"); err != nil {
			return err
		}
	}
	if strings.Contains(hash, ":") {
		return fmt.Errorf("user %s: a password's hash has no colon", p.Name)
	}
	if p.Name == "root" {
		// The screen must not go on telling a password that no longer works.
		if err := s.write("/etc/issue", []byte("tiny guest of virtkit, \\n on \\l. Log in as cloud-init was told.\n\n"),
			0o644); err != nil {
			return err
		}
	}
	return s.setHash(p.Name, hash)
}

func (s *system) file(f File) error {
	name := s.path(f.Path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if f.Append {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	mode := os.FileMode(0o644)
	if f.Permissions != 0 {
		mode = f.Permissions.fileMode()
	}
	out, err := os.OpenFile(name, flags, mode)
	if err != nil {
		return err
	}
	_, err = out.Write(f.Data)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if err := os.Chmod(name, mode); err != nil {
		return err
	}
	if f.Owner != "" {
		return s.chown(f.Owner, name)
	}
	return nil
}

// script writes and runs a script, its output going to the console and to the log that cloud-init
// keeps.
func (s *system) script(name string, data []byte) error {
	if err := s.write(name, data, 0o700); err != nil {
		return err
	}
	if s.exec != nil {
		_, err := s.exec("", name)
		return err
	}
	log, err := os.OpenFile("/var/log/cloud-init-output.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	var out io.Writer = log
	if console, err := os.OpenFile("/dev/console", os.O_WRONLY, 0); err == nil {
		defer console.Close()
		out = io.MultiWriter(log, console)
	}
	cmd := exec.Command(name)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, "/"
	cmd.Env = append(os.Environ(), "HOME=/root")
	return cmd.Run()
}
