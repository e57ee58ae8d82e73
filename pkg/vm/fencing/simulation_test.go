package fencing

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// The simulation has virt-handlers, launchers, an API server and virt-controller, in steps of real time, with clocks
// that run at rates of their own. It has no messages that take time but heartbeats whose answer is lost and answers
// that are late.

const (
	simStep = 500 * time.Millisecond
	simT    = 80 * time.Second // P is 5 s, G 35 s, F 50 s
)

// simNode is a node with one launcher.
type simNode struct {
	name  string
	index int
	rate  float64 // of its clock
	boot  time.Duration

	up       bool // virt-handler runs
	api      bool // reaches the API server
	deaf     bool // the API server takes what it sends, and its answers are lost
	cut      int  // nodes with another number are not reached
	nextBeat time.Duration

	acknowledged time.Duration // virt-handler, on the node's clock
	taken        uint64
	known        bool
	published    Set
	pending      Set
	heard        time.Duration // launcher, on the node's clock
	dead         bool
	suspended    bool
	renewed      bool
}

// record is a Node object.
type record struct {
	version, taken, beat uint64
	set                  Set
	paused               bool
}

type simulation struct {
	t       *testing.T
	rnd     *rand.Rand
	log     []string
	now     time.Duration
	apiUp   bool
	nodes   []*simNode
	objects map[string]*record
	version uint64
	// virt-controller
	rate     float64
	counts   map[string]*Count
	nextPoll time.Duration
	fenced   map[string]bool
}

func newSimulation(t *testing.T, seed uint64, size int) *simulation {
	s := &simulation{
		t: t, rnd: rand.New(rand.NewPCG(seed, 0)), apiUp: true, objects: map[string]*record{},
		counts: map[string]*Count{}, fenced: map[string]bool{},
	}
	s.rate = s.skew()
	for i := range size {
		n := &simNode{
			name: fmt.Sprintf("n%d", i), index: i, up: true, api: true, rate: s.skew(),
			boot: time.Duration(s.rnd.Int64N(int64(time.Hour))),
		}
		n.acknowledged = n.clock(0)
		n.nextBeat = time.Duration(s.rnd.Int64N(int64(HeartbeatPeriod(simT))))
		n.heard = n.clock(0)
		s.nodes = append(s.nodes, n)
		s.objects[n.name] = &record{}
	}
	return s
}

// skew is the rate of a clock; two of them differ by less than a hundredth.
func (s *simulation) skew() float64 { return 1 + (s.rnd.Float64()-0.5)*0.0098 }

func (n *simNode) clock(now time.Duration) time.Duration {
	return n.boot + time.Duration(float64(now)*n.rate)
}

func (s *simulation) clock() time.Duration { return time.Duration(float64(s.now) * s.rate) }

func (s *simulation) say(format string, arguments ...any) {
	s.log = append(s.log, fmt.Sprintf("%7.1f ", s.now.Seconds())+fmt.Sprintf(format, arguments...))
}

func (s *simulation) names() []string {
	var out []string
	for _, n := range s.nodes {
		if s.objects[n.name] != nil {
			out = append(out, n.name)
		}
	}
	return out
}

// write is a write that the API server takes.
func (s *simulation) write(o *record) { s.version++; o.version = s.version }

func (s *simulation) heartbeat(n *simNode) {
	o := s.objects[n.name]
	if !s.apiUp || !n.api || o == nil {
		n.nextBeat = s.now + 5*time.Second
		return
	}
	sent := n.clock(s.now)
	s.write(o)
	o.beat++
	o.taken = n.taken
	if n.deaf {
		n.nextBeat = s.now + 5*time.Second
		return
	}
	n.nextBeat = s.now + HeartbeatPeriod(simT)
	n.acknowledged, n.taken = sent, o.version
	n.pass(sent, s.now)
	n.known, n.published, n.pending = true, o.set, nil
	wanted := Choose(n.name, s.names())
	if wanted.String() != o.set.String() {
		n.pending = wanted
		s.write(o)
		o.set = wanted
		if s.rnd.IntN(4) > 0 { // else its answer is lost
			n.published, n.pending = wanted, nil
		}
	}
	if o.paused && n.renewed {
		s.write(o)
		o.paused = false
	}
}

