package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

// qmp asks the QEMU of a machine for one thing.
func qmp(ctx context.Context, dir, command string, arguments map[string]any) (result json.RawMessage, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	// A socket's path has little room, and the directory's may be long.
	conn, err := new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/qmp.sock", d.Fd()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments // QMP takes no null
	}
	requests := []map[string]any{{"execute": "qmp_capabilities"}, request}
	lines := bufio.NewReader(conn)
	for _, r := range requests {
		if err := json.NewEncoder(conn).Encode(r); err != nil {
			return nil, fmt.Errorf("ask QEMU for %s: %w", command, err)
		}
		if result, err = answer(lines); err != nil {
			return nil, fmt.Errorf("ask QEMU for %s: %w", command, err)
		}
	}
	return result, nil
}

// answer reads the answer to one command; greetings and events come between.
func answer(lines *bufio.Reader) (json.RawMessage, error) {
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var message struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Text string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(line, &message); err != nil {
			return nil, err
		}
		switch {
		case message.Error != nil:
			return nil, errors.New(message.Error.Text)
		case message.Return != nil:
			return message.Return, nil
		}
	}
}

// quit ends QEMU at once.
func quit(ctx context.Context, dir string) error {
	_, err := qmp(ctx, dir, "quit", nil)
	if errors.Is(err, io.EOF) {
		return nil // it was faster than its answer
	}
	return err
}

// port asks QEMU for the port by which the machine's SSH is reached.
func port(ctx context.Context, dir string) (int, error) {
	answer, err := qmp(ctx, dir, "human-monitor-command", map[string]any{"command-line": "info usernet"})
	if err != nil {
		return 0, err
	}
	var table string
	if err := json.Unmarshal(answer, &table); err != nil {
		return 0, err
	}
	return forwarded(table)
}

// forwarded finds the port of this machine that is forwarded, in a table of QEMU's.
func forwarded(table string) (int, error) {
	for line := range strings.Lines(table) {
		// TCP[HOST_FORWARD]  14       127.0.0.1 35287       10.0.2.15    22     0     0
		if f := strings.Fields(line); len(f) > 3 && f[0] == "TCP[HOST_FORWARD]" {
			return strconv.Atoi(f[3])
		}
	}
	return 0, fmt.Errorf("QEMU forwards no port: %s", strings.TrimSpace(table))
}
