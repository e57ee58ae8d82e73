package cli

import (
	"errors"
	"path/filepath"
	"runtime"
)

// StateDir returns where a program keeps what is to survive it and is of no use elsewhere: $XDG_STATE_HOME/virtkit,
// else ~/.local/state/virtkit, and on Windows %LocalAppData%\virtkit. It is not made.
func StateDir(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "virtkit"), nil
	}
	if runtime.GOOS == "windows" {
		if dir := getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "virtkit"), nil
		}
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "virtkit"), nil
	}
	return "", errors.New("there is no place for state: set $XDG_STATE_HOME or $HOME")
}
