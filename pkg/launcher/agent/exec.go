package agent

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/virtkit/virtkit/pkg/stream/exec"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// Limits of guest-exec. The agent gives a program's output in one reply, after its end.
const (
	// MaxOutput is about the most that a program can write and be heard, bytes: its two outputs together, which are
	// 4 MiB in base64.
	MaxOutput = 3 << 20

	maxExecReply = 8 << 20
)

// ExecStatus is the agent's status of a program that it has started.
type ExecStatus struct {
	// Exited is false while the program runs; then nothing else is known.
	Exited bool
	// ExitCode counts unless Signal is not zero.
	ExitCode, Signal int
	// Output and ErrorOutput are the program's output so far; Truncated says that the agent dropped some.
	Output, ErrorOutput []byte
	Truncated           bool
}

// CheckExec refuses a program that no agent could run.
func CheckExec(command []string, input []byte) error {
	if len(command) == 0 || command[0] == "" {
		return errors.New("there is no command to run")
	}
	size := 0
	for _, word := range command {
		if strings.ContainsRune(word, 0) {
			return errors.New("a word of the command has a NUL byte")
		}
		size += len(word)
	}
	switch {
	case len(command) > surface.MaxCommandWords:
		return fmt.Errorf("the command has %d words; the most is %d", len(command), surface.MaxCommandWords)
	case size > surface.MaxCommandBytes:
		return fmt.Errorf("the command has %d bytes; the most is %d", size, surface.MaxCommandBytes)
	case len(input) > exec.MaxInput:
		return fmt.Errorf("standard input has more than %d bytes, which is the most; copy the data as a file instead",
			exec.MaxInput)
	}
	return nil
}

// Exec returns the command that starts a program and collects its output.
func Exec(command []string, input []byte) string {
	arguments := map[string]any{"path": command[0], "capture-output": true}
	if len(command) > 1 {
		arguments["arg"] = command[1:]
	}
	if len(input) > 0 {
		arguments["input-data"] = base64.StdEncoding.EncodeToString(input)
	}
	return Command("guest-exec", arguments)
}

// ParseExec reads the reply to guest-exec: the program's number.
func ParseExec(reply string) (pid int64, err error) {
	var r struct {
		PID *int64 `json:"pid"`
	}
	if err := unwrap(reply, &r); err != nil {
		return 0, err
	}
	if r.PID == nil {
		return 0, errors.New("read the guest agent's reply: it has no pid")
	}
	return *r.PID, nil
}

// AskExec returns the command that asks how a program is doing. After its end the agent answers once.
func AskExec(pid int64) string {
	return Command("guest-exec-status", map[string]any{"pid": pid})
}

// ParseExecStatus reads the reply to guest-exec-status.
func ParseExecStatus(reply string) (ExecStatus, error) {
	var r struct {
		Exited       bool   `json:"exited"`
		ExitCode     int    `json:"exitcode"`
		Signal       int    `json:"signal"`
		Out          []byte `json:"out-data"`
		Err          []byte `json:"err-data"`
		OutTruncated bool   `json:"out-truncated"`
		ErrTruncated bool   `json:"err-truncated"`
	}
	if err := unwrapUpTo(maxExecReply, reply, &r); err != nil {
		return ExecStatus{}, err
	}
	return ExecStatus{
		Exited: r.Exited, ExitCode: r.ExitCode, Signal: r.Signal,
		Output: r.Out, ErrorOutput: r.Err, Truncated: r.OutTruncated || r.ErrTruncated,
	}, nil
}

// IsNoProgram reports whether the agent's refusal of guest-exec means that there is no such program.
func IsNoProgram(message string) bool {
	return strings.Contains(message, "No such file or directory") || strings.Contains(message, "cannot find the file")
}
