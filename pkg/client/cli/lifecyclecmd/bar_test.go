package lifecyclecmd

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/client/action/migrate"
	account "github.com/virtkit/virtkit/pkg/report/progress"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

func TestBar(t *testing.T) {
	p := &account.Progress{
		Mode: "PreCopy", TotalBytes: 100 << 20, RemainingBytes: 40 << 20, BandwidthBytesPerSecond: 20 << 20,
	}
	for width, want := range map[int]string{
		0:   "demo [============        ] 60 %, 40.0 MiB left at 20.0 MiB/s, about 2s",
		30:  "demo [============        ] 6",
		200: "demo [============        ] 60 %, 40.0 MiB left at 20.0 MiB/s, about 2s",
	} {
		if got := bar("demo", p, width); got != want {
			t.Errorf("%d: %q", width, got)
		}
	}
}

func TestWritePlan(t *testing.T) {
	var out bytes.Buffer
	err := writePlan(&out, &migrate.Plan{
		Namespace: "default", Name: "demo", From: "node1", MemoryBytes: 1 << 30,
		Nodes: []migrate.Node{{Name: "node2", Fits: true}, {Name: "node3", Reasons: []string{"it is cordoned"}}},
		Disks: []migrate.Disk{
			{Volume: "root", How: migrate.Copied},
			{Volume: "scratch", How: migrate.Copied, Bytes: 1 << 21},
			{Volume: "data", How: migrate.Shared},
		},
		Policy: "fast", Configuration: surface.Migrations(nil),
		Waits: []string{"migration m of the same guest is under way"}, Unread: []string{"nodes"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `VM          default/demo on node1
To          node2
            not node3: it is cordoned
Memory      1.0 GiB
Disks       root: copied as the guest has it
            scratch: copied as the guest has it, at most 2.0 MiB
            data: shared, nothing is copied
Policy      fast
Bandwidth   no limit
Time        150 s for each GiB, then it is given up; 150 s without progress
Waits       migration m of the same guest is under way
Not read    nodes: you may not
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
