package vmicontroller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

const (
	// VMIsWithTSC is the cache's index of VMIs by the frequency that they were given.
	VMIsWithTSC = "tsc-frequency"
	// AnyTSC is in that index for all of them.
	AnyTSC = "any"
)

// tscTolerance is the difference from a counter that KVM cannot change up to which QEMU takes it for the same: 250 of a
// million.
const tscTolerance = 250

// TSC is a node's time stamp counter.
type TSC struct {
	// Frequency is in ticks a second, 0 where the node does not say.
	Frequency int64
	Scalable  bool
}

// TSCOf reads it from labels.
func TSCOf(labels map[string]string) TSC {
	frequency, err := strconv.ParseInt(labels[names.LabelTSCFrequency], 10, 64)
	if err != nil || frequency < 0 {
		return TSC{}
	}
	return TSC{frequency, labels[names.LabelTSCScalable] == "true"}
}

// Shows reports whether a guest can have a frequency there.
func (t TSC) Shows(frequency int64) bool {
	off := frequency - t.Frequency
	return t.Scalable && off < 0 || max(off, -off) <= t.Frequency/1_000_000*tscTolerance
}

// needsTSC reports whether the guest relies on a time stamp counter that ticks as often wherever it moves. Emulated
// guests and other architectures have none.
func needsTSC(vmi *v1.VirtualMachineInstance, facts Facts) bool {
	_, needs := migrations.NeedsTSC(&vmi.Spec.Domain)
	return needs && architecture(vmi, facts) == amd64 && facts.hardware()
}

// pickTSC returns the frequency for a guest: one that another guest has, else one that several nodes have, else the
// lowest there is, in which most nodes agree if they can. lowest is the configuration's, 0 for that of the nodes.
// Frequencies within the tolerance of the lowest count as equal to it. 0 is none.
func pickTSC(lowest int64, nodes []TSC, used []int64) int64 {
	count := map[int64]int{}
	for _, node := range nodes {
		if node.Frequency > 0 {
			count[node.Frequency]++
		}
	}
	if lowest == 0 && len(count) > 0 {
		lowest = slices.Min(slices.Collect(maps.Keys(count)))
	}
	if lowest == 0 {
		return 0
	}
	like := TSC{Frequency: lowest}
	best := func(frequencies []int64) (int64, bool) {
		good := slices.DeleteFunc(frequencies, func(f int64) bool { return !like.Shows(f) })
		if len(good) == 0 {
			return 0, false
		}
		return slices.Min(good), true
	}
	if frequency, ok := best(slices.Clone(used)); ok {
		return frequency
	}
	common := slices.Collect(maps.Keys(count))
	frequency, _ := best(slices.DeleteFunc(common, func(f int64) bool { return count[f] < 2 }))
	return cmp.Or(frequency, lowest)
}

// UsedTSC lists the frequencies that guests were given.
func UsedTSC(ctx context.Context, from client.Reader) ([]int64, error) {
	var vmis v1.VirtualMachineInstanceList
	if err := from.List(ctx, &vmis, client.MatchingFields{VMIsWithTSC: AnyTSC}); err != nil {
		return nil, fmt.Errorf("list VMIs by the frequency of their time stamp counters: %w", err)
	}
	used := map[int64]bool{}
	for i := range vmis.Items {
		if frequency := GivenTSC(&vmis.Items[i]); frequency > 0 {
			used[frequency] = true
		}
	}
	return slices.Sorted(maps.Keys(used)), nil
}

// GivenTSC returns the frequency that a VMI was given, 0 for none.
func GivenTSC(vmi *v1.VirtualMachineInstance) int64 {
	if hints := vmi.Status.TopologyHints; hints != nil && hints.TSCFrequency != nil {
		return *hints.TSCFrequency
	}
	return 0
}

// chooseTSC finds the frequency for a VMI that needs one and has none yet.
func (r *Reconciler) chooseTSC(ctx context.Context, vmi *v1.VirtualMachineInstance) (int64, error) {
	installation := r.Config()
	if !needsTSC(vmi, Facts{Config: installation, KVM: true}) || GivenTSC(vmi) > 0 {
		return 0, nil
	}
	var list corev1.NodeList
	if err := r.Client.List(ctx, &list); err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	var nodes []TSC
	for i := range list.Items {
		if life.TakesVMs(&list.Items[i]) {
			nodes = append(nodes, TSCOf(list.Items[i].Labels))
		}
	}
	used, err := UsedTSC(ctx, r.Client)
	if err != nil {
		return 0, err
	}
	return pickTSC(installation.LowestTSC, nodes, used), nil
}
