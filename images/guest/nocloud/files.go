package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is one entry of write_files.
type File struct {
	Path        string `yaml:"path"`
	Content     string `yaml:"content"`
	Encoding    string `yaml:"encoding"`
	Owner       string `yaml:"owner"` // USER or USER:GROUP
	Permissions mode   `yaml:"permissions"`
	Append      bool   `yaml:"append"`

	// Data is Content decoded.
	Data []byte `yaml:"-"`
}

// mode is permission bits: '0644' as a string is octal, a number is itself (0644 in YAML is
// octal already); 0 when not given.
type mode uint32

// UnmarshalYAML takes both forms.
func (m *mode) UnmarshalYAML(n *yaml.Node) error {
	var v uint64
	var err error
	if n.ShortTag() == "!!int" {
		err = n.Decode(&v)
	} else {
		v, err = strconv.ParseUint(strings.TrimPrefix(n.Value, "0o"), 8, 32)
	}
	if err != nil || v > 0o7777 {
		return fmt.Errorf("line %d: permissions %q: need octal digits such as '0644'", n.Line, n.Value)
	}
	*m = mode(v)
	return nil
}

// fileMode is the same in Go's notation.
func (m mode) fileMode() os.FileMode {
	out := os.FileMode(m & 0o777)
	for bit, special := range map[mode]os.FileMode{
		0o4000: os.ModeSetuid, 0o2000: os.ModeSetgid,
		0o1000: os.ModeSticky,
	} {
		if m&bit != 0 {
			out |= special
		}
	}
	return out
}

// maxFile bounds what a compressed file may unpack to, in bytes: the guest keeps it in memory.
const maxFile = 32 << 20

// decode fills Data. Encodings are cloud-init's: b64, base64, gz, gzip, gz+b64 and the like.
func (f *File) decode() error {
	f.Data = []byte(f.Content)
	var b64, gz bool
	for e := range strings.SplitSeq(strings.ToLower(f.Encoding), "+") {
		switch strings.TrimSpace(e) {
		case "b64", "base64":
			b64 = true
		case "gz", "gzip":
			gz = true
		case "", "text/plain", "plain":
		default:
			return fmt.Errorf("encoding %q: need b64, gz or gz+b64", f.Encoding)
		}
	}
	if b64 {
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Content), ""))
		if err != nil {
			return fmt.Errorf("content is not base64: %w", err)
		}
		f.Data = data
	}
	if gz {
		z, err := gzip.NewReader(bytes.NewReader(f.Data))
		if err != nil {
			return fmt.Errorf("content is not gzip: %w", err)
		}
		data, err := io.ReadAll(io.LimitReader(z, maxFile+1))
		if err != nil {
			return fmt.Errorf("content is not gzip: %w", err)
		}
		if len(data) > maxFile {
			return fmt.Errorf("content unpacks to more than %d MiB", maxFile>>20)
		}
		f.Data = data
	}
	return nil
}

// shellScript is what a list of commands is as a script: each runs whatever the one before
// did, in one shell, so a `cd` holds; words are quoted, lines are the shell's.
func shellScript(commands []Command) []byte {
	var s bytes.Buffer
	s.WriteString("#!/bin/sh\n")
	for _, c := range commands {
		if c.Words == nil {
			s.WriteString(c.Line)
		}
		for i, w := range c.Words {
			if i > 0 {
				s.WriteByte(' ')
			}
			s.WriteString("'" + strings.ReplaceAll(w, "'", `'\''`) + "'")
		}
		s.WriteByte('\n')
	}
	return s.Bytes()
}
