package templatecmd

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/vmtemplate"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// A template is named once: by the argument, by --name, or by a file.
func TestTake(t *testing.T) {
	for _, test := range []struct {
		name, file string
		args       []string
		want       string // where the template is; empty for a wrong command line
	}{
		{"", "", []string{"fedora"}, "fedora"},
		{"fedora", "", nil, "fedora"},
		{"", "fedora.yaml", nil, "fedora.yaml"},
		{"", "", nil, ""},
		{"fedora", "", []string{"fedora"}, ""},
		{"fedora", "fedora.yaml", nil, ""},
		{"", "fedora.yaml", []string{"fedora"}, ""},
	} {
		s := source{name: test.name, file: test.file}
		err := s.take(test.args)
		wrong := err != nil || s.where() != test.want
		if test.want == "" {
			wrong = cli.ExitCode(err) != cli.ExitUsage
		}
		if wrong {
			t.Errorf("%+v: %s, %v", test, s.where(), err)
		}
	}
}

// A value is a text: a number or boolean needs no quotes.
func TestReadParameters(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"NAME: web\nCORES: 2\nSECURE: true\n": {"NAME": "web", "CORES": "2", "SECURE": "true"},
		`{"NAME": "01", "SIZE": 1.5}`:         {"NAME": "01", "SIZE": "1.5"},
		"":                                    {},
		"[web]":                               nil,
	} {
		path := filepath.Join(t.TempDir(), "values")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
		got, err := readParameters(f, path)
		if want == nil {
			if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "is no object of values") {
				t.Errorf("%q: %v, %v", text, got, err)
			}
			continue
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}

// Parameters are printed as a list, also where there are none.
func TestPrintParameters(t *testing.T) {
	for _, test := range []struct {
		format     string
		parameters []vmtemplate.Parameter
		want       string
	}{
		{"yaml", []vmtemplate.Parameter{{Name: "NAME", Required: true}}, "- name: NAME\n  required: true\n"},
		{"yaml", nil, "[]\n"},
		{"json", []vmtemplate.Parameter{{Name: "CORES", Value: "2"}}, "[\n    {\n        \"name\": \"CORES\",\n" +
			"        \"value\": \"2\"\n    }\n]\n"},
		{"json", nil, "[]\n"},
	} {
		var out bytes.Buffer
		streams := cli.NoStreams()
		streams.Out = &out
		o := &ProcessOptions{
			Factory: cli.NewFactory("virtctl", streams, func(string) string { return "" }), Output: cli.NewOutput(),
		}
		o.Output.Format = test.format
		if err := o.printParameters(test.parameters); err != nil || out.String() != test.want {
			t.Errorf("%s of %d: %q, %v", test.format, len(test.parameters), &out, err)
		}
	}
}
