package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodProcessProtocol is the subprotocol of the stream of a process in a pod, Kubernetes' own for exec and attach: each
// message begins with a byte that says its channel.
const PodProcessProtocol = "v5.channel.k8s.io"

// Channels of PodProcessProtocol.
const (
	processStdin, processStdout, processStderr = 0, 1, 2
	processStatus, processResize               = 3, 4
	// processClose is a message whose second byte says which channel ends.
	processClose = 255
	// maxStatus bounds what is read of how a process ended, bytes.
	maxStatus = 64 << 10
)

// ErrNoStatus reports a stream that ended without saying how its process did: the connection was cut.
var ErrNoStatus = errors.New("the stream ended before the program did")

// ErrNotRun reports a process that its node does not run, or does not follow any more.
var ErrNotRun = errors.New("the node does not run the program")

// ProcessExitError is a process that ended with a code other than 0.
type ProcessExitError struct{ Code int }

func (e *ProcessExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// PodProcess is a Conn to a process in a pod, dialled with PodProcessProtocol. A Conn is used either through
// PodProcess or by itself, not both.
type PodProcess struct{ *Conn }

// Write sends input to the process.
func (p PodProcess) Write(b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		part := b[sent:min(len(b), sent+maxMessage)]
		message := append(make([]byte, 0, len(part)+1), processStdin)
		if _, err := p.write(append(message, part...)); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}

// EndInput ends the input of the process; its output goes on.
func (p PodProcess) EndInput() error {
	_, err := p.write([]byte{processClose, processStdin})
	return err
}

// Resize says the size of the terminal that the process has, in characters.
func (p PodProcess) Resize(width, height int) error {
	size, err := json.Marshal(struct{ Width, Height int }{width, height})
	if err != nil {
		return err
	}
	_, err = p.write(append([]byte{processResize}, size...))
	return err
}

// Follow passes on what the process writes until it ends. The error is nil after exit code 0, a *ProcessExitError after
// another one, ErrNoStatus or one of Conn.Read when the stream was cut, one of the writers', or ErrNotRun with the
// node's words. Kubernetes also says exit code 0 when the node's connection to the API server is cut.
func (p PodProcess) Follow(stdout, stderr io.Writer) error {
	c := p.Conn
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for c.readErr == nil {
		message := c.next()
		if message == nil {
			break
		}
		var channel [1]byte
		switch _, err := io.ReadFull(message, channel[:]); {
		case errors.Is(err, io.EOF):
			continue // an empty message
		case err != nil:
			c.readErr = c.readError(err)
			continue
		}
		switch channel[0] {
		case processStdout, processStderr:
			to := stdout
			if channel[0] == processStderr {
				to = stderr
			}
			if err := c.pass(message, to); err != nil {
				return err
			}
		case processStatus:
			status, err := io.ReadAll(io.LimitReader(message, maxStatus))
			switch {
			case err != nil:
				c.readErr = c.readError(err)
			case len(status) > 0:
				return processEnd(status)
			}
		case processClose: // of one channel; the status follows
		default:
			c.readErr = fmt.Errorf("the node has sent data of channel %d, which a program does not have", channel[0])
		}
	}
	if errors.Is(c.readErr, io.EOF) {
		return ErrNoStatus
	}
	return c.readErr
}

// pass copies a message. Its error is the writer's; one of the connection is noted.
func (c *Conn) pass(message io.Reader, to io.Writer) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		c.heard() // the writer may have taken long
		n, err := message.Read(*buffer)
		if n > 0 {
			if _, err := to.Write((*buffer)[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			c.readErr = c.readError(err)
			return nil
		}
	}
}

// exitReason and exitCause are Kubernetes' words for a process that ended with a code other than 0.
const (
	exitReason = "NonZeroExitCode"
	exitCause  = "ExitCode"
)

// processEnd reads how a process ended.
func processEnd(data []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(data, &status); err != nil {
		return fmt.Errorf("%w: %s", ErrNotRun, bytes.TrimSpace(data))
	}
	if status.Status == metav1.StatusSuccess {
		return nil
	}
	if status.Reason == exitReason && status.Details != nil {
		for _, cause := range status.Details.Causes {
			if code, err := strconv.ParseUint(cause.Message, 10, 8); cause.Type == exitCause && err == nil && code > 0 {
				return &ProcessExitError{int(code)}
			}
		}
	}
	return fmt.Errorf("%w: %s", ErrNotRun, status.Message)
}
