// Package exec is the protocol of the subresource exec, virtkit's own, which runs a program in a guest through the
// guest agent. It travels as the bytes of a stream (package stream), in frames of its own, since what lies between
// keeps bytes and not messages:
//
//	channel (1 byte)  length (4 bytes, big endian)  payload (at most MaxFrame bytes)
//
// The client sends one Request frame, then, if the request says so, Stdin frames, of which an empty one is the end.
// The server sends Stdout and Stderr frames and, last of all, one Result frame. A client that closes before it, or
// ends its direction, has left: the program is ended as far as the guest has means for it. docs/guest-agent.md
// describes it for other clients.
package exec

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Subresource is its name, of virtualmachineinstances, in the API and in RBAC (verb get).
const Subresource = "exec"

// Channel identifies what a frame carries.
type Channel byte

// The channels.
const (
	ChannelRequest Channel = iota
	ChannelStdin
	ChannelStdout
	ChannelStderr
	ChannelResult
)

// Limits, bytes.
const (
	// MaxFrame is the largest payload.
	MaxFrame = 256 << 10
	// MaxInput is the most that a program can be given to read: the agent takes it in one piece.
	MaxInput = 2 << 20
)

// Request holds what to run.
type Request struct {
	// Command is the program, by path or by name, and its arguments. No shell sees it.
	Command []string `json:"command"`
	// Stdin says that Stdin frames follow. The program starts when they have ended.
	Stdin bool `json:"stdin,omitempty"`
}

// ReasonNoProgram is the reason of a failure that is about the program: the guest has none of that name.
const ReasonNoProgram metav1.StatusReason = "NoSuchProgram"

// ReasonLost is the reason of a failure after the program was started: nobody knows how it ended.
const ReasonLost metav1.StatusReason = "ProgramLost"

// Result is the result of a program.
type Result struct {
	// ExitCode is the program's, unless Signal, which ended it, is not zero.
	ExitCode int `json:"exitCode"`
	Signal   int `json:"signal,omitempty"`
	// Truncated says that the guest's agent has dropped some of the output.
	Truncated bool `json:"truncated,omitempty"`
	// Failure is set when the program has not run, or its end is not known.
	Failure *metav1.Status `json:"failure,omitempty"`
}

// ErrTooLarge is returned by ReadFrame for a frame that is larger than MaxFrame.
var ErrTooLarge = errors.New("the frame is too large")

// WriteFrame writes one frame with one Write. Several goroutines need a lock of their own.
func WriteFrame(w io.Writer, channel Channel, payload []byte) error {
	if len(payload) > MaxFrame {
		return ErrTooLarge
	}
	frame := make([]byte, 0, 5+len(payload))
	frame = append(frame, byte(channel))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload)))
	_, err := w.Write(append(frame, payload...))
	return err
}

// WriteJSON writes a frame with a value as JSON.
func WriteJSON(w io.Writer, channel Channel, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	return WriteFrame(w, channel, payload)
}

// WriteAll writes data of any length as frames of a channel.
func WriteAll(w io.Writer, channel Channel, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), MaxFrame)
		if err := WriteFrame(w, channel, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// ReadFrame reads one frame. It returns io.EOF at the end of the stream between two frames, io.ErrUnexpectedEOF
// inside one, and ErrTooLarge.
func ReadFrame(r io.Reader) (Channel, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, ErrTooLarge
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return Channel(head[0]), payload, nil
}
