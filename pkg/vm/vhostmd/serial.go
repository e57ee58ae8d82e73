package vhostmd

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// Port is the name of the virtio-serial port that vm-dump-metrics opens in the guest.
const Port = "org.github.vhostmd.1"

const (
	// maxLine bounds a line of a request, bytes; the guest may write what it likes.
	maxLine = 256
	// request is the only one there is.
	request = "GET /metrics/XML"
	refusal = "INVALID REQUEST\n\n"
	// unavailable is the answer when there are no metrics now.
	unavailable = "<metrics><!-- host metrics not available --><!-- VM metrics not available --></metrics>\n\n"
)

// Answer reads one request, a line and an empty one, and writes the answer, which an empty line ends. It calls wait
// before it reads the request, and returns wait's error; report returns the metrics. An error means that the connection
// failed, not that the guest's request was wrong.
func Answer(in *bufio.Reader, out io.Writer, wait func() error, report func() (Report, error)) error {
	if err := wait(); err != nil {
		return err
	}
	line, err := readLine(in)
	if err != nil {
		return err
	}
	empty, err := readLine(in)
	if err != nil {
		return err
	}
	if empty != "" || line != request && !strings.HasPrefix(line, request+" ") {
		_, err := io.WriteString(out, refusal)
		return err
	}
	text := []byte(unavailable)
	if r, err := report(); err == nil {
		if text, err = r.XML(); err != nil {
			return err
		}
		text = append(text, "\n\n"...)
	}
	_, err = out.Write(text)
	return err
}

// readLine reads a line without its end. Of one that is too long it gives the beginning.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, more, err := in.ReadLine()
		if err != nil {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if len(line) < maxLine {
			line = append(line, part[:min(len(part), maxLine-len(line))]...)
		}
		if !more {
			return string(line), nil
		}
	}
}
