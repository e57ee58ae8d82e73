package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// Pause returns the archive of the pause image under a name.
func Pause(name string) (Archive, error) {
	content, err := pauseArchive(name)
	if err != nil {
		return Archive{}, fmt.Errorf("make the pause image: %w", err)
	}
	sum := sha256.Sum256(content)
	return Archive{
		Name: name, Digest: hex.EncodeToString(sum[:])[:60], Pinned: true,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
	}, nil
}

// pauseArchive returns a docker-archive: manifest.json, the image's configuration and one layer.
func pauseArchive(name string) ([]byte, error) {
	layer, err := tarOf(tarFile{"pause", 0o755, pauseBinary()})
	if err != nil {
		return nil, err
	}
	diff := sha256.Sum256(layer)
	type object = map[string]any
	config, err := json.Marshal(object{
		"architecture": "amd64", "os": "linux",
		"config":  object{"Entrypoint": []string{"/pause"}, "User": "65535:65535"},
		"rootfs":  object{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(diff[:])}},
		"history": []object{{"created_by": "virt-local"}},
	})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(config)
	configName := hex.EncodeToString(sum[:]) + ".json"
	manifest,
		err := json.Marshal([]object{
		{"Config": configName, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return nil, err
	}
	return tarOf(tarFile{"manifest.json", 0o644, manifest}, tarFile{configName, 0o644, config},
		tarFile{"layer.tar", 0o644, layer})
}

type tarFile struct {
	name    string
	mode    int64
	content []byte
}

func tarOf(files ...tarFile) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{
			Name: f.name, Mode: f.mode, Size: int64(len(f.content)),
			Format: tar.FormatUSTAR,
		}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
