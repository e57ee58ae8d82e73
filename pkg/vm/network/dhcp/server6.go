package dhcp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/server6"
	"golang.org/x/net/ipv6"
)

// maxReplies6 is how many messages are answered in a second. A client sends two, and waits a second before it repeats.
const maxReplies6 = 20

// Server6 answers DHCPv6 on one link until it is closed.
type Server6 struct {
	config Config6
	conn   *net.UDPConn
	log    *slog.Logger
	now    func() time.Time
	done   chan struct{}

	second  time.Time // in which replies are counted
	replies int
	given   bool // that the guest has its address was logged
}

// Listen6 starts a server in the calling process's network namespace. As with Listen, port 547 must be free to it.
func Listen6(c Config6, log *slog.Logger) (*Server6, error) {
	conn, err := server6.NewIPv6UDPConn(c.Link, &net.UDPAddr{IP: net.IPv6unspecified, Port: dhcpv6.DefaultServerPort})
	if err != nil {
		return nil, fmt.Errorf("listen for DHCPv6 on %s: %w", c.Link, err)
	}
	link, err := net.InterfaceByName(c.Link)
	if err == nil {
		err = ipv6.NewPacketConn(conn).JoinGroup(link, &net.UDPAddr{IP: dhcpv6.AllDHCPRelayAgentsAndServers})
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("listen for DHCPv6 on %s: %w", c.Link, err)
	}
	s := &Server6{config: c, conn: conn, log: log, now: time.Now, done: make(chan struct{})}
	go s.serve()
	return s, nil
}

// Close ends the server and waits for it.
func (s *Server6) Close() error {
	err := s.conn.Close()
	<-s.done
	if err != nil {
		return fmt.Errorf("close the DHCPv6 server on %s: %w", s.config.Link, err)
	}
	return nil
}

func (s *Server6) serve() {
	defer close(s.done)
	buf := make([]byte, maxPacket)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The link went down, say; the next read waits for it.
			s.log.Warn("cannot read DHCPv6", "link", s.config.Link, "err", err)
			continue
		}
		if !s.config.answers(from.Addr()) || !s.mayReply() {
			continue
		}
		req, err := dhcpv6.MessageFromBytes(buf[:n])
		if err != nil {
			continue // not DHCPv6, or a relay's
		}
		if err := s.answer(req, from); err != nil {
			s.log.Warn("cannot answer DHCPv6", "link", s.config.Link, "err", err)
		}
	}
}

// mayReply counts messages, of which a guest may send any number.
func (s *Server6) mayReply() bool {
	if now := s.now(); now.Sub(s.second) >= time.Second {
		s.second, s.replies = now, 0
	}
	s.replies++
	return s.replies <= maxReplies6
}

func (s *Server6) answer(req *dhcpv6.Message, from netip.AddrPort) error {
	reply, err := s.config.Reply(req)
	if err != nil || reply == nil {
		return err
	}
	// The socket is the link's, which needs no name then.
	to := netip.AddrPortFrom(from.Addr().WithZone(""), from.Port())
	if _, err := s.conn.WriteToUDPAddrPort(reply.ToBytes(), to); err != nil {
		return err
	}
	if ia := reply.Options.OneIANA(); reply.MessageType == dhcpv6.MessageTypeReply && ia != nil && !s.given {
		s.given = true
		s.log.Info("gave the guest its address", "link", s.config.Link, "address", s.config.Client.String())
	}
	return nil
}
