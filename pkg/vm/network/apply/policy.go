package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// policyTable is the table of the bridge family with the MultiNetworkPolicies of a plan. Its chain sees what a bridge
// hands from the guest's tap to the network or back, after the guards; DHCP of the pod's own server stays below it.
const policyTable = "virtkit-policies"

// forwardPriority is that of filters on bridges, NF_BR_PRI_FILTER_BRIDGED. At 0 br_netfilter, where a node has
// it, takes frames of IP away and hands them to later hooks only: the chain would see none if it was there before the
// bridge.
const forwardPriority nftables.ChainPriority = -200

// Steps of a tap's frames, each of which is a chain. The chains of a direction have its name before theirs.
const (
	stepOut  = "out"  // from the guest: egress
	stepIn   = "in"   // to the guest: ingress
	stepDone = "done" // of a connection that is known, or allowed
	partNew  = "new"  // what begins a connection is looked at by policies
	partPass = "pass" // a connection that is let through is remembered
)

// policyRules are the chains of one tap with their sets and counters.
type policyRules struct {
	guardRules
	sets     []addressSet
	counters []string
}

// addressSet is a set of addresses. Its name is made of its elements, so that one that stays the same stays.
type addressSet struct {
	name string
	kind nftables.SetDatatype
	keys [][]byte
}

func newAddressSet(letter string, kind nftables.SetDatatype, keys [][]byte) addressSet {
	sum := sha256.New()
	for _, k := range keys {
		sum.Write(k)
	}
	return addressSet{letter + hex.EncodeToString(sum.Sum(nil))[:16], kind, keys}
}

// maxElements is how many elements of a set fit into a message.
const maxElements = 500

func (s addressSet) add(conn *nftables.Conn, t *nftables.Table) error {
	set := &nftables.Set{Table: t, Name: s.name, KeyType: s.kind}
	if err := conn.AddSet(set, nil); err != nil {
		return err
	}
	for keys := range slices.Chunk(s.keys, maxElements) {
		elements := make([]nftables.SetElement, len(keys))
		for i, k := range keys {
			elements[i].Key = k
		}
		if err := conn.SetAddElements(set, elements); err != nil {
			return err
		}
	}
	return nil
}

// Police puts the MultiNetworkPolicies of a plan's interfaces into the network namespace ns, in one transaction: no
// frame passes between the rules of before and these. Connections that are known stay known, and counters keep what
// they have.
func Police(ns *os.File, plan network.Plan, rules multipolicy.Rules) error {
	if len(plan.Interfaces) == 0 {
		return nil
	}
	var all []policyRules
	for _, nic := range plan.Interfaces {
		if of := rules[nic.Name]; nic.Binding == network.Bridge && len(of.Policies) > 0 {
			all = append(all, policed(nic.Tap, of))
		}
	}
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())), nftables.WithSockOptions(roomy))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	t := &nftables.Table{Name: policyTable, Family: nftables.TableFamilyBridge}
	before, err := policiesBefore(conn, t)
	if err != nil {
		return policyError(err)
	}
	if len(all) == 0 {
		if !before.table {
			return nil
		}
		conn.DelTable(t)
		return policyError(conn.Flush())
	}
	conn.AddTable(t)
	forward := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityRef(forwardPriority),
	})
	conn.FlushChain(forward)
	chains := before.chains
	for _, name := range chains {
		conn.FlushChain(&nftables.Chain{Name: name, Table: t})
	}
	wanted := wantedOf(all)
	before.remove(conn, t, wanted)
	for _, rules := range all {
		if err := rules.add(conn, t, before); err != nil {
			return policyError(err)
		}
		conn.AddRule(&nftables.Rule{Table: t, Chain: forward, Exprs: slices.Concat(iif(rules.tap), rules.to(stepOut))})
		conn.AddRule(&nftables.Rule{Table: t, Chain: forward, Exprs: slices.Concat(oif(rules.tap), rules.to(stepIn))})
	}
	return policyError(conn.Flush())
}

func policyError(err error) error {
	switch {
	case err == nil:
		return nil
	case noBridgeFamily(err):
		return fmt.Errorf("the node's kernel has no nftables for bridges (CONFIG_NF_TABLES_BRIDGE), which "+
			"MultiNetworkPolicies need: %w", err)
	}
	return fmt.Errorf("nftables: %w", err)
}

// inTable is what is in a table: names.
type inTable struct {
	table                  bool
	chains, sets, counters []string
}

// policiesBefore reads what is in the table; nothing where the kernel knows no such table.
func policiesBefore(conn *nftables.Conn, t *nftables.Table) (inTable, error) {
	tables, err := conn.ListTablesOfFamily(t.Family)
	if noBridgeFamily(err) {
		return inTable{}, nil
	}
	if err != nil {
		return inTable{}, err
	}
	out := inTable{table: slices.ContainsFunc(tables, func(o *nftables.Table) bool { return o.Name == t.Name })}
	if !out.table {
		return out, nil
	}
	chains, err := conn.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return out, err
	}
	for _, c := range chains {
		if c.Table.Name == t.Name && c.Hooknum == nil {
			out.chains = append(out.chains, c.Name)
		}
	}
	sets, err := conn.GetSets(t)
	if err != nil {
		return out, err
	}
	for _, s := range sets {
		out.sets = append(out.sets, s.Name)
	}
	objects, err := conn.GetObjects(t)
	if err != nil {
		return out, err
	}
	for _, o := range objects {
		if c, ok := o.(*nftables.CounterObj); ok {
			out.counters = append(out.counters, c.Name)
		}
	}
	return out, nil
}

