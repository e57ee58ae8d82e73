package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

// newTestCheck makes the peer check of node n, with a launcher, whose heartbeat was acknowledged so long ago.
func newTestCheck(silence time.Duration, answers map[string]time.Duration) *peerCheck {
	r := &renewals{}
	r.record("pod", renewal{}, time.Minute)
	r.acknowledged = boottime.Now() - silence
	return &peerCheck{
		node: "n", renewals: r, now: time.Now, log: slog.New(slog.DiscardHandler),
		running:  func(types.UID) bool { return true },
		nextList: boottime.Now() + time.Hour, nextReport: boottime.Now() + time.Hour,
		ask: func(_ context.Context, node, _ string, _ time.Duration) (time.Duration, error) {
			if silence, answered := answers[node]; answered {
				return silence, nil
			}
			return 0, errors.New("it does not answer")
		},
		addresses: map[string]string{"a": "::1", "b": "::1", "c": "::1"},
	}
}

func published(set string, annotations ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationFencingSet: set}}}
	for i := 0; i+1 < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}
	return n
}

// A guest goes on without the API server when most of its Set hear nothing of it either, and only then.
func TestPeerCheck(t *testing.T) {
	const f = time.Minute * 5 / 8
	for name, c := range map[string]struct {
		own     time.Duration
		set     string
		pending fencing.Set
		unknown bool
		answers map[string]time.Duration
		want    bool
	}{
		"the API server is away": {own: f, set: "a,b,n", answers: map[string]time.Duration{"a": f, "b": f}, want: true},
		"and one node with it":   {own: f, set: "a,b,n", answers: map[string]time.Duration{"a": f}, want: true},
		"cut off alone":          {own: f, set: "a,b,n"},
		"others are heard":       {own: f, set: "a,b,n", answers: map[string]time.Duration{"a": f - 1, "b": 0}},
		"half are silent":        {own: f, set: "a,b,c,n", answers: map[string]time.Duration{"a": f, "b": 0, "c": 0}},
		"a stranger is silent":   {own: f, set: "a,b,n", answers: map[string]time.Duration{"c": f}},
		"it is heard itself": {
			own: f - 10*time.Second, set: "a,b,n", answers: map[string]time.Duration{"a": f, "b": f},
		},
		"two nodes":                      {own: f, set: "a,n", want: true},
		"no set yet":                     {own: f, want: true},
		"what is published is not known": {own: f, unknown: true},
		"a new set is not for it": {
			own: f, set: "a,b,n", pending: fencing.Set{"b", "c", "n"}, answers: map[string]time.Duration{"a": f},
		},
		"both sets are": {
			own: f, set: "a,b,n", pending: fencing.Set{"b", "c", "n"}, answers: map[string]time.Duration{"b": f},
			want: true,
		},
		"a larger set may be published": {own: f, set: "n", pending: fencing.Set{"b", "c", "n"}},
	} {
		w := newTestCheck(c.own, c.answers)
		if !c.unknown {
			w.wanted = c.pending
			w.settle(published(c.set))
		}
		before := boottime.Now()
		w.look(t.Context(), time.Minute)
		if got, _ := w.renewals.latest("pod"); (got.heard >= before) != c.want {
			t.Errorf("%s: %s, %s before", name, got.heard, before)
		}
	}
}

