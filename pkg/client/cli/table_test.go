package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/printers"
)

func TestTable(t *testing.T) {
	for name, test := range map[string]struct {
		rows [][]string
		want string
	}{
		"none":         {nil, ""},
		"narrow cells": {[][]string{{"A", "OF", "B"}, {"1", "2", "3"}}, "A     OF    B\n1     2     3\n"},
		"wide cells":   {[][]string{{"NAME", "NOTE"}, {"sjælland", "x"}}, "NAME       NOTE\nsjælland   x\n"},
		"no blanks at the end": {
			[][]string{{"NAME", "AGE", "NOTE"}, {"a", "5d", ""}, {"b", "100m", "paused"}, {"c", "", ""}},
			"NAME   AGE    NOTE\na      5d\nb      100m   paused\nc\n",
		},
		"two tables": {
			[][]string{{"NAMESPACE", "NAME"}, {"default", "a"}, nil, {"NODE", "STATE"}, {"n1", "ready"}},
			"NAMESPACE   NAME\ndefault     a\n\nNODE   STATE\nn1     ready\n",
		},
		"hostile cells": {[][]string{{"a\tb\nc", "d\x1b"}}, "a b c   d\\u001b\n"},
	} {
		var out bytes.Buffer
		table := NewTable(&out)
		for _, row := range test.rows {
			table.Row(row...)
		}
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, out.String()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A table without empty cells is what kubectl would print.
func TestTableIsKubectls(t *testing.T) {
	var ours, kubectls bytes.Buffer
	table, writer := NewTable(&ours), printers.GetNewTabWriter(&kubectls)
	for _, row := range [][]string{
		{"NAME", "OF", "READY", "AGE"}, {"a", "1", "True", "<unknown>"}, {"bbbbbbbbbbbb", "16", "False", "5d"},
	} {
		table.Row(row...)
		if _, err := writer.Write([]byte(strings.Join(row, "\t") + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(table.Flush(), writer.Flush()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kubectls.String(), ours.String()); diff != "" {
		t.Error(diff)
	}
}

// TestOneTable holds that commands print tables by Table. A description has kubectl's own widths for such.
func TestOneTable(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(`"text/tabwriter"`)) && filepath.ToSlash(file) != "describecmd/text.go" {
			t.Errorf("%s makes a tabwriter of its own; cli.NewTable has the widths of all tables", file)
		}
	}
}

// TestGrowingTable adds rows after others were printed.
func TestGrowingTable(t *testing.T) {
	var out bytes.Buffer
	table := NewGrowingTable(&out)
	for _, rows := range [][][]string{
		{{"LAST SEEN", "TYPE", "REASON"}, {"2m57s", "Normal", "Started"}},
		{{"0s", "Normal", "Deleted"}},
	} {
		for _, row := range rows {
			table.Row(row...)
		}
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	const want = "LAST SEEN   TYPE     REASON\n2m57s       Normal   Started\n0s          Normal   Deleted\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
