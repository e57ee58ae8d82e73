package main

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// self is this program: a change to how images are made is a change of their inputs.
//
//go:embed *.go
var self embed.FS

// digest is a hex SHA-256 of strings, kept apart by their lengths.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// inputs is a digest of everything an image is made from, its name included.
func (b *build) inputs(paths ...string) (string, error) {
	files, err := b.inputsWithoutTag(paths...)
	return digest(b.Registry, b.Tag, files), err
}

// inputsWithoutTag is a digest of everything a layer is made from: this program, the options
// that matter, and the named files and directories with names, executable bits and contents.
func (b *build) inputsWithoutTag(paths ...string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, b.Mirrors, b.Epoch.Unix())
	sources, err := self.ReadDir(".")
	if err != nil {
		return "", err
	}
	for _, s := range sources {
		if strings.HasSuffix(s.Name(), "_test.go") {
			continue
		}
		data, err := self.ReadFile(s.Name())
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", s.Name(), len(data))
		h.Write(data)
	}
	for _, p := range paths {
		if err := digestPath(h, p); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func digestPath(w io.Writer, root string) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(p, "_test.go") {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s %d %v\n", rel, info.Size(), info.Mode()&0o100 != 0)
		if info.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(p)
			fmt.Fprintln(w, to)
			return err
		}
		return digestFile(w, p)
	})
}

// fresh says whether an image was already made from these inputs.
func (b *build) fresh(image, inputs string) bool {
	if b.Refresh {
		return false
	}
	info, err := os.Stat(b.archive(image))
	if err != nil {
		return false
	}
	stamp, err := os.ReadFile(b.stamp(image))
	return err == nil && string(stamp) == stampText(inputs, info)
}

// stamped remembers what an image was made from.
func (b *build) stamped(image, inputs string) error {
	info, err := os.Stat(b.archive(image))
	if err != nil {
		return err
	}
	return os.WriteFile(b.stamp(image), []byte(stampText(inputs, info)), 0o644)
}

func stampText(inputs string, info fs.FileInfo) string {
	return fmt.Sprintf("%s %d\n", inputs, info.Size())
}

func (b *build) archive(image string) string { return filepath.Join(b.Out, image+".tar") }
func (b *build) stamp(image string) string   { return filepath.Join(b.Out, "."+image+".stamp") }
