package dashboardcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// TestThemeFile says in a line what is wrong with a theme.
func TestThemeFile(t *testing.T) {
	t.Parallel()
	got, err := colours("t", []byte("good: 10\nbad: \"#ff5F5f\"\nfound-here: \"244\"\n"))
	if diff := cmp.Diff(map[string]string{"good": "10", "bad": "#ff5F5f", "found-here": "244"}, got); diff != "" {
		t.Error(diff, err)
	}
	for text, want := range map[string]string{
		"":                       "",
		"# nothing\n":            "",
		"goood: 1":               `theme t: there is no role "goood"; it is one of accent, bad, `,
		"good: #ff5f5f":          "theme t: good has no colour; #rrggbb stands in quotes",
		"good: 256":              `theme t: good: "256" is no colour; give a number from 0 to 255 or #rrggbb in quotes`,
		"good: red":              `theme t: good: "red" is no colour`,
		"good: [1, 2]":           `theme t: good: "[1 2]" is no colour`,
		"- good":                 "theme t: give a line for each role, such as `good: 10`",
		"green":                  "theme t: give a line for each role, such as `good: 10`",
		"good: 1\n  bad: {\n\tx": "theme t: yaml: line ",
	} {
		_, err := colours("t", []byte(text))
		said := ""
		if err != nil {
			said = err.Error()
		}
		if !strings.HasPrefix(said, want) || want == "" && said != "" || strings.Contains(said, "\n") ||
			strings.Contains(said, "interface") || strings.Contains(said, "JSON") {
			t.Errorf("%q: %q, not %q", text, said, want)
		}
	}
}

// TestThemeIsForPages has a report not care about a theme that is wrong.
func TestThemeIsForPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "virtkit"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "virtkit", "theme.yaml"), []byte("nope: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := cli.NewFactory("virtctl", cli.NoStreams(),
		func(name string) string { return map[string]string{"XDG_CONFIG_HOME": dir}[name] })
	for _, o := range []*Options{{Factory: f, Once: true}, {Factory: f, Plain: true}} {
		if _, err := o.theme(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := (&Options{Factory: f, Theme: "auto"}).theme(); err == nil {
		t.Error("a wrong theme is taken")
	}
}
