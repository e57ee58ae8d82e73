package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// locked is a hash in /etc/shadow that no password has. The customary "!" makes busybox's login
// complain about bad salt.
const locked = "$6$locked$!"

// firstUID is the first user's and group's number.
const firstUID = 1000

// addUser makes a user with a group of the same name, or only changes one that is there.
func (s *system) addUser(u User) error {
	passwd, err := os.ReadFile(s.path("/etc/passwd"))
	if err != nil {
		return err
	}
	home := cmp.Or(u.Home, "/home/"+u.Name)
	if u.Name != "root" && !hasLine(passwd, u.Name) {
		group, err := os.ReadFile(s.path("/etc/group"))
		if err != nil {
			return err
		}
		uid := u.UID
		if uid == 0 {
			uid = max(nextUID(passwd), nextUID(group))
		}
		shell := cmp.Or(u.Shell, "/bin/sh")
		if _, err := os.Stat(s.path(shell)); err != nil {
			shell = "/bin/sh" // cloud-init files often ask for bash
		}
		if strings.ContainsAny(u.Comment+home+shell, ":\n") {
			return errors.New("gecos, homedir and shell must not contain a colon")
		}
		for file, line := range map[string]string{
			"/etc/passwd": fmt.Sprintf("%s:x:%d:%d:%s:%s:%s", u.Name, uid, uid, u.Comment, home, shell),
			"/etc/group":  fmt.Sprintf("%s:x:%d:", u.Name, uid),
			"/etc/shadow": fmt.Sprintf("%s:%s:19000:0:99999:7:::", u.Name, locked),
		} {
			if err := s.appendLine(file, line); err != nil {
				return err
			}
		}
		if !u.NoHome {
			if err := os.MkdirAll(s.path(home), 0o755); err != nil {
				return err
			}
			if err := s.chown(fmt.Sprintf("%d:%d", uid, uid), s.path(home)); err != nil {
				return err
			}
		}
	}
	for _, g := range u.Groups {
		if err := s.joinGroup(u.Name, g); err != nil {
			return err
		}
	}
	if u.Lock != nil && !*u.Lock {
		hash := cmp.Or(u.Hash, u.Hashed)
		switch {
		case hash != "":
			err = s.password(Password{u.Name, hash, "hash"})
		case u.Plain != "":
			err = s.password(Password{u.Name, u.Plain, "text"})
		}
		if err != nil {
			return err
		}
	}
	return s.authorize(u.Name, u.Keys)
}

// authorize adds keys to a user's authorized_keys.
func (s *system) authorize(user string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	uid, home, err := s.lookup(user)
	if err != nil {
		return err
	}
	dir := filepath.Join(home, ".ssh")
	file := filepath.Join(dir, "authorized_keys")
	old, err := os.ReadFile(s.path(file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text := string(old)
	for _, k := range keys {
		if k = strings.TrimSpace(k); k != "" && !strings.Contains(text, k+"\n") {
			text += k + "\n"
		}
	}
	if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
		return err
	}
	if err := s.write(file, []byte(text), 0o600); err != nil {
		return err
	}
	return s.chown(fmt.Sprintf("%d:%d", uid, uid), "-R", s.path(dir))
}

// lookup finds a user's number and home.
func (s *system) lookup(user string) (uid int, home string, err error) {
	passwd, err := os.ReadFile(s.path("/etc/passwd"))
	if err != nil {
		return 0, "", err
	}
	for line := range strings.Lines(string(passwd)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == 7 && f[0] == user {
			uid, err := strconv.Atoi(f[2])
			return uid, f[5], err
		}
	}
	return 0, "", fmt.Errorf("no user %q", user)
}

func (s *system) joinGroup(user, group string) error {
	if err := checkName(group); err != nil {
		return err
	}
	data, err := os.ReadFile(s.path("/etc/group"))
	if err != nil {
		return err
	}
	if !hasLine(data, group) {
		return s.appendLine("/etc/group", fmt.Sprintf("%s:x:%d:%s", group, nextUID(data), user))
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, group+":") {
			if !strings.HasSuffix(line, ":") {
				line += ","
			}
			line += user
		}
		out.WriteString(line + "\n")
	}
	return s.write("/etc/group", []byte(out.String()), 0o644)
}

// setHash puts a password's hash into /etc/shadow.
func (s *system) setHash(user, hash string) error {
	data, err := os.ReadFile(s.path("/etc/shadow"))
	if err != nil {
		return err
	}
	if !hasLine(data, user) {
		return fmt.Errorf("no user %q", user)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		if f := strings.SplitN(line, ":", 3); len(f) == 3 && f[0] == user {
			line = f[0] + ":" + hash + ":" + f[2]
		}
		out.WriteString(line)
	}
	return s.write("/etc/shadow", []byte(out.String()), 0o600)
}

func (s *system) appendLine(name, line string) error {
	f, err := os.OpenFile(s.path(name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// hasLine says whether a file such as passwd has an entry of that name.
func hasLine(data []byte, name string) bool {
	return strings.HasPrefix(string(data), name+":") || strings.Contains(string(data), "\n"+name+":")
}

// nextUID is one above the highest ordinary number in a passwd or group file.
func nextUID(data []byte) int {
	next := firstUID
	for line := range strings.Lines(string(data)) {
		f := strings.Split(line, ":")
		if len(f) < 3 {
			continue
		}
		if n, err := strconv.Atoi(f[2]); err == nil && n >= next && n < 60000 {
			next = n + 1
		}
	}
	return next
}
