// Package plugins tests that what is shipped for kubectl, krew and k9s fits the program: its commands and flags, and
// the names of a release's archives.
package plugins

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/root"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestK9s(t *testing.T) {
	var file struct {
		Plugins map[string]struct {
			ShortCut, Description, Command string
			Scopes, Args                   []string
		}
	}
	if err := yaml.UnmarshalStrict([]byte(strings.NewReplacer("    background:",
		"    #", "    confirm:", "    #").Replace(read(t, "k9s.yaml"))), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Plugins) == 0 {
		t.Fatal("no plugins")
	}
	keys := map[string]string{}
	for name, plugin := range file.Plugins {
		if other, taken := keys[plugin.ShortCut]; taken {
			t.Errorf("%s and %s have the key %s", name, other, plugin.ShortCut)
		}
		keys[plugin.ShortCut] = name
		args := plugin.Args
		if plugin.Command == "sh" {
			line, _, _ := strings.Cut(args[1], "|")
			args = strings.Fields(strings.ReplaceAll(line, `"`, ""))[1:]
		} else if plugin.Command != "virtctl" {
			t.Errorf("%s runs %s", name, plugin.Command)
		}
		tree := root.NewCommand(cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" }))
		cmd, rest, err := tree.Find(args)
		if err != nil || cmd == tree {
			t.Errorf("%s: no command %q: %v", name, args, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKrewDownloadsTheArchives(t *testing.T) {
	var release struct {
		Builds   []struct{ Goos, Goarch []string }
		Archives []struct {
			NameTemplate string `json:"name_template"`
			Files        []struct{ Src string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../.goreleaser.yaml")), &release); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, system := range release.Builds[0].Goos {
		for _, machine := range release.Builds[0].Goarch {
			name := strings.NewReplacer("{{ .Os }}", system, "{{ .Arch }}",
				machine).Replace(release.Archives[0].NameTemplate)
			if system == "windows" {
				want = append(want, name+".zip")
			} else {
				want = append(want, name+".tar.gz")
			}
		}
	}
	var got []string
	for _, match := range regexp.MustCompile(`/(virtctl_[a-z0-9_.]+)"`).FindAllStringSubmatch(read(t, "krew.yaml"),
		-1) {
		got = append(got, match[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) != 6 {
		t.Errorf("krew.yaml downloads %q, a release has %q", got, want)
	}
	for _, file := range release.Archives[0].Files {
		if found, err := filepath.Glob(filepath.Join("..", file.Src)); err != nil || len(found) == 0 {
			t.Errorf(".goreleaser.yaml packs %s, which there is not (%v)", file.Src, err)
		}
	}
}
