package launcherlog

import (
	"regexp"
	"strings"
	"testing"
)

func TestPlanOf(t *testing.T) {
	const everything = "3:remote 4:event 3:util.json 3:util.object 3:util.dbus 3:util.netlink " +
		"3:node_device 3:rpc 3:access"
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		cluster             uint
		want                Plan
	}{
		"nothing asked for":   {cluster: 0, want: Plan{}},
		"the cluster's level": {cluster: 3, want: Plan{Verbosity: 3}},
		"its own":             {labels: map[string]string{LabelVerbosity: "4"}, cluster: 3, want: Plan{Verbosity: 4}},
		"malformed": {
			labels: map[string]string{LabelVerbosity: "loud"}, cluster: 3, want: Plan{Verbosity: 3},
		},
		"just not debugging": {
			labels: map[string]string{LabelVerbosity: "4", LabelDebug: "no"}, want: Plan{Verbosity: 4},
		},
		"debugging": {labels: map[string]string{LabelDebug: "TruE"}, want: Plan{Filters: everything + " 1:*"}},
		"virtiofsd": {labels: map[string]string{LabelVirtiofsd: "True"}, want: Plan{Virtiofsd: true}},
		"level 10 is KubeVirt's": {
			labels: map[string]string{LabelVerbosity: "10"},
			want:   Plan{Verbosity: 9, Filters: everything + " 1:*", Virtiofsd: true},
		},
		"level 5, of the cluster": {cluster: 5, want: Plan{Verbosity: 5, Filters: everything +
			" 3:util.threadjob 3:cpu.cpu 3:qemu.qemu_monitor 3:qemu.qemu_monitor_json 3:conf.domain_addr 1:*"}},
		"level 6": {cluster: 6, want: Plan{
			Verbosity: 6, Virtiofsd: true,
			Filters: everything + " 3:util.threadjob 3:cpu.cpu 3:qemu.qemu_monitor 1:*",
		}},
		"level 7": {cluster: 7, want: Plan{
			Verbosity: 7, Virtiofsd: true, Filters: everything + " 3:util.threadjob 3:cpu.cpu 1:*",
		}},
		"filters before labels": {
			labels:      map[string]string{LabelDebug: "true"},
			annotations: map[string]string{AnnotationFilters: " 2:qemu.qemu_monitor  3:* "},
			want:        Plan{Filters: "2:qemu.qemu_monitor 3:*"},
		},
		"malformed filters": {
			annotations: map[string]string{AnnotationFilters: "1:*\"\nlog_outputs=\"1:file:/x"}, want: Plan{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := PlanOf(c.labels, c.annotations, c.cluster); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if _, err := ParseFilters(c.want.Filters); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParseFilters(t *testing.T) {
	for text, want := range map[string]string{
		"qemu":                         "is not LEVEL:NAME",
		"1:":                           "is not LEVEL:NAME",
		"1:+":                          "is not LEVEL:NAME",
		"0:qemu":                       "is not 1 (debug)",
		"5:qemu":                       "is not 1 (debug)",
		"01:qemu":                      "is not 1 (debug)",
		"1:qemu:rpc":                   "letters, digits",
		"1:qemu\"":                     "letters, digits",
		"1:qémü":                       "letters, digits",
		"1:a\x00":                      "letters, digits",
		"1:a,1:b":                      "letters, digits",
		"1:" + strings.Repeat("a", 65): "longer than 64 bytes",
		strings.Repeat("1:a ", 65):     "has 65 filters",
		strings.Repeat(" ", 1<<20):     "is longer than",
	} {
		if got, err := ParseFilters(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %q, %v; want an error with %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "", " ": "", "1:*": "1:*", "\t3:util.json\n 4:+node_device ": "3:util.json 4:+node_device",
	} {
		if got, err := ParseFilters(text); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// FuzzParseFilters parses libvirt's log filters. Whatever they are, what is returned is a list that libvirt knows, has
// no byte that would end the string it is written into, and parses as itself.
func FuzzParseFilters(f *testing.F) {
	for _, text := range []string{
		"1:*", "3:remote 4:event 1:*", "2:+qemu.qemu_monitor", "1:a\"\nlog_outputs = \"1:file:/x", "1:\\",
		"1:a\u00a02:b", "0:a", ":", "1::",
	} {
		f.Add(text)
	}
	known := regexp.MustCompile(`^[1-4]:\+?[A-Za-z0-9_.*]{1,64}$`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseFilters(text)
		if err != nil {
			if got != "" {
				t.Errorf("%q is refused and returned as %q", text, got)
			}
			return
		}
		filters := strings.Fields(got)
		if len(filters) > 64 || got != strings.Join(filters, " ") {
			t.Errorf("%q is admitted as %q", text, got)
		}
		for _, filter := range filters {
			if !known.MatchString(filter) {
				t.Errorf("%q is admitted as %q", text, got)
			}
		}
		if again, err := ParseFilters(got); err != nil || again != got {
			t.Errorf("%q parses as %q, %v", got, again, err)
		}
	})
}
