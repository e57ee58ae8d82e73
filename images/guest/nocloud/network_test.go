package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// Every testdata/*.yaml is a network-config; the .golden beside it is what a guest with three
// interfaces does with it.
func TestNetworkPlans(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no test files", err)
	}
	devices := []Device{{"eth0", "02:00:00:00:00:01"}, {"eth1", "02:00:00:00:00:02"}, {"eth2", "02:00:00:00:00:03"}}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := planText(data, devices)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func planText(data []byte, devices []Device) string {
	n, err := ParseNetwork(data)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var s strings.Builder
	plan := n.assign(devices)
	for _, d := range devices {
		i, ok := plan[d.Name]
		if !ok {
			fmt.Fprintf(&s, "%s: left down\n", d.Name)
			continue
		}
		fmt.Fprintf(&s, "%s:\n", d.Name)
		for _, c := range i.commands(d.Name) {
			fmt.Fprintf(&s, "  %s\n", strings.Join(c, " "))
		}
	}
	fmt.Fprintf(&s, "dns %v search %v\n", n.DNS, n.Search)
	for _, i := range n.Ignored {
		fmt.Fprintf(&s, "ignored: %s\n", i)
	}
	return s.String()
}

func FuzzNetwork(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		planText(data, []Device{{"eth0", "02:00:00:00:00:01"}, {"eth1", "02:00:00:00:00:02"}})
	})
}
