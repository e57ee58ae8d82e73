package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// serverUser is who the servers run as unless their manifest says otherwise.
const serverUser = 1001

// buildServer makes virt-server: static binaries of the servers, and nothing else that could be run.
func buildServer(_ context.Context, b *build) error {
	const image = "virt-server"
	programs := []string{image, names.VirtExport}
	var binaries []string
	for _, program := range programs {
		binaries = append(binaries, filepath.Join(b.Bin, program))
	}
	inputs, err := b.inputs(binaries...)
	if err != nil {
		return fmt.Errorf("%w (make build builds it)", err)
	}
	if b.fresh(image, inputs) {
		return nil
	}
	l, err := b.layer(inputs, "virt-server", gzip.BestSpeed, func() (tree, error) {
		t := tree{}
		for i, program := range programs {
			data, err := os.ReadFile(binaries[i])
			if err != nil {
				return nil, err
			}
			t.file("usr/bin/"+program, 0o755, data)
		}
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
