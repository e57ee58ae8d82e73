package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// serverUser is who the servers run as unless their manifest says otherwise.
const serverUser = 1001

// buildServer makes virt-server: a static binary and nothing that could be run beside it.
func buildServer(_ context.Context, b *build) error {
	const image = "virt-server"
	binary := filepath.Join(b.Bin, "virt-server")
	inputs, err := b.inputs(binary)
	if err != nil {
		return fmt.Errorf("%w (make build builds it)", err)
	}
	if b.fresh(image, inputs) {
		return nil
	}
	l, err := b.layer(inputs, "virt-server", gzip.BestSpeed, func() (tree, error) {
		data, err := os.ReadFile(binary)
		if err != nil {
			return nil, err
		}
		t := tree{}
		t.file("usr/bin/virt-server", 0o755, data)
		t.file("etc/passwd", 0o644,
			fmt.Appendf(nil, "root:x:0:0:root:/:/nonexistent\nvirtkit:x:%d:%[1]d:virtkit:/:/nonexistent\n", serverUser))
		t.file("etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nvirtkit:x:%d:\n", serverUser))
		t.file("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
		t.dir("tmp", 0o1777)
		return t, nil
	})
	if err != nil {
		return err
	}
	err = b.writeImage(image, v1.Config{
		User:       fmt.Sprintf("%d:%[1]d", serverUser),
		Entrypoint: []string{"/usr/bin/virt-server"},
		WorkingDir: "/",
	}, l)
	if err != nil {
		return err
	}
	return b.stamped(image, inputs)
}
