// Package launcherlog determines how much the processes of a VMI's pod log: the launcher, libvirtd and virtiofsd.
// Labels and an annotation of the VMI ask for it, with KubeVirt's names. virt-api refuses what is malformed,
// virt-controller makes arguments of the containers out of it, and the launcher reads libvirt's filters again before it
// writes them into libvirtd's configuration.
package launcherlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// Labels of a VMI.
const (
	// LabelVerbosity is the level of its launcher, a number.
	LabelVerbosity = "logVerbosity"
	// LabelDebug set to true, in any case, makes libvirt log for debugging.
	LabelDebug = "debugLogs"
	// LabelVirtiofsd set to true, in any case, makes virtiofsd log for debugging.
	LabelVirtiofsd = "virtiofsdDebugLogs"
)

// AnnotationFilters is libvirt's log filters, which go before what the labels ask for.
const AnnotationFilters = v1.CustomLibvirtLogFiltersAnnotation

const (
	// MaxVerbosity is the highest level that differs from the ones below; higher ones are the same.
	MaxVerbosity = 9
	// debugFrom is the lowest level at which libvirt logs for debugging, everythingFrom the one at which it leaves none
	// of that out for its volume, virtiofsdFrom the one at which virtiofsd logs for debugging. They are KubeVirt's.
	debugFrom      = 5
	everythingFrom = 8
	virtiofsdFrom  = 6
)

// Verbosity reads the value of LabelVerbosity.
func Verbosity(value string) (uint, error) {
	level, err := strconv.ParseUint(value, 10, 32)
	if errors.Is(err, strconv.ErrRange) {
		return MaxVerbosity, nil
	}
	if err != nil {
		return 0, fmt.Errorf("must be a number from 0 to %d", MaxVerbosity)
	}
	return min(uint(level), MaxVerbosity), nil
}

// Plan holds the log levels of a pod's processes.
type Plan struct {
	// Verbosity is the launcher's level, 0 for its default.
	Verbosity uint
	// Filters are libvirt's, as its log_filters has them; empty are its own.
	Filters string
	// Virtiofsd says that virtiofsd logs for debugging.
	Virtiofsd bool
}

// PlanOf returns the plan for a VMI's labels and annotations where the cluster has launchers log at a level. What is
// malformed counts as not there: virt-api admits none.
func PlanOf(labels, annotations map[string]string, cluster uint) Plan {
	plan := Plan{Verbosity: cluster}
	if text, labelled := labels[LabelVerbosity]; labelled {
		if own, err := Verbosity(text); err == nil {
			plan.Verbosity = own
		}
	}
	plan.Virtiofsd = plan.Verbosity >= virtiofsdFrom || strings.EqualFold(labels[LabelVirtiofsd], "true")
	if own, err := ParseFilters(annotations[AnnotationFilters]); err == nil && own != "" {
		plan.Filters = own
		return plan
	}
	switch debug := strings.EqualFold(labels[LabelDebug], "true"); {
	case plan.Verbosity >= debugFrom:
		plan.Filters = filters(plan.Verbosity)
	case debug:
		plan.Filters = filters(MaxVerbosity)
	}
	return plan
}

// noisy are the parts of libvirt that say much and seldom what is looked for, and noisier those that are left out
// below a level; KubeVirt's choice.
const noisy = "3:remote 4:event 3:util.json 3:util.object 3:util.dbus 3:util.netlink 3:node_device 3:rpc 3:access"

var noisier = []struct {
	below uint
	names string
}{
	{everythingFrom, " 3:util.threadjob 3:cpu.cpu"},
	{7, " 3:qemu.qemu_monitor"},
	{6, " 3:qemu.qemu_monitor_json 3:conf.domain_addr"},
}

// filters returns libvirt's filters for debugging at a level.
func filters(level uint) string {
	out := noisy
	for _, more := range noisier {
		if level < more.below {
			out += more.names
		}
	}
	return out + " 1:*"
}

// Bounds of libvirt's filters: more than anybody needs, and little enough for an argument of a container.
const (
	maxFilters    = 64
	maxFilterName = 64
)

// ParseFilters checks libvirt's log filters and returns them with one space between each: LEVEL:NAME, where LEVEL is 1
// for debugging, 2 for information, 3 for warnings or 4 for errors, and NAME is part of the name of a source file, with
// * for anything; libvirt ignores a + before it. They go into a quoted string of libvirtd's configuration, so nothing
// else is in what is returned. See https://libvirt.org/logging.html.
func ParseFilters(text string) (string, error) {
	// Nothing that is too long is split.
	if len(text) > maxFilters*(maxFilterName+len("1:+ ")) {
		return "", fmt.Errorf("is longer than %d filters", maxFilters)
	}
	all := strings.Fields(text)
	if len(all) > maxFilters {
		return "", fmt.Errorf("has %d filters, more than %d", len(all), maxFilters)
	}
	for _, filter := range all {
		level, name, found := strings.Cut(filter, ":")
		name = strings.TrimPrefix(name, "+")
		switch {
		case !found, name == "":
			return "", fmt.Errorf("%q is not LEVEL:NAME, such as 1:qemu", filter)
		case len(level) != 1 || level[0] < '1' || level[0] > '4':
			return "", fmt.Errorf("the level of %q is not 1 (debug), 2 (info), 3 (warning) or 4 (error)", filter)
		case len(name) > maxFilterName:
			return "", fmt.Errorf("the name of %q is longer than %d bytes", filter, maxFilterName)
		case strings.ContainsFunc(name, notOfName):
			return "", fmt.Errorf("the name of %q has more than letters, digits and any of _.*", filter)
		}
	}
	return strings.Join(all, " "), nil
}

// notOfName reports a character that no name in a filter has.
func notOfName(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && r != '_' && r != '.' && r != '*'
}
