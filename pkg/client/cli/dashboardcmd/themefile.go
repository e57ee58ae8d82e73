package dashboardcmd

import (
	"errors"
	"fmt"
	"io/fs"
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
	var colours map[string]any
	if err := yaml.Unmarshal(data, &colours); err != nil {
		return nil, fmt.Errorf("read the theme %s: %w", path, err)
	}
	out := map[string]string{}
	for role, value := range colours {
		text := fmt.Sprint(value)
		switch {
		case !slices.Contains(theme.Roles(), role):
			return nil, fmt.Errorf("theme %s: there is no role %q; it is one of %s", path, role,
				strings.Join(theme.Roles(), ", "))
		case !colour.MatchString(text):
			return nil, fmt.Errorf("theme %s: %s: %q is no colour; give a number from 0 to 255 or #rrggbb in quotes",
				path, role, text)
		}
		out[role] = text
	}
	return out, nil
}