// What is published changes on condition, and both the old and the new count until it is known which it is.
func TestPublishedSet(t *testing.T) {
	w := newTestCheck(0, nil)
	beats := 0
	w.renewals.beat = func() { beats++ }
	nodes := []metav1.PartialObjectMetadata{}
	for i, name := range []string{"a", "old", "n", "b", "without"} {
		beat := time.Now()
		if name == "old" {
			beat = beat.Add(-2 * time.Hour)
		}
		n := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			v1.VirtHandlerHeartbeat: fmt.Sprintf("%q", beat.Format(time.RFC3339)),
		}}}
		if name != "without" {
			n.Annotations[names.AnnotationHandlerAddress] = fmt.Sprintf("10.0.0.%d", i+1)
		}
		nodes = append(nodes, n)
	}
	w.list = func(context.Context) ([]metav1.PartialObjectMetadata, error) { return nodes, nil }
	if wait := w.choose(t.Context()); wait != listLeast || beats != 1 || w.wanted.String() != "a,b,n" ||
		w.addresses["b"] != "10.0.0.4" {
		t.Errorf("again in %s, %d beats, %v, %v", wait, beats, w.wanted, w.addresses)
	}
	sets := func() string {
		all, _ := w.sets()
		return fmt.Sprint(all)
	}
	if got := w.settle(published("a,n")); got[names.AnnotationFencingSet] != "a,b,n" || sets() != "[a,n a,b,n]" {
		t.Errorf("%v, %s", got, sets())
	}
	w.settled(nil)
	if sets() != "[a,n a,b,n]" {
		t.Errorf("nobody knows: %s", sets())
	}
	w.settle(published("a,n"))
	w.settled(published("a,b,n"))
	if got := w.settle(published("a,b,n")); len(got) != 0 || sets() != "[a,b,n]" {
		t.Errorf("%v, %s", got, sets())
	}
	w.list = func(context.Context) ([]metav1.PartialObjectMetadata, error) { return nil, errors.New("away") }
	if wait := w.choose(t.Context()); wait != listAgain || len(w.wanted) != 3 {
		t.Errorf("again in %s, %v", wait, w.wanted)
	}
}

// The cluster counts a node's silence again when all launchers count again that an earlier virt-handler has suspended.
func TestHeartbeatPaused(t *testing.T) {
	w := newTestCheck(0, nil)
	if got := w.pause(); got != "" {
		t.Errorf("before it knows what is there: %s", got)
	}
	gone := map[types.UID]bool{}
	w.running = func(pod types.UID) bool { return !gone[pod] }
	const key = names.AnnotationHeartbeatPaused
	if got := w.settle(published("", key, "pod,other")); len(got) != 0 {
		t.Errorf("nobody has been renewed: %v", got)
	}
	if got := w.pause(); got != "other,pod" {
		t.Errorf("one that is still suspended is forgotten: %s", got)
	}
	w.renewals.record("pod", renewal{heard: 1}, time.Minute)
	if got := w.settle(published("", key, "pod,other")); len(got) != 0 {
		t.Errorf("one has been renewed: %v", got)
	}
	gone["other"] = true
	got := w.settle(published("", key, "pod,other"))
	if value, there := got[key]; !there || value != nil {
		t.Errorf("all count again: %v", got)
	}
	if got := w.pause(); got != "pod" {
		t.Errorf("%s", got)
	}
}

// In a cluster of one or two nodes nobody is ever fenced, so no launcher counts: a machine that wakes up has its
// guests. When there are three, each launcher counts before its node's silence does.
func TestAlone(t *testing.T) {
	const key = names.AnnotationHeartbeatPaused
	w := newTestCheck(0, nil)
	suspended := func() bool {
		latest, _ := w.renewals.latest("pod")
		return latest.suspend
	}
	w.wanted = fencing.Set{"a", "n"}
	if got := w.settle(published("a,n")); got[key] != "pod" || suspended() {
		t.Errorf("the cluster has to know first: %v, suspended %t", got, suspended())
	}
	w.settled(nil)
	if suspended() {
		t.Error("suspended though nobody knows what the API server has")
	}
	w.settle(published("a,n"))
	w.settled(published("a,n", key, "pod"))
	if !suspended() {
		t.Error("it counts though nobody ever will")
	}
	w.renewals.record("pod", renewal{heard: 1}, time.Minute) // on its way since before
	w.renewals.record("pod", renewal{heard: 1, suspend: true}, time.Minute)
	if got := w.settle(published("a,n", key, "pod")); len(got) != 0 || !suspended() {
		t.Errorf("while nothing changes: %v, suspended %t", got, suspended())
	}
	w.renewals.record("new", renewal{heard: 1}, time.Minute)
	if got := w.settle(published("a,n", key, "pod")); got[key] != "new,pod" {
		t.Errorf("another guest: %v", got)
	}
	w.renewals.forget("new")
	w.running = func(pod types.UID) bool { return pod != "new" }
	if got := w.settle(published("a,n", key, "new,pod")); got[key] != "pod" {
		t.Errorf("which is gone: %v", got)
	}

	w.wanted = fencing.Set{"a", "b", "n"}
	if got := w.settle(published("a,n", key, "pod")); len(got) != 1 || got[names.AnnotationFencingSet] != "a,b,n" ||
		suspended() {
		t.Errorf("a third node: %v, suspended %t", got, suspended())
	}
	if got := w.settle(published("a,b,n", key, "pod")); len(got) != 0 {
		t.Errorf("the launcher does not count yet: %v", got)
	}
	w.renewals.record("pod", renewal{heard: 1}, time.Minute)
	if got := w.settle(published("a,b,n", key, "pod")); len(got) != 1 || got[key] != nil {
		t.Errorf("it does: %v", got)
	}
}

