package dhcp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
)

// Server answers on one link until it is closed.
type Server struct {
	config Config
	conn   *net.UDPConn
	log    *slog.Logger
	done   chan struct{}
}

// Listen starts a server in the calling process's network namespace. Port 67 must be free to it: in the
// launcher pod, which is not root, a sysctl lowers the first unprivileged port.
func Listen(c Config, log *slog.Logger) (*Server, error) {
	conn, err := server4.NewIPv4UDPConn(c.Link, &net.UDPAddr{Port: dhcpv4.ServerPort})
	if err != nil {
		return nil, fmt.Errorf("listen for DHCP on %s: %w", c.Link, err)
	}
	s := &Server{config: c, conn: conn, log: log, done: make(chan struct{})}
	go s.serve()
	return s, nil
}

// Close ends the server and waits for it.
func (s *Server) Close() error {
	err := s.conn.Close()
	<-s.done
	if err != nil {
		return fmt.Errorf("close the DHCP server on %s: %w", s.config.Link, err)
	}
	return nil
}

// maxPacket is more than a link carries in one piece.
const maxPacket = 4 << 10

func (s *Server) serve() {
	defer close(s.done)
	buf := make([]byte, maxPacket)
	for {
		n, from, err := s.conn.ReadFromUDP(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The link went down, say; the next read waits for it.
			s.log.Warn("cannot read DHCP", "link", s.config.Link, "err", err)
			continue
		}
		req, err := dhcpv4.FromBytes(buf[:n])
		if err != nil {
			continue // not DHCP
		}
		if err := s.answer(req, from); err != nil {
			s.log.Warn("cannot answer DHCP", "link", s.config.Link, "err", err)
		}
	}
}

func (s *Server) answer(req *dhcpv4.DHCPv4, from *net.UDPAddr) error {
	reply, err := s.config.Reply(req)
	if err != nil || reply == nil {
		return err
	}
	to := &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort}
	if !req.ClientIPAddr.IsUnspecified() && from.IP.Equal(req.ClientIPAddr) &&
		reply.MessageType() != dhcpv4.MessageTypeNak {
		to = from
	}
	if _, err := s.conn.WriteToUDP(reply.ToBytes(), to); err != nil {
		return err
	}
	if reply.MessageType() == dhcpv4.MessageTypeAck {
		s.log.Info("gave the guest its address", "link", s.config.Link, "address", s.config.Client.String())
	}
	return nil
}
