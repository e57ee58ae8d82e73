//go:build cgo && libvirt_dlopen

// Command plain drives libvirt by itself, with nothing of virtkit's: the bench copies it into pods that have a
// libvirtd, to have something to compare a migration with.
//
//	plain dump SOCKET                          prints the XML of the daemon's domain as another daemon would get it
//	plain create SOCKET                        starts a domain from the XML on standard input
//	plain migrate SOCKET PEER QEMU DISK...     moves the domain live, peer to peer, and prints how long it took, ms
//	plain account SOCKET                       prints how long the domain that came stood still, milliseconds
//	plain written SOCKET DISK                  prints what the domain has written to a disk, as JSON
//
// PEER and QEMU are URIs, of the other daemon and of its QEMU.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"libvirt.org/go/libvirt"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: plain dump|create|migrate|account|written SOCKET [ARGUMENT]")
	}
	if err := libvirt.EventRegisterDefaultImpl(); err != nil {
		return err
	}
	go func() {
		for {
			_ = libvirt.EventRunDefaultImpl()
		}
	}()
	conn, err := libvirt.NewConnect("qemu+unix:///session?socket=" + args[1])
	if err != nil {
		return err
	}
	switch verb, rest := args[0], args[2:]; {
	case verb == "dump" && len(rest) == 0:
		return dump(conn)
	case verb == "create" && len(rest) == 0:
		text, err := io.ReadAll(os.Stdin)
		if err == nil {
			_, err = conn.DomainCreateXML(string(text), 0)
		}
		return err
	case verb == "migrate" && len(rest) >= 2:
		return migrate(conn, rest[0], rest[1], rest[2:])
	case verb == "account" && len(rest) == 0:
		return account(conn)
	case verb == "written" && len(rest) == 1:
		return written(conn, rest[0])
	}
	return fmt.Errorf("%v: unknown arguments", args)
}

func only(conn *libvirt.Connect) (*libvirt.Domain, error) {
	domains, err := conn.ListAllDomains(libvirt.CONNECT_LIST_DOMAINS_ACTIVE)
	if err == nil && len(domains) != 1 {
		err = fmt.Errorf("the daemon has %d domains", len(domains))
	}
	if err != nil {
		return nil, err
	}
	return &domains[0], nil
}

func dump(conn *libvirt.Connect) error {
	domain, err := only(conn)
	if err != nil {
		return err
	}
	text, err := domain.GetXMLDesc(libvirt.DOMAIN_XML_MIGRATABLE | libvirt.DOMAIN_XML_SECURE)
	if err == nil {
		_, err = io.WriteString(os.Stdout, text)
	}
	return err
}

func migrate(conn *libvirt.Connect, peer, qemu string, copied []string) error {
	domain, err := only(conn)
	if err != nil {
		return err
	}
	flags := libvirt.MIGRATE_LIVE | libvirt.MIGRATE_PEER2PEER
	parameters := &libvirt.DomainMigrateParameters{URISet: true, URI: qemu}
	if len(copied) > 0 {
		flags |= libvirt.MIGRATE_NON_SHARED_INC
		parameters.MigrateDisksSet, parameters.MigrateDisks = true, copied
	}
	start := time.Now()
	if err := domain.MigrateToURI3(peer, parameters, flags); err != nil {
		return err
	}
	_, err = fmt.Println(time.Since(start).Milliseconds())
	return err
}

func account(conn *libvirt.Connect) error {
	domain, err := only(conn)
	if err != nil {
		return err
	}
	info, err := domain.GetJobStats(libvirt.DOMAIN_JOB_STATS_COMPLETED | libvirt.DOMAIN_JOB_STATS_KEEP_COMPLETED)
	if err == nil && !info.DowntimeSet {
		err = errors.New("libvirt does not say how long the guest stood still")
	}
	if err != nil {
		return err
	}
	_, err = fmt.Println(info.Downtime)
	return err
}

func written(conn *libvirt.Connect, disk string) error {
	domain, err := only(conn)
	if err != nil {
		return err
	}
	stats, err := domain.BlockStats(disk)
	if err == nil && (!stats.WrBytesSet || !stats.WrReqSet) {
		err = errors.New("libvirt does not say what was written")
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]int64{
		"bytes": stats.WrBytes, "requests": stats.WrReq, "at": time.Now().UnixNano(),
	})
}
