package dashboardcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// remembered is how many commands are kept.
const remembered = 200

// historyFile returns the file with the commands that were typed in the dashboard; "" where there is no directory for
// it.
func (s *session) historyFile() string {
	dir, err := cli.StateDir(s.options.Factory.Getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "dashboard-history")
}

// history returns the commands of earlier sessions; none when they cannot be read, since they are only a convenience.
func (s *session) history() []string {
	file := s.historyFile()
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(widget.Harmless(line)); line != "" {
			out = append(out, line)
		}
	}
	return out[max(0, len(out)-remembered):]
}

// remember keeps the commands; that it cannot is worth a line, not a failure.
func (s *session) remember(history []string) {
	file := s.historyFile()
	if file == "" || len(history) == 0 {
		return
	}
	history = history[max(0, len(history)-remembered):]
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Join(history, "\n")+"\n"), 0o600)
	}
	if err != nil {
		fmt.Fprintf(s.options.Factory.IO.ErrOut, "warning: the commands are not remembered: %s\n", err)
	}
}
