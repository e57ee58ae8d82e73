package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is a finished layer in the cache: <cache>/layer-<key>.tar.gz and what is known of it.
type layer struct {
	File    string  `json:"-"`
	Gzip    v1.Hash `json:"digest"`
	Tar     v1.Hash `json:"diffID"`
	Bytes   int64   `json:"size"`
	Comment string  `json:"comment"`
}

func (l *layer) Digest() (v1.Hash, error)            { return l.Gzip, nil }
func (l *layer) DiffID() (v1.Hash, error)            { return l.Tar, nil }
func (l *layer) Size() (int64, error)                { return l.Bytes, nil }
func (l *layer) MediaType() (types.MediaType, error) { return types.DockerLayer, nil }
func (l *layer) Compressed() (io.ReadCloser, error)  { return os.Open(l.File) }

// layer gives the cached layer of a key, made from a tree when it is not there yet.
func (b *build) layer(key, comment string, level int, make func() (tree, error)) (*layer, error) {
	file := filepath.Join(b.Cache, "layer-"+key[:16]+".tar.gz")
	note := filepath.Join(b.Cache, "layer-"+key[:16]+".json")
	if data, err := os.ReadFile(note); err == nil && !b.Refresh {
		l := &layer{File: file}
		info, err := os.Stat(file)
		if json.Unmarshal(data, l) == nil && err == nil && info.Size() == l.Bytes {
			return l, nil
		}
	}
	t, err := make()
	if err != nil {
		return nil, err
	}
	l, err := b.writeLayer(file, level, t)
	if err != nil {
		return nil, err
	}
	l.Comment = comment
	data, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return l, os.WriteFile(note, data, 0o644)
}

func (b *build) writeLayer(file string, level int, t tree) (*layer, error) {
	out, err := os.Create(file + ".new")
	if err != nil {
		return nil, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	packed, plain := sha256.New(), sha256.New()
	z, err := gzip.NewWriterLevel(io.MultiWriter(out, packed), level)
	if err != nil {
		return nil, err
	}
	if err := t.writeTar(io.MultiWriter(z, plain), b.Epoch); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	info, err := out.Stat()
	if err != nil {
		return nil, err
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	sum := func(b []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", b)} }
	l := &layer{File: file, Gzip: sum(packed.Sum(nil)), Tar: sum(plain.Sum(nil)), Bytes: info.Size()}
	return l, os.Rename(out.Name(), file)
}

// writeImage makes a docker-archive of layers at <out>/<image>.tar, named
// <registry>/<image>:<tag>.
func (b *build) writeImage(image string, config v1.Config, layers ...*layer) error {
	tag, err := name.NewTag(b.Registry + "/" + image + ":" + b.Tag)
	if err != nil {
		return fmt.Errorf("name of the image: %w", err)
	}
	config.Labels = map[string]string{
		"org.opencontainers.image.title":    image,
		"org.opencontainers.image.source":   "https://github.com/virtkit/virtkit",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version":  b.Tag,
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: "amd64", OS: "linux", Created: v1.Time{Time: b.Epoch}, Config: config,
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return err
	}
	for _, l := range layers {
		whole, err := partial.CompressedToLayer(l)
		if err != nil {
			return err
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   whole,
			History: v1.History{Created: v1.Time{Time: b.Epoch}, CreatedBy: "images/build", Comment: l.Comment},
		})
		if err != nil {
			return err
		}
	}
	out := b.archive(image)
	defer os.Remove(out + ".new")
	if err := tarball.WriteToFile(out+".new", tag, img); err != nil {
		return err
	}
	if err := os.Rename(out+".new", out); err != nil {
		return err
	}
	id, err := img.Digest()
	if err != nil {
		return err
	}
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	b.log("%s: %.1f MB, %s", tag, float64(info.Size())/1e6, id)
	return os.WriteFile(filepath.Join(b.Out, image+".digest"), []byte(id.String()+"\n"), 0o644)
}