// pass tells the launcher.
func (n *simNode) pass(heard, now time.Duration) {
	n.count(now)
	n.heard, n.suspended, n.renewed = max(n.heard, heard), false, true
}

// count is the launcher's own.
func (n *simNode) count(now time.Duration) {
	if !n.suspended && n.clock(now)-n.heard >= simT {
		n.dead = true
	}
}

func (s *simulation) askPeers(n *simNode) {
	if !n.known {
		return
	}
	at := n.clock(s.now)
	sets := []Set{n.published}
	if n.pending != nil {
		sets = append(sets, n.pending)
	}
	asked := false
	silence := time.Duration(1 << 60)
	for _, set := range sets {
		if !set.Quorum() {
			continue
		}
		asked = true
		answers := map[string]time.Duration{}
		for _, m := range s.nodes {
			if m.up && (m == n || m.cut == n.cut && s.rnd.IntN(10) > 0) {
				// The answer may come so much later.
				late := s.now + time.Duration(s.rnd.Int64N(int64(AskWithin(simT))))
				answers[m.name] = m.clock(late) - m.acknowledged
				if m == n {
					answers[m.name] = at - m.acknowledged
				}
			}
		}
		silence = min(silence, set.Silence(answers))
	}
	if !asked || silence >= SilentFor(simT) && at-n.acknowledged >= SilentFor(simT) {
		n.pass(at, s.now)
	}
}

// poll is virt-controller's look at all nodes.
func (s *simulation) poll() {
	for _, n := range s.nodes {
		o := s.objects[n.name]
		if o == nil {
			continue
		}
		c := s.counts[n.name]
		if c == nil {
			c = &Count{}
			s.counts[n.name] = c
		}
		if !s.apiUp {
			c.Fail()
			continue
		}
		p := Poll{
			Asked: s.clock(), Answered: s.clock() + 100*time.Millisecond, Beat: fmt.Sprint(o.beat), Paused: o.paused,
			Set: o.set, Members: map[string]Member{},
		}
		for _, name := range o.set {
			if other := s.objects[name]; other != nil {
				p.Members[name] = Member{Version: other.version, Taken: other.taken}
			}
		}
		if c.Observe(simT, p) >= Needed(simT) && !s.fenced[n.name] {
			s.fenced[n.name] = true
			s.say("%s is fenced", n.name)
			if !n.dead {
				for _, line := range s.log {
					s.t.Log(line)
				}
				s.t.Fatalf("%s is fenced while its guest lives", n.name)
			}
		}
	}
}

func (s *simulation) step() {
	s.now += simStep
	for _, i := range s.rnd.Perm(len(s.nodes)) {
		n := s.nodes[i]
		n.count(s.now)
		if !n.up {
			continue
		}
		if s.now >= n.nextBeat {
			s.heartbeat(n)
		}
		if s.rnd.IntN(3) == 0 {
			s.askPeers(n)
		}
	}
	if s.now >= s.nextPoll {
		s.nextPoll = s.now + PollWithin(simT)/2
		s.poll()
	}
}

// stop ends a virt-handler, in order if it can.
func (s *simulation) stop(n *simNode, inOrder bool) {
	n.up = false
	if o := s.objects[n.name]; inOrder && s.apiUp && n.api && o != nil && n.known {
		s.write(o)
		o.beat++
		o.paused = true
		if !n.deaf {
			n.suspended, n.renewed = true, false
		}
	}
	s.say("%s stops, in order %t", n.name, inOrder)
}

