package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sync/errgroup"
)

// ttl of our answers in seconds: short, since Services come and go.
const ttl = 5

// Server answers over UDP and TCP.
type Server struct {
	Cluster Cluster
	// Upstream answers other names: it gets and returns whole messages. network is udp or tcp, as the
	// question came.
	Upstream func(ctx context.Context, network string, query []byte) ([]byte, error)
}

// Serve serves on the sockets until ctx is done, and closes them.
func (s Server) Serve(ctx context.Context, udp net.PacketConn, tcp net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { udp.Close(); tcp.Close() })
	defer stop()
	group.Go(func() error { return ended(ctx, s.serveUDP(ctx, udp)) })
	group.Go(func() error { return ended(ctx, s.serveTCP(ctx, tcp)) })
	return group.Wait()
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return fmt.Errorf("serve DNS: %w", err)
	}
	return nil
}

func (s Server) serveUDP(ctx context.Context, conn net.PacketConn) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	// Questions to the machine's name servers may take long; so many may be waiting.
	slots := make(chan struct{}, 256)
	for {
		buf := make([]byte, 4096)
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if reply := s.answer(ctx, "udp", buf[:n]); reply != nil {
				// Whether it arrives is the client's to find out; it asks again.
				_, _ = conn.WriteTo(reply, from)
			}
		})
	}
}

func (s Server) serveTCP(ctx context.Context, l net.Listener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			s.serveConn(ctx, conn)
		})
	}
}

// serveConn answers until the client has had enough; messages have their length before them.
func (s Server) serveConn(ctx context.Context, conn net.Conn) {
	for {
		if conn.SetDeadline(time.Now().Add(10*time.Second)) != nil {
			return
		}
		query, err := readMessage(conn)
		if err != nil {
			return
		}
		reply := s.answer(ctx, "tcp", query)
		if reply == nil || writeMessage(conn, reply) != nil {
			return
		}
	}
}

func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

func writeMessage(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}

// answer makes the reply to a query; nil for what is no query.
func (s Server) answer(ctx context.Context, network string, query []byte) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return reply(header, nil, dnsmessage.RCodeFormatError, nil, nil, 512)
	}
	limit := 512
	if network == "tcp" {
		limit = 65535
	} else if size := ednsSize(&p); size > limit {
		limit = size
	}
	found := Lookup(s.Cluster, q.Name.String())
	if !found.Ours || q.Class != dnsmessage.ClassINET {
		return s.forward(ctx, network, query, header, q)
	}
	rcode := dnsmessage.RCodeSuccess
	if !found.Exists {
		rcode = dnsmessage.RCodeNameError
	}
	answers, extra := selectRecords(found, q.Type)
	rand.Shuffle(len(answers), func(i, j int) { answers[i], answers[j] = answers[j], answers[i] })
	return reply(header, &q, rcode, answers, extra, limit)
}

func (s Server) forward(
	ctx context.Context, network string, query []byte, header dnsmessage.Header, q dnsmessage.Question,
) []byte {
	answer, err := s.Upstream(ctx, network, query)
	if err != nil {
		return reply(header, &q, dnsmessage.RCodeServerFailure, nil, nil, 512)
	}
	return answer
}

// ednsSize returns the size in bytes that the client takes over UDP, 0 if it does not say.
func ednsSize(p *dnsmessage.Parser) int {
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return 0
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return 0
		}
		if h.Type == dnsmessage.TypeOPT {
			return min(int(h.Class), 4096)
		}
		if p.SkipAdditional() != nil {
			return 0
		}
	}
}

// selectRecords picks what answers a question of a type; an alias answers all.
func selectRecords(a Answer, t dnsmessage.Type) (answers, extra []dnsmessage.Resource) {
	add := func(records []Record, typ dnsmessage.Type) (out []dnsmessage.Resource) {
		for _, r := range records {
			if r.A.IsValid() && r.A.Is4() != (typ == dnsmessage.TypeA) {
				continue
			}
			if res, err := resource(r, typ); err == nil {
				out = append(out, res)
			}
		}
		return out
	}
	if len(a.CNAME) > 0 {
		return add(a.CNAME, dnsmessage.TypeCNAME), nil
	}
	switch t {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA:
		return add(a.A, t), nil
	case dnsmessage.TypeSRV:
		return add(a.SRV, t), append(add(a.Extra, dnsmessage.TypeA), add(a.Extra, dnsmessage.TypeAAAA)...)
	case dnsmessage.TypePTR:
		return add(a.PTR, t), nil
	case dnsmessage.TypeTXT:
		return add(a.TXT, t), nil
	}
	return nil, nil
}

func resource(r Record, t dnsmessage.Type) (dnsmessage.Resource, error) {
	name, err := dnsmessage.NewName(r.Name)
	if err != nil {
		return dnsmessage.Resource{}, err
	}
	res := dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: name, Type: t, Class: dnsmessage.ClassINET, TTL: ttl},
	}
	var target dnsmessage.Name
	if r.Target != "" {
		if target, err = dnsmessage.NewName(r.Target); err != nil {
			return res, err
		}
	}
	switch t {
	case dnsmessage.TypeA:
		res.Body = &dnsmessage.AResource{A: r.A.As4()}
	case dnsmessage.TypeAAAA:
		res.Body = &dnsmessage.AAAAResource{AAAA: r.A.As16()}
	case dnsmessage.TypeSRV:
		res.Body = &dnsmessage.SRVResource{Weight: 100, Port: r.Port, Target: target}
	case dnsmessage.TypePTR:
		res.Body = &dnsmessage.PTRResource{PTR: target}
	case dnsmessage.TypeCNAME:
		res.Body = &dnsmessage.CNAMEResource{CNAME: target}
	case dnsmessage.TypeTXT:
		res.Body = &dnsmessage.TXTResource{TXT: []string{r.Text}}
	default:
		return res, errors.New("no such record type")
	}
	return res, nil
}

// reply packs a reply. One over the limit of bytes loses its answers and says that it is truncated, so that
// the client asks again over TCP.
func reply(
	query dnsmessage.Header, q *dnsmessage.Question, rcode dnsmessage.RCode,
	answers, extra []dnsmessage.Resource, limit int,
) []byte {
	m := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: query.ID, Response: true, Authoritative: rcode != dnsmessage.RCodeServerFailure, OpCode: query.OpCode,
			RecursionDesired: query.RecursionDesired, RecursionAvailable: true, RCode: rcode,
		},
		Answers: answers, Additionals: extra,
	}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
	}
	if q != nil && len(answers) == 0 && rcode != dnsmessage.RCodeServerFailure {
		m.Authorities = []dnsmessage.Resource{authority()} // lets clients remember that there is nothing
	}
	packed, err := m.Pack()
	if err == nil && len(packed) > limit {
		m.Truncated, m.Answers, m.Additionals = true, nil, nil
		packed, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return packed
}

func authority() dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{
			Name: dnsmessage.MustNewName(Domain), Type: dnsmessage.TypeSOA,
			Class: dnsmessage.ClassINET, TTL: ttl,
		},
		Body: &dnsmessage.SOAResource{
			NS: dnsmessage.MustNewName("ns.dns." + Domain), MBox: dnsmessage.MustNewName("hostmaster." + Domain),
			Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: ttl,
		},
	}
}
