// Command fetch gets noVNC with npm, checks it, and writes what a browser needs of it to
// pkg/client/action/vnc/novnc/files/novnc.zip. `make build` runs it in the repository's root when the file is missing.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	name    = "@novnc/novnc"
	version = "1.7.0"
	// integrity is the package's checksum as npm's lock files have it.
	integrity = "sha512-ucEJOx4T2avIRCleodk7YobZj5O2Ga2AeLfQ69A/yjG9HHba2+PDgwSkN3FttrmG+70ZGx21sElNFouK13RzyA=="

	target = "pkg/client/action/vnc/novnc/files/novnc.zip"
	// maxSize bounds the package and each of its files, bytes.
	maxSize = 16 << 20
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatalf("fetch noVNC: %v", err)
	}
}

func run() error {
	archive, err := pack()
	if err != nil {
		return err
	}
	sum := sha512.Sum512(archive)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		return fmt.Errorf("%s %s has the checksum %s, not %s", name, version, got, integrity)
	}
	out, err := convert(archive)
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, version, err)
	}
	// Whole or not at all: another build may be reading it.
	if err := os.WriteFile(target+".new", out, 0o644); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}

// pack downloads the package with npm.
func pack() ([]byte, error) {
	dir, err := os.MkdirTemp("", "novnc-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := exec.LookPath("npm"); err != nil {
		return nil, errors.New("npm is missing: install it, on Debian with `make deps`")
	}
	cmd := exec.Command("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", dir, name+"@"+version)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("npm pack: %w", err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("npm pack gave %d archives (%w)", len(found), err)
	}
	return os.ReadFile(found[0])
}

// convert keeps the code and the licences.
func convert(archive []byte) ([]byte, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	z.RegisterCompressor(zip.Deflate,
		func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for in := tar.NewReader(compressed); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			err := z.Close()
			return out.Bytes(), err
		}
		if err != nil {
			return nil, err
		}
		path := strings.TrimPrefix(header.Name, "package/")
		wanted := strings.HasPrefix(path, "core/") || strings.HasPrefix(path, "vendor/") ||
			strings.Contains(path, "LICENSE")
		if header.Typeflag != tar.TypeReg || !wanted {
			continue
		}
		if !filepath.IsLocal(path) || header.Size > maxSize {
			return nil, fmt.Errorf("a file %q of %d bytes", path, header.Size)
		}
		w, err := z.Create(path)
		if err != nil {
			return nil, err
		}
		if _, err := io.CopyN(w, in, header.Size); err != nil {
			return nil, err
		}
	}
}
