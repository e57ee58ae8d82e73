// Command nocloud is the tiny guest's cloud-init: it reads the NoCloud files that a VM's cloudInitNoCloud
// volume carries and does what they say. The boot script copies those files to /run/seed and then calls
//
//	nocloud local     hostname, users, ssh keys, files, boot commands: before anything else runs
//	nocloud network   every network interface, as network-config says or else by DHCP; returns when done
//	nocloud ifup IF   one interface, when it has been plugged in later
//	nocloud final     runcmd, or the user-data itself when it is a script
//
// The tiny guest's root file system is made anew at each boot, so each boot is a first boot and every
// command runs every time. Reading (userdata.go, network.go) is pure and tested without a guest; apply.go
// and netapply.go change the system.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nocloud:", err)
		say("cloud-init: " + err.Error())
		os.Exit(1)
	}
}

func run(args []string) error {
	seed := "/run/seed"
	s := &system{Root: "/"}
	switch {
	case len(args) == 1 && args[0] == "local":
		c, err := readSeed(seed)
		return errors.Join(err, s.local(c))
	case len(args) == 1 && args[0] == "final":
		c, err := readSeed(seed)
		return errors.Join(err, s.final(c))
	case len(args) == 1 && args[0] == "network":
		n, err := readNetwork(seed)
		return errors.Join(err, bringUp(n))
	case len(args) == 2 && args[0] == "ifup":
		n, err := readNetwork(seed)
		return errors.Join(err, bringUp(n, args[1]))
	}
	return errors.New("usage: nocloud local | network | ifup INTERFACE | final")
}

// readSeed reads meta-data and user-data. What could be read is given even when there is an error.
func readSeed(dir string) (*Config, error) {
	meta, err := readFirst(dir, "meta-data", "openstack/latest/meta_data.json")
	if err != nil {
		return &Config{}, err
	}
	user, err := readFirst(dir, "user-data", "openstack/latest/user_data")
	if err != nil {
		return &Config{}, err
	}
	c, err := ParseUserData(user)
	if err != nil {
		err = fmt.Errorf("user-data: %w", err)
	}
	m, merr := ParseMetaData(meta)
	if merr != nil {
		merr = fmt.Errorf("meta-data: %w", merr)
	}
	c.addMeta(m)
	return c, errors.Join(err, merr)
}

// readNetwork reads network-config; nil when there is none or when it cannot be understood, so
// that the guest still gets its addresses by DHCP.
func readNetwork(dir string) (*Network, error) {
	data, err := readFirst(dir, "network-config")
	if err != nil || len(strings.TrimSpace(string(data))) == 0 {
		return nil, err
	}
	n, err := ParseNetwork(data)
	if err != nil {
		return nil, fmt.Errorf("network-config: %w; using DHCP", err)
	}
	return n, nil
}

// readFirst reads the first of the names that exists; nothing when none does.
func readFirst(dir string, names ...string) ([]byte, error) {
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if !errors.Is(err, os.ErrNotExist) {
			return data, err
		}
	}
	return nil, nil
}

// say shows a line on the serial console and on the screen.
func say(line string) {
	for _, tty := range []string{"/dev/ttyS0", "/dev/tty1"} {
		f, err := os.OpenFile(tty, os.O_WRONLY, 0)
		if err != nil {
			continue // a guest may have no screen, or no serial port
		}
		fmt.Fprintf(f, "tiny: %s\r\n", line)
		f.Close()
	}
}
