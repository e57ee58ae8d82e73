package agent

import "encoding/base64"

// FileChunk is how much is written to a file of the guest with one command, bytes.
const FileChunk = 64 << 10

// OpenFile is the command that makes a file in the guest, or empties it, for writing.
func OpenFile(path string) string {
	return Command("guest-file-open", map[string]any{"path": path, "mode": "wb"})
}

// ParseOpenFile reads the reply to guest-file-open: the file's handle.
func ParseOpenFile(reply string) (handle int64, err error) {
	err = unwrap(reply, &handle)
	return handle, err
}

// WriteFile is the command that appends to an open file.
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

// CloseFile is the command that closes an open file.
func CloseFile(handle int64) string {
	return Command("guest-file-close", map[string]any{"handle": handle})
}
