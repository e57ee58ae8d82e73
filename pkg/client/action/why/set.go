package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
)

// LayerSet is a pool or replica set, outside of its machines.
const LayerSet Layer = "set"

// SetFacts are everything an explanation of a pool or replica set rests on.
type SetFacts struct {
	// Kind is "vmpool" or "vmirs".
	Kind string
	Set  sets.Row
	// Ready are the names of its machines that are ready, Short the facts about some that are not, and More how many of
	// those there are besides.
	Ready []string
	Short []Facts
	More  int
	// Unreadable are resources that the user may not read.
	Unreadable []string
}

// ExplainSet reports why a pool or replica set has fewer ready machines than it is to have. Its chain has the set, and
// then its machines beside each other.
func ExplainSet(f SetFacts) *Report {
	row, object := f.Set, f.Kind+"/"+f.Set.Name
	e := &explanation{Facts: Facts{Namespace: row.Namespace, Name: row.Name}}
	e.Unreadable = slices.Clone(f.Unreadable)
	count := fmt.Sprintf("%d of %d machines are ready", row.Ready, row.Desired)
	describe := "kubectl describe " + object + e.flag()
	switch note := row.Failure; {
	case note != "":
		e.add(rankRefused, LayerSet, object, Broken, "ReplicaFailure", "machines cannot be made, changed or removed: "+
			note, describe)
	case row.Paused && row.Current != row.Desired:
		e.add(rankIntent, LayerSet, object, Broken, "Paused",
			fmt.Sprintf("it is paused, with %d of %d machines", row.Current, row.Desired),
			fmt.Sprintf(`kubectl patch %s%s --type merge -p '{"spec":{"paused":false}}'`, object, e.flag()))
	case row.Current < row.Desired:
		e.add(rankProgress, LayerSet, object, Waiting, "TooFew",
			fmt.Sprintf("%d of %d machines exist, and the others are about to be made", row.Current, row.Desired),
			"kubectl -n kubevirt logs deployment/virt-controller")
	case row.Current > row.Desired && row.KeepsExcess != "":
		e.add(rankIntent, LayerSet, object, Waiting, "ExcessIsKept",
			fmt.Sprintf("%d machines exist, more than the %d that there are to be, and the pool deletes none: its "+
				"scaleInStrategy is %s", row.Current, row.Desired, row.KeepsExcess),
			"delete those that you do not need, with `virtctl delete NAME"+e.flag()+"`")
	case row.Current > row.Desired:
		e.add(rankProgress, LayerSet, object, Waiting, "TooMany",
			fmt.Sprintf("%d machines exist, more than the %d that there are to be", row.Current, row.Desired), describe)
	}
	var members []Link
	prefix, layer := "vm/", LayerVM
	if f.Kind == sets.ReplicaSet.Short {
		prefix, layer = "vmi/", LayerVMI
	}
	for _, name := range f.Ready {
		members = append(members, Link{Layer: layer, Object: prefix + name, State: OK, Message: "ready"})
	}
	said, off := map[string]bool{}, 0
	for i := range f.Short {
		member := Explain(f.Short[i])
		members = append(members,
			Link{Layer: layer, Object: prefix + member.Metadata.Name, State: member.Verdict, Message: member.Summary})
		e.Unreadable = append(e.Unreadable, member.Unreadable...)
		if member.Verdict == Off {
			off++
		}
		c := firstOf(member)
		if said[c.Reason+c.Evidence] {
			continue // What holds up one holds up others; they have it in the chain.
		}
		said[c.Reason+c.Evidence] = true
		c.Message = member.Metadata.Name + ": " + c.Message
		e.causes = append(e.causes, c)
	}
	slices.SortFunc(members, func(a, b Link) int { return cmp.Compare(a.Object, b.Object) })
	slices.SortStableFunc(e.causes,
		func(a, b Cause) int { return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(a.rank, b.rank)) })
	slices.Sort(e.Unreadable)
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind},
		Metadata: Metadata{Namespace: row.Namespace, Name: row.Name},
		Causes:   e.causes, Unreadable: slices.Compact(e.Unreadable),
		Verdict: OK, Summary: count,
	}
	if r.Causes == nil {
		r.Causes = []Cause{}
	}
	if row.Ready < row.Desired || row.Current != row.Desired || row.Failure != "" {
		switch {
		case len(r.Causes) > 0 && r.Causes[0].State == Broken:
			r.Verdict = Broken
		case row.Current == row.Desired && off > 0 && off == len(f.Short):
			r.Verdict = Off // all that are not ready are not meant to run, and time does not change that
		default:
			r.Verdict = Waiting
		}
	}
	if f.More > 0 {
		r.Summary += fmt.Sprintf("; %d more that are not ready were not looked at", f.More)
	}
	r.Chain = append([]Link{{Layer: LayerSet, Object: object, State: r.Verdict, Message: strings.TrimSpace(count)}},
		members...)
	return r
}

// firstOf returns what to fix first of a machine.
func firstOf(r *Report) Cause {
	for _, c := range r.Causes {
		if c.State != OK {
			return c
		}
	}
	return Cause{
		Layer: LayerVM, Object: "vm/" + r.Metadata.Name, Reason: "NotReady", Message: r.Summary, State: Waiting,
		rank:  rankProgress,
		Fixes: []string{"virtctl why " + r.Metadata.Name + " -n " + r.Metadata.Namespace},
	}
}
