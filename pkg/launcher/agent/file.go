package agent

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	// FileChunk is the most that one command writes to a file of the guest, bytes.
	FileChunk = 64 << 10
	// ReadChunk is the most that one command reads from a file of the guest, bytes.
	ReadChunk = 256 << 10
)

// The modes of OpenFile: the file is made or emptied, or it has to be there.
const (
	ForWriting = "wb"
	ForReading = "rb"
)

// OpenFile returns the command that opens a file in the guest.
func OpenFile(path, mode string) string {
	return Command("guest-file-open", map[string]any{"path": path, "mode": mode})
}

// ParseOpenFile reads the reply to guest-file-open: the file's handle.
func ParseOpenFile(reply string) (handle int64, err error) {
	err = unwrap(reply, &handle)
	return handle, err
}

// WriteFile returns the command that appends to an open file.
func WriteFile(handle int64, data []byte) string {
	return Command("guest-file-write",
		map[string]any{"handle": handle, "buf-b64": base64.StdEncoding.EncodeToString(data)})
}

// ParseWriteFile reads the reply to guest-file-write: how many bytes were written, which may be fewer than were given.
func ParseWriteFile(reply string) (int, error) {
	var r struct {
		Count int `json:"count"`
	}
	err := unwrap(reply, &r)
	return r.Count, err
}

// ReadFile returns the command that reads the next ReadChunk bytes of an open file.
func ReadFile(handle int64) string {
	return Command("guest-file-read", map[string]any{"handle": handle, "count": ReadChunk})
}

// ParseReadFile reads the reply to guest-file-read: ReadChunk bytes at most, and whether the file has ended after them.
func ParseReadFile(reply string) (data []byte, eof bool, err error) {
	var r struct {
		Buf []byte `json:"buf-b64"`
		EOF bool   `json:"eof"`
	}
	err = unwrap(reply, &r)
	switch {
	case err != nil:
		return nil, false, err
	case len(r.Buf) > ReadChunk:
		return nil, false, fmt.Errorf("read the guest agent's reply: it has %d bytes of the file, more than %d",
			len(r.Buf), ReadChunk)
	case len(r.Buf) == 0 && !r.EOF:
		return nil, false, errors.New("read the guest agent's reply: it has no byte of the file, nor its end")
	}
	return r.Buf, r.EOF, nil
}

// FlushFile returns the command that writes out what the agent holds of an open file.
func FlushFile(handle int64) string {
	return Command("guest-file-flush", map[string]any{"handle": handle})
}

// CloseFile returns the command that closes an open file.
func CloseFile(handle int64) string {
	return Command("guest-file-close", map[string]any{"handle": handle})
}

// FileTrouble is an error with a file of the guest.
type FileTrouble int

// The troubles.
const (
	Unclear FileTrouble = iota
	NoFile
	Denied
	IsDirectory
	Full
	ReadOnly
	Forbidden // the agent may not do it: its configuration
)

// fileWords are the messages of Linux, Windows and the agent for them, in lower case.
var fileWords = []struct {
	words   string
	trouble FileTrouble
}{
	{"no such file or directory", NoFile},
	{"not a directory", NoFile},
	{"cannot find the file", NoFile},
	{"cannot find the path", NoFile},
	{"permission denied", Denied},
	{"operation not permitted", Denied},
	{"access is denied", Denied},
	{"is a directory", IsDirectory},
	{"no space left on device", Full},
	{"disk quota exceeded", Full},
	{"not enough space", Full},
	{"read-only file system", ReadOnly},
	{"has been disabled", Forbidden},
	{"is disabled", Forbidden},
	{"has not been found", Forbidden},
}

// TroubleOf reads what the agent, or a program in the guest, says about a file.
func TroubleOf(message string) FileTrouble {
	message = strings.ToLower(message)
	for _, w := range fileWords {
		if strings.Contains(message, w.words) {
			return w.trouble
		}
	}
	return Unclear
}
