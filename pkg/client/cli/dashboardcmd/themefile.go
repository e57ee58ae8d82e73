package dashboardcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

var colour = regexp.MustCompile(`^(#[0-9a-fA-F]{6}|[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])$`)

// themeFile reads the user's colours: those of roles, as theme.Options takes them. There need be no file.
func themeFile(env func(string) string) (map[string]string, error) {
	dir := env("XDG_CONFIG_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, nil //nolint:nilerr // who has no home has no file there
		}
		dir = filepath.Join(home, ".config")
	}
	path := filepath.Join(dir, "virtkit", "theme.yaml")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the theme: %w", err)
	}
	return colours(path, data)
}

// colours returns the colours in a theme's file. The error names the first thing that is wrong, in a line.
func colours(path string, data []byte) (map[string]string, error) {
	var read any
	if err := yaml.Unmarshal(data, &read); err != nil {
		why := strings.ReplaceAll(err.Error(), "error converting YAML to JSON: ", "")
		return nil, fmt.Errorf("theme %s: %s", path, strings.Join(strings.Fields(why), " "))
	}
	given, ok := read.(map[string]any)
	if !ok && read != nil {
		return nil, fmt.Errorf("theme %s: give a line for each role, such as `good: 10`", path)
	}
	out := map[string]string{}
	for _, role := range slices.Sorted(maps.Keys(given)) {
		text := fmt.Sprint(given[role])
		switch {
		case !slices.Contains(theme.Roles(), role):
			return nil, fmt.Errorf("theme %s: there is no role %q; it is one of %s", path, role,
				strings.Join(theme.Roles(), ", "))
		case given[role] == nil:
			return nil, fmt.Errorf("theme %s: %s has no colour; #rrggbb stands in quotes, as # begins a comment", path,
				role)
		case !colour.MatchString(text):
			return nil, fmt.Errorf("theme %s: %s: %q is no colour; give a number from 0 to 255 or #rrggbb in quotes",
				path, role, text)
		}
		out[role] = text
	}
	return out, nil
}
