package config

import (
	"fmt"
	"maps"
	"strconv"

	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"
)

// DefaultLogVerbosity is the level at which a component says what matters; KubeVirt's. More is for debugging, up to
// MaxLogVerbosity.
const (
	DefaultLogVerbosity = 2
	MaxLogVerbosity     = 9
)

// LogVerbosity is how much each component says, as klog's levels; 0 is what the component's own flag says.
type LogVerbosity struct {
	API, Controller, Handler, Launcher uint
	// Nodes are levels of virt-handler on single nodes, which go before Handler.
	Nodes map[string]uint
}

// OfHandler returns the level of the virt-handler of a node.
func (v LogVerbosity) OfHandler(node string) uint {
	if level := v.Nodes[node]; level != 0 {
		return level
	}
	return v.Handler
}

// setVerbosity reads the levels; none is more than MaxLogVerbosity.
func setVerbosity(into *LogVerbosity, from *v1.LogVerbosity) error {
	if from == nil {
		return nil
	}
	out := LogVerbosity{
		API: from.VirtAPI, Controller: from.VirtController, Handler: from.VirtHandler, Launcher: from.VirtLauncher,
		Nodes: maps.Clone(from.NodeVerbosity),
	}
	for name, level := range map[string]uint{
		"virtAPI": out.API, "virtController": out.Controller, "virtHandler": out.Handler, "virtLauncher": out.Launcher,
	} {
		if level > MaxLogVerbosity {
			return fmt.Errorf("spec.configuration.developerConfiguration.logVerbosity.%s: %d is more than %d", name,
				level, MaxLogVerbosity)
		}
	}
	*into = out
	return nil
}

// OnVerbosity registers set, which is called with a component's level after each change of the configuration: what of
// picks, and own where the configuration says nothing.
func (f *Follower) OnVerbosity(own uint, of func(LogVerbosity) uint, set func(level uint)) {
	f.OnChange(func() {
		level := of(f.Current().LogVerbosity)
		if level == 0 {
			level = own
		}
		set(level)
	})
}

// SetKlog makes klog say what belongs to a level. klog counts what is for debugging from 1, so a level of which nobody
// expects that is 0 there.
func SetKlog(level uint) {
	if level <= DefaultLogVerbosity {
		level = 0
	}
	var v klog.Level
	if err := v.Set(strconv.FormatUint(uint64(level), 10)); err != nil {
		panic(err) // a number is one
	}
}
