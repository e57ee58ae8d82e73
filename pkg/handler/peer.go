package handler

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

const (
	heartbeatPath = "/v1/heartbeat"
	// askedLeast is the least time between two questions of a node, fastest the shortest period that one may ask for.
	askedLeast, fastest = 200 * time.Millisecond, 5 * time.Second
	// maxAnswer bounds what is read of an answer, bytes.
	maxAnswer = 4 << 10
)

// peers answers the virt-handlers of other nodes for how long this one has been silent. Any of them may be hostile: an
// answer costs nothing, a node that asks too often gets none, and what it asks for lapses.
type peers struct {
	// silence is for how long this node has had no heartbeat acknowledged, beat asks for one now.
	silence func() time.Duration
	beat    func()
	// peer is the node whose virt-handler asks, empty for others.
	peer func(*http.Request) string
	now  func() time.Time

	mu    sync.Mutex
	asked map[string]question
}

// newPeers answers those who show the certificate of a virt-handler.
func newPeers(silence func() time.Duration, beat func()) *peers {
	return &peers{
		silence: silence, beat: beat, now: time.Now,
		peer: func(r *http.Request) string { return certs.HandlerNode(r.TLS) },
	}
}

// question is the last one of a node.
type question struct {
	at    time.Time
	every time.Duration
}

// lapsed reports whether a question counts no more.
func (q question) lapsed(now time.Time) bool { return now.Sub(q.at) > 3*hastenEvery }

func (p *peers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from := p.peer(r)
	if from == "" {
		http.Error(w, "this is for virt-handlers", http.StatusForbidden)
		return
	}
	every, err := time.ParseDuration(r.URL.Query().Get("every"))
	if err != nil || every <= 0 {
		http.Error(w, "every is not a duration", http.StatusBadRequest)
		return
	}
	if !p.note(from, max(every, fastest)) {
		http.Error(w, "ask less often", http.StatusTooManyRequests)
		return
	}
	fmt.Fprintln(w, p.silence())
}

// note remembers a question, and reports whether it is to be answered.
func (p *peers) note(from string, every time.Duration) bool {
	now := p.now()
	p.mu.Lock()
	was, known := p.asked[from]
	if known && now.Sub(was.at) < askedLeast {
		p.mu.Unlock()
		return false
	}
	if p.asked == nil {
		p.asked = map[string]question{}
	}
	before := p.fastest(now)
	p.asked[from] = question{at: now, every: every}
	faster := every < before
	p.mu.Unlock()
	if faster {
		p.beat()
	}
	return true
}

// fastest returns the shortest period that nodes have asked for. It drops those that have lapsed.
func (p *peers) fastest(now time.Time) time.Duration {
	period := nodestatus.Period
	for name, q := range p.asked {
		if q.lapsed(now) {
			delete(p.asked, name)
			continue
		}
		period = min(period, q.every)
	}
	return period
}

// period returns the interval at which other nodes need this one's heartbeat.
func (p *peers) period() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fastest(p.now())
}

// askPeer asks over a connection to another virt-handler, which dial makes sure of.
func askPeer(
	ctx context.Context, dial func(context.Context) (net.Conn, error), every time.Duration,
) (time.Duration, error) {
	conn, err := dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return 0, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://virt-handler"+heartbeatPath+"?every="+
		every.String(), http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Close = true
	if err := request.Write(conn); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAnswer)), request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, err
	}
	answer := strings.TrimSpace(string(text))
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %.100q", response.Status, answer)
	}
	silence, err := time.ParseDuration(answer)
	if err != nil || silence < 0 {
		return 0, fmt.Errorf("%.100q is not a time of silence", answer)
	}
	return silence, nil
}
