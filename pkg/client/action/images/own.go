package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/action/part"
)

// ConfigMap is the name of the ConfigMap with a catalogue of a namespace, under the key ConfigMapKey.
const (
	ConfigMap    = "image-catalogue"
	ConfigMapKey = "images.yaml"
)

// maxFile bounds a user's catalogue, bytes.
const maxFile = 4 << 20

// ReadFile reads a user's catalogue; one without images if there is no file.
func ReadFile(path string) (*Catalogue, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Empty(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is no file of a catalogue: it is not regular, or has more than %d bytes", path,
			maxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// FromNamespace reads the catalogue of a namespace's ConfigMap; one without images if there is none, or it may not be
// read.
func FromNamespace(ctx context.Context, r Reader, namespace string) (*Catalogue, error) {
	var config corev1.ConfigMap
	err := r.Read(ctx, "/api/v1/namespaces/"+namespace+"/configmaps/"+ConfigMap, nil, &config)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return Empty(), nil
	case err != nil:
		return nil, fmt.Errorf("read the catalogue of namespace %s: %w", namespace, err)
	}
	c, err := Parse([]byte(config.Data[ConfigMapKey]))
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %s: %w", namespace, ConfigMap, ConfigMapKey, err)
	}
	return c, nil
}

// ChangeFile changes a user's catalogue and replaces the file whole. Programs that do so at once do it one after the
// other. An error of change leaves the file as it is.
func ChangeFile(ctx context.Context, path string, change func(*Catalogue) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the catalogue: %w", err)
	}
	unlock, err := lock(ctx, path)
	if err != nil {
		return fmt.Errorf("wait for another program that changes %s: %w", path, err)
	}
	defer unlock()
	own, err := ReadFile(path)
	if err != nil {
		return err
	}
	if err := change(own); err != nil {
		return err
	}
	return writeFile(path, own)
}

func writeFile(path string, c *Catalogue) error {
	data, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the catalogue: %w", err)
	}
	if _, err := Parse(data); err != nil { // as it is read next
		return fmt.Errorf("%s stays as it is, for it would be refused: %w", path, err)
	}
	if len(data) > maxFile {
		return fmt.Errorf("%s stays as it is, for it would have more than %d bytes; remove an image: "+
			"`virtctl image rm NAME/VERSION --own`", path, maxFile)
	}
	target, err := part.Target(path) // dotfiles are often links
	if err != nil {
		return fmt.Errorf("write the catalogue: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(target), ".images-*")
	if err != nil {
		return fmt.Errorf("write the catalogue: %w", err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), target)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the catalogue: %w", err), os.Remove(file.Name()))
	}
	return nil
}
