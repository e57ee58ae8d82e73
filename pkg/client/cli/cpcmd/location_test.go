package cpcmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

func TestParseLocation(t *testing.T) {
	for text, want := range map[string]location{
		"file":                 {path: "file"},
		"-":                    {path: "-"},
		"./demo:/x":            {path: "./demo:/x"},
		"/demo:/x":             {path: "/demo:/x"},
		"~/demo:x":             {path: "~/demo:x"},
		":x":                   {path: ":x"},
		"demo:/x":              {machine: "demo", path: "/x"},
		"demo:":                {machine: "demo"},
		"demo:/a:b":            {machine: "demo", path: "/a:b"},
		`demo:C:\x`:            {machine: "demo", path: `C:\x`},
		`vmi/demo:\\server\s`:  {machine: "vmi/demo", path: `\\server\s`},
		"VM/demo:/x":           {machine: "VM/demo", path: "/x"},
		"vm/demo/shop:/x":      {machine: "vm/demo/shop", path: "/x"},
		"shop/demo:/x":         {machine: "vm/demo/shop", path: "/x"},
		"shop/demo.example:/x": {machine: "vm/demo.example/shop", path: "/x"},
		"a/b/c/d:/x":           {path: "a/b/c/d:/x"},
	} {
		want.text = text
		if got := parseLocation(text); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string]plan{
		"a b demo:/tmp":     {machine: "demo", direction: "push", sources: []string{"a", "b"}, to: "/tmp"},
		"demo:/a demo:/b .": {machine: "demo", direction: "pull", sources: []string{"/a", "/b"}, to: "."},
		`- shop/demo:C:\dir\file`: {
			machine: "vm/demo/shop", direction: "push", sources: []string{"-"}, to: `C:\dir\file`,
		},
	} {
		words := strings.Fields(line)
		got, err := parse(words[:len(words)-1], words[len(words)-1])
		if err != nil || got.machine != want.machine || got.direction != want.direction ||
			!slices.Equal(got.sources, want.sources) || got.to != want.to {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	p := plan{sources: []string{"dir/a", "b"}, to: "/etc/x"}
	if name, into := p.push("dir/a"); name != "a" || !into {
		t.Errorf("two sources: %q, %t", name, into)
	}
	p = plan{sources: []string{"dir/a"}, to: "/etc/x"}
	if name, into := p.push("dir/a"); name != "a" || into {
		t.Errorf("one source: %q, %t", name, into)
	}
	p.to = "/etc/"
	if _, into := p.push("dir/a"); !into {
		t.Error("a separator at the end does not ask for a directory")
	}
}

// TestOneNameTwice: sources that would be one file are refused, and the refusal names both.
func TestOneNameTwice(t *testing.T) {
	for _, c := range []struct {
		sources []string
		to      string
	}{
		{[]string{"a/x", "y", "b/x"}, "demo:/srv/"},
		{[]string{"x", "./x"}, "demo:/srv"},
		{[]string{"demo:/a/x", "demo:/b/x"}, "."},
	} {
		_, err := parse(c.sources, c.to)
		if cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%q to %s: %v", c.sources, c.to, err)
			continue
		}
		for _, source := range []string{c.sources[0], c.sources[len(c.sources)-1]} {
			if path := parseLocation(source).path; !strings.Contains(err.Error(), `"`+path+`"`) {
				t.Errorf("%v does not name %s", err, path)
			}
		}
	}
	if _, err := parse([]string{"a/x", "b/y"}, "demo:/srv/"); err != nil {
		t.Error(err)
	}
}
