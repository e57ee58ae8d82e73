package vnc

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/client/action/part"
)

// maxHead is how much of a picture is kept to read its size from, bytes.
const maxHead = 64

// Picture describes the file that Save has written.
type Picture struct {
	Width, Height int
	Bytes         int64
}

// Save writes a PNG to a file, which is there whole or not at all; what a link leads to is written. What is no regular
// file, such as a pipe, is written as it is.
func Save(path string, picture io.Reader) (p Picture, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return p, fmt.Errorf("write the screenshot: %w", err)
		}
		p, err = Copy(file, picture)
		return p, errors.Join(err, file.Close())
	}
	target, err := part.Target(path)
	if err != nil {
		return p, fmt.Errorf("write the screenshot: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(target), ".screenshot-*")
	if err != nil {
		var where *fs.PathError
		if errors.As(err, &where) {
			err = where.Err // the path is our own
		}
		return p, fmt.Errorf("write the screenshot to %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	p, err = Copy(file, picture)
	if err := errors.Join(err, file.Close()); err != nil {
		return p, fmt.Errorf("write the screenshot: %w", err)
	}
	if err := os.Chmod(file.Name(), 0o644); err != nil {
		return p, fmt.Errorf("write the screenshot: %w", err)
	}
	if err := os.Rename(file.Name(), target); err != nil {
		return p, fmt.Errorf("write the screenshot: %w", err)
	}
	return p, nil
}

// Copy copies a PNG, and looks whether it is one.
func Copy(w io.Writer, picture io.Reader) (Picture, error) {
	var p Picture
	var head bytes.Buffer
	n, err := io.Copy(w, io.TeeReader(picture, &first{&head}))
	p.Bytes = n
	if err != nil {
		return p, err
	}
	config, err := png.DecodeConfig(&head)
	if err != nil {
		return p, fmt.Errorf("the server's answer is no PNG: %w", err)
	}
	p.Width, p.Height = config.Width, config.Height
	return p, nil
}

// first keeps the beginning of what is written.
type first struct{ *bytes.Buffer }

func (f *first) Write(p []byte) (int, error) {
	f.Buffer.Write(p[:min(len(p), max(0, maxHead-f.Len()))])
	return len(p), nil
}
