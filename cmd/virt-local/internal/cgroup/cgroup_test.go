package cgroup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMountinfo(t *testing.T) {
	tests := []struct {
		name, in, mode string
		want           []Hierarchy
	}{
		{
			name: "version 2",
			in: "25 1 0:22 / /sys rw - sysfs sysfs rw\n" +
				"30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			mode: "v2",
			want: []Hierarchy{{Path: "/sys/fs/cgroup", Unified: true}},
		},
		{
			name: "hybrid",
			in: "30 25 0:26 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n" +
				"31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n" +
				"32 25 0:27 / /elsewhere rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n" +
				"33 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n",
			mode: "v1",
			want: []Hierarchy{
				{Path: "/sys/fs/cgroup/unified", Unified: true},
				{Path: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"cpu", "cpuacct"}},
				{Path: "/sys/fs/cgroup/systemd", Controllers: []string{"name=systemd"}},
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseMountinfo(strings.NewReader(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if m := Mode(got); m != test.mode {
				t.Errorf("mode %s, want %s", m, test.mode)
			}
		})
	}
}
