package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// bringUp brings up the named devices, or all, each by itself at the same time. A nil Network
// means DHCP everywhere.
func bringUp(n *Network, only ...string) error {
	devices, err := devices()
	if err != nil {
		return err
	}
	plan := map[string]Interface{}
	if n == nil {
		for _, d := range devices {
			plan[d.Name] = Interface{DHCP4: true}
		}
	} else {
		for _, s := range n.Ignored {
			say("network-config: " + s)
		}
		plan = n.assign(devices)
		if err := writeResolver(n); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	failed := make([]error, len(devices))
	for k, d := range devices {
		i, ok := plan[d.Name]
		if !ok || len(only) > 0 && !slices.Contains(only, d.Name) {
			continue
		}
		wg.Go(func() { failed[k] = runAll(i.commands(d.Name)) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

func runAll(commands [][]string) error {
	var failed []error
	for _, c := range commands {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, strings.TrimSpace(string(out))))
		}
	}
	return errors.Join(failed...)
}

// devices are the guest's Ethernet interfaces.
func devices() ([]Device, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var found []Device
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && len(i.HardwareAddr) == 6 {
			found = append(found, Device{i.Name, i.HardwareAddr.String()})
		}
	}
	return found, nil
}

// writeResolver leaves the name servers where the DHCP client leaves its own and puts all together.
func writeResolver(n *Network) error {
	var s strings.Builder
	if len(n.Search) > 0 {
		fmt.Fprintln(&s, "search", strings.Join(n.Search, " "))
	}
	for _, d := range n.DNS {
		fmt.Fprintln(&s, "nameserver", d)
	}
	if s.Len() == 0 {
		return nil
	}
	if err := os.MkdirAll("/run/resolver", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("/run/resolver/0-static", []byte(s.String()), 0o644); err != nil {
		return err
	}
	return runAll([][]string{{"/usr/lib/tiny/resolver"}})
}