func (s *simulation) start(n *simNode) {
	s.say("%s starts", n.name)
	n.up, n.known, n.published, n.pending, n.renewed, n.taken = true, false, nil, nil, false, 0
	n.acknowledged, n.nextBeat = n.clock(s.now), s.now
}

// disturb lets something happen.
func (s *simulation) disturb() {
	n := s.nodes[s.rnd.IntN(len(s.nodes))]
	switch s.rnd.IntN(12) {
	case 0, 1:
		s.apiUp = !s.apiUp
		s.say("the API server is up: %t", s.apiUp)
	case 2, 3, 4:
		n.api = !n.api
		s.say("%s reaches the API server: %t", n.name, n.api)
	case 5:
		n.deaf = !n.deaf
		s.say("%s is deaf: %t", n.name, n.deaf)
	case 6:
		n.cut = s.rnd.IntN(2)
		s.say("%s is in part %d", n.name, n.cut)
	case 7:
		if n.up {
			s.stop(n, s.rnd.IntN(2) == 0)
		}
	case 8, 9:
		if !n.up {
			s.start(n)
		}
	case 10:
		s.counts, s.rate = map[string]*Count{}, s.skew()
		s.nextPoll = s.now + time.Duration(s.rnd.Int64N(int64(simT)))
		s.say("another virt-controller leads")
	case 11:
		if s.rnd.IntN(4) == 0 && s.objects[n.name] != nil {
			delete(s.objects, n.name)
			s.say("%s is deleted", n.name)
		}
	}
}

// Whatever happens, no guest is started elsewhere while it lives.
func TestNeverFencedAlive(t *testing.T) {
	seeds, fenced := uint64(250), 0
	for seed := range seeds {
		s := newSimulation(t, seed, 1+int(seed%9))
		s.say("seed %d", seed)
		for range 30 {
			for range s.rnd.IntN(200) {
				s.step()
			}
			s.disturb()
		}
		fenced += len(s.fenced)
	}
	if fenced < 20 {
		t.Errorf("%d nodes were fenced in %d runs: too few to show anything", fenced, seeds)
	}
}

// An API server that is away ends no guest, however long; nor does a planned stop of all virt-handlers.
func TestOutageEndsNothing(t *testing.T) {
	for size := 1; size <= 15; size++ {
		s := newSimulation(t, uint64(size), size)
		for s.now < 2*simT {
			s.step()
		}
		s.apiUp = false
		for s.now < 20*simT {
			s.step()
		}
		s.apiUp = true
		for s.now < 22*simT {
			s.step()
		}
		for _, n := range s.nodes {
			s.stop(n, true)
		}
		for s.now < 30*simT {
			s.step()
		}
		for _, n := range s.nodes {
			s.start(n)
		}
		for s.now < 32*simT {
			s.step()
		}
		for _, n := range s.nodes {
			if n.dead || s.fenced[n.name] || s.objects[n.name].paused {
				t.Errorf("%d nodes: %s: dead %t, fenced %t, paused %t", size, n.name, n.dead, s.fenced[n.name],
					s.objects[n.name].paused)
			}
		}
	}
}

// A node that is cut off alone is fenced in time, unless there are too few nodes; the others go on.
func TestLoneNodeIsFenced(t *testing.T) {
	for size := 1; size <= 15; size++ {
		s := newSimulation(t, uint64(size), size)
		for s.now < 2*simT {
			s.step()
		}
		lost := s.nodes[0]
		lost.api, lost.cut = false, 1
		begin := s.now
		for s.now < begin+3*simT && !s.fenced[lost.name] {
			s.step()
		}
		if got := s.fenced[lost.name]; got != (size >= MinNodes) || lost.dead != got {
			t.Errorf("%d nodes: fenced %t, its guest is dead: %t", size, got, lost.dead)
		}
		for _, n := range s.nodes[1:] {
			if n.dead || s.fenced[n.name] {
				t.Errorf("%d nodes: %s is fenced, too", size, n.name)
			}
		}
	}
}
