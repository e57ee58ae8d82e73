package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	// sparseData is how much data a sparse image has, MiB, and sparsePieces in how many places.
	sparseData, sparsePieces = 200, 25
	// sparseMoved is how much of it may go over the wire, in its data.
	sparseMoved = 1.1
)

// wire counts what goes over a client's connections, with all that TLS and HTTP add.
type wire struct{ sent, received atomic.Int64 }

type countedConn struct {
	net.Conn
	on *wire
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.on.received.Add(int64(n))
	return n, err
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.on.sent.Add(int64(n))
	return n, err
}

// counted returns a client whose connections are counted.
func (b *bench) counted() (*client.Client, *wire, error) {
	on, config := &wire{}, rest.CopyConfig(b.Config)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, on}, nil
	}
	c, err := client.New(config)
	return c, on, err
}

// sparseTransfers weighs what the upload of a raw image that is mostly holes sends, and what its download brings.
func sparseTransfers(ctx context.Context, b *bench) (rows []Row, err error) {
	size, err := b.cloneSize()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-sparse-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file, err := sparseImage(filepath.Join(dir, "disk.img"), size<<30)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	c, on, err := b.counted()
	if err != nil {
		return nil, err
	}
	image, err := upload.Image{ReaderAt: file, Size: size << 30, Format: imageformat.Raw}.WithoutHoles(file)
	if err != nil {
		return nil, err
	}
	const claim = "sparse"
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Namespace, pvc.Name = b.namespace, claim
	defer b.cleanUp(pvc, &err)
	before := on.sent.Load()
	state, err := upload.Run(ctx, c, upload.Options{
		Namespace: b.namespace, Claim: claim, Session: upload.NewSession(), Patience: patience, Image: image,
		Create: &upload.Claim{
			// A tenth is for the file system.
			Size: fmt.Sprintf("%dMi", size<<10*11/10), StorageClass: storage, AccessMode: "ReadWriteOnce",
			VolumeMode: "Filesystem",
		},
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("upload: %w", err)
	case state.Phase != uploads.Succeeded || state.DiskSize < size<<30:
		return nil, fmt.Errorf("the upload is %s, with a disk of %d bytes: %s", state.Phase, state.DiskSize,
			state.Message)
	}
	sent := on.sent.Load() - before
	before = on.received.Load()
	if _, _, err := b.got(ctx, c, claim); err != nil {
		return nil, fmt.Errorf("download: %w", err)
	}
	row := func(name, what string, moved int64) Row {
		return Row{
			Name: name, What: what, Unit: "MiB", Value: mebibytes(moved), Anchor: sparseData, Versus: "its data",
			Ratio: mebibytes(moved) / sparseData,
		}.Times(sparseMoved)
	}
	return []Row{
		row("upload-sparse", fmt.Sprintf("image-upload of %d GiB, raw, with holes: sent", size), sent),
		row("download-sparse", fmt.Sprintf("vmexport download of it, %d GiB, raw: received", size),
			on.received.Load()-before),
	}, nil
}

// sparseImage makes a file of a size that has noise in some places.
func sparseImage(path string, size int64) (*os.File, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	noise := make([]byte, sparseData<<20/sparsePieces)
	source := rand.NewChaCha8([32]byte{})
	err = file.Truncate(size)
	for n := int64(0); n < sparsePieces && err == nil; n++ {
		_, _ = source.Read(noise) // never fails
		// As file systems lay out large files: at multiples of their own.
		_, err = file.WriteAt(noise, size/sparsePieces*n>>22<<22)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
