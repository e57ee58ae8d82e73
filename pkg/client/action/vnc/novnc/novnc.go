// Package novnc holds noVNC, the VNC client in JavaScript, for `virtctl vnc --web`. It is the npm package @novnc/novnc
// (MPL 2.0), which the build fetches and embeds; it is not part of this repository, so a plain `go build` has none.
// It is a package of its own so that package vnc does without it.
package novnc

import (
	"archive/zip"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

//go:embed files
var files embed.FS

// ErrMissing is a program that was built without noVNC.
var ErrMissing = errors.New("this virtctl was built without noVNC; build it with `make build`")

// Open gives noVNC's files: core/rfb.js and what belongs to it.
func Open() (fs.FS, error) {
	data, err := files.ReadFile("files/novnc.zip")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, err
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("read the embedded noVNC: %w", err)
	}
	return archive, nil
}
