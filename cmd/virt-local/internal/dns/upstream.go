package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// ResolvConf returns an Upstream for Server: the name servers in a resolv.conf, read anew for each question, as a
// laptop's change. They are asked in order.
func ResolvConf(path string) func(ctx context.Context, network string, query []byte) ([]byte, error) {
	return func(ctx context.Context, network string, query []byte) ([]byte, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("find name servers: %w", err)
		}
		err = errors.New("the machine has no name server")
		for _, server := range nameservers(b) {
			var answer []byte
			if answer, err = ask(ctx, network, net.JoinHostPort(server, "53"), query); err == nil {
				return answer, nil
			}
		}
		return nil, err
	}
}

func nameservers(resolvConf []byte) []string {
	var servers []string
	for line := range strings.Lines(string(resolvConf)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			servers = append(servers, fields[1])
		}
	}
	return servers
}

// ask sends a query and waits up to two seconds for the answer to it.
func ask(ctx context.Context, network, server string, query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if network == "tcp" {
		if err := writeMessage(conn, query); err != nil {
			return nil, err
		}
		return readMessage(conn)
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buf := make([]byte, 65535)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		if n >= 2 && bytes.Equal(buf[:2], query[:2]) {
			return buf[:n], nil
		}
	}
}
