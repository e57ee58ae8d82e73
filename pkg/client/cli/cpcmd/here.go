package cpcmd

import (
	"errors"
	"io/fs"
	"os"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

// hereError is what is wrong about a file of this machine, in a sentence. Others may well be copied.
type hereError struct {
	text string
	err  error
}

func (e *hereError) Error() string { return e.text }
func (e *hereError) Unwrap() error { return e.err }

// ofFile returns the operating system's reason in an error about a file of this machine.
func ofFile(err error) (error, bool) {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err, true
	case errors.As(err, &link):
		return link.Err, true
	}
	return nil, false
}

// unreadable returns the error with the reason why a file here cannot be read; any other error stays as it is.
func unreadable(name string, err error) error {
	reason, ok := ofFile(err)
	if !ok {
		return err
	}
	text := cli.WhyUnreadable(name, reason)
	switch {
	case errors.Is(reason, fs.ErrNotExist):
		text += "; a file in a VM is NAME:PATH"
	case errors.Is(reason, fs.ErrPermission):
		text += "; let its owner change its mode, or copy it as its owner"
	}
	return &hereError{text, err}
}

// unwritable returns the error with the reason why a file here cannot be written; any other error stays as it is.
func unwritable(name string, err error) error {
	reason, ok := ofFile(err)
	if !ok {
		return err
	}
	return &hereError{cli.WhyUnwritable(name, reason), err}
}