// Nodes may ask anything: an answer costs nothing, and what they ask for is bounded.
func TestPeers(t *testing.T) {
	now, beats, from := time.Now(), 0, "a"
	p := &peers{
		silence: func() time.Duration { return 90 * time.Second }, beat: func() { beats++ },
		peer: func(*http.Request) string { return from }, now: func() time.Time { return now },
	}
	get := func(query string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, heartbeatPath+query, http.NoBody))
		return w
	}
	if got := get("?every=1m"); got.Code != http.StatusOK || strings.TrimSpace(got.Body.String()) != "1m30s" ||
		beats != 0 {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := get("?every=1m"); got.Code != http.StatusTooManyRequests {
		t.Errorf("at once: %d", got.Code)
	}
	from = "b"
	if got := get("?every=1ns"); got.Code != http.StatusOK || p.period() != fastest || beats != 1 {
		t.Errorf("another node: %d, every %s, %d beats", got.Code, p.period(), beats)
	}
	now = now.Add(time.Second)
	for _, query := range []string{"", "?every=x", "?every=-1s"} {
		if got := get(query); got.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", query, got.Code)
		}
	}
	now = now.Add(4 * hastenEvery)
	if got := p.period(); got != nodestatus.Period || len(p.asked) != 0 {
		t.Errorf("it lapses: %s, %v", got, p.asked)
	}
	from = ""
	if got := get("?every=1m"); got.Code != http.StatusForbidden {
		t.Errorf("nobody's: %d", got.Code)
	}
}

// What another node answers is bounded, and read as nothing else.
func TestAskPeer(t *testing.T) {
	for answer, want := range map[string]time.Duration{
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n12s\n":     12 * time.Second,
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n-1s":       -1,
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes":       -1,
		"HTTP/1.1 429 No\r\nContent-Length: 3\r\n\r\n12s":       -1,
		"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("9", 64<<10): -1,
		"hello": -1,
	} {
		here, there := net.Pipe()
		served := make(chan struct{})
		go func() {
			defer close(served)
			defer there.Close()
			buffer := make([]byte, 4<<10)
			if n, err := there.Read(buffer); err != nil ||
				!slices.Contains(strings.Fields(string(buffer[:n])), heartbeatPath+"?every=1m0s") {
				t.Errorf("%q, %v", buffer[:n], err)
			}
			_, _ = there.Write([]byte(answer)) // the other end may have heard enough
		}()
		got, err := askPeer(t.Context(), func(context.Context) (net.Conn, error) { return here, nil }, time.Minute)
		<-served
		if (err == nil) != (want >= 0) || err == nil && got != want {
			t.Errorf("%.50q: %s, %v", answer, got, err)
		}
	}
}

// What one virt-handler asks is what another answers.
func TestAskAndAnswer(t *testing.T) {
	p := &peers{
		silence: func() time.Duration { return 95*time.Second + time.Millisecond }, beat: func() {},
		peer: func(*http.Request) string { return "n" }, now: time.Now,
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+heartbeatPath, p)
	server := httptest.NewServer(mux)
	defer server.Close()
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	if got, err := askPeer(t.Context(), dial, 15*time.Second); err != nil || got != 95*time.Second+time.Millisecond ||
		p.period() != 15*time.Second {
		t.Errorf("%s, %v, it beats every %s", got, err, p.period())
	}
	if _, err := askPeer(t.Context(), dial, 15*time.Second); err == nil ||
		!strings.Contains(err.Error(), "less often") {
		t.Errorf("at once: %v", err)
	}
}