func wantedOf(all []policyRules) inTable {
	var out inTable
	for _, r := range all {
		for step := range r.chains {
			out.chains = append(out.chains, r.chain(step))
		}
		for _, s := range r.sets {
			out.sets = append(out.sets, s.name)
		}
		for _, f := range flowSets(r.tap) {
			out.sets = append(out.sets, f.Name)
		}
		out.counters = append(out.counters, r.counters...)
	}
	return out
}

// remove takes out what is not wanted any more. The chains are empty by now, and nothing refers to anything.
func (b inTable) remove(conn *nftables.Conn, t *nftables.Table, wanted inTable) {
	for _, name := range b.chains {
		if !slices.Contains(wanted.chains, name) {
			conn.DelChain(&nftables.Chain{Name: name, Table: t})
		}
	}
	for _, name := range b.sets {
		if !slices.Contains(wanted.sets, name) {
			conn.DelSet(&nftables.Set{Name: name, Table: t})
		}
	}
	for _, name := range b.counters {
		if !slices.Contains(wanted.counters, name) {
			conn.DeleteObject(&nftables.CounterObj{Table: t, Name: name})
		}
	}
}

// add makes the chains of a tap with their rules, in place of those that were there and are empty now.
func (r policyRules) add(conn *nftables.Conn, t *nftables.Table, before inTable) error {
	for _, s := range flowSets(r.tap) {
		if !slices.Contains(before.sets, s.Name) {
			s.Table = t
			if err := conn.AddSet(s, nil); err != nil {
				return err
			}
		}
	}
	for i, s := range r.sets {
		same := func(o addressSet) bool { return o.name == s.name }
		if slices.Contains(before.sets, s.name) || slices.ContainsFunc(r.sets[:i], same) {
			continue
		}
		if err := s.add(conn, t); err != nil {
			return err
		}
	}
	for _, name := range r.counters {
		conn.AddObj(&nftables.CounterObj{Table: t, Name: name})
	}
	chains := map[string]*nftables.Chain{}
	for step := range r.chains { // all of them first, since rules name them
		chains[step] = conn.AddChain(&nftables.Chain{Name: r.chain(step), Table: t})
	}
	for step, rules := range r.chains {
		for _, exprs := range rules {
			conn.AddRule(&nftables.Rule{Table: t, Chain: chains[step], Exprs: exprs})
		}
	}
	return nil
}

// counts adds a counter and returns what counts by it.
func (r *policyRules) counts(name string) []expr.Any {
	if !slices.Contains(r.counters, name) {
		r.counters = append(r.counters, name)
	}
	return []expr.Any{&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: name}}
}

// passedCounter names the counter of what a policy has let through, deniedCounter that of what none has.
func passedCounter(tap, direction, policy string) string {
	sum := sha256.Sum256([]byte(policy))
	return tap + "-" + direction + "-" + hex.EncodeToString(sum[:])[:16]
}

// forgottenCounter names the counter of what was let through and began a connection that is not remembered.
func forgottenCounter(tap string) string { return tap + "-forgotten" }

func deniedCounter(tap, direction string) string { return tap + "-" + direction + "-dropped" }

// Passage counts the frames of one interface that policies were asked about.
type Passage struct {
	// Dropped are those that no policy allows, to the guest and from it.
	DroppedIngress, DroppedEgress uint64
	// Forgotten are those that began connections which are not remembered, since there are too many.
	Forgotten uint64
	// Ingress and Egress are those that began or renewed a connection, by the policy that allows it.
	Ingress, Egress map[string]uint64
}

// rereads is how often a table is read anew that was taken away, or made, meanwhile.
const rereads = 10

// countersOf reads the objects of a table; nil when there is no such table. It goes with the last policy, also while it
// is read, which the package that reads says by a text alone.
func countersOf(conn *nftables.Conn, t *nftables.Table) (list []nftables.Obj, err error) {
	for range rereads {
		var before inTable
		if before, err = policiesBefore(conn, t); err == nil {
			if !before.table {
				return nil, nil
			}
			if list, err = conn.GetObjects(t); err == nil {
				return list, nil
			}
		}
	}
	return nil, err
}

// Passed returns what the policies of a plan have counted in the network namespace ns, by interface.
func Passed(ns *os.File, plan network.Plan, rules multipolicy.Rules) (map[string]Passage, error) {
	out := map[string]Passage{}
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	t := &nftables.Table{Name: policyTable, Family: nftables.TableFamilyBridge}
	list, err := countersOf(conn, t)
	if err != nil || list == nil {
		return out, policyError(err)
	}
	packets := map[string]uint64{}
	for _, o := range list {
		if c, ok := o.(*nftables.CounterObj); ok {
			packets[c.Name] = c.Packets
		}
	}
	for _, nic := range plan.Interfaces {
		if len(rules[nic.Name].Policies) == 0 || nic.Binding != network.Bridge {
			continue
		}
		p := Passage{
			DroppedIngress: packets[deniedCounter(nic.Tap, stepIn)],
			DroppedEgress:  packets[deniedCounter(nic.Tap, stepOut)],
			Forgotten:      packets[forgottenCounter(nic.Tap)],
			Ingress:        map[string]uint64{}, Egress: map[string]uint64{},
		}
		for _, policy := range rules[nic.Name].Policies {
			p.Ingress[policy.Name] = packets[passedCounter(nic.Tap, stepIn, policy.Name)]
			p.Egress[policy.Name] = packets[passedCounter(nic.Tap, stepOut, policy.Name)]
		}
		out[nic.Name] = p
	}
	return out, nil
}
