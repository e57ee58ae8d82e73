// Package records stores what virt-handler has to know of a pod across its own restarts: one JSON file a pod, in a
// directory that only virt-handler can write.
package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/service/files"
)

// Store keeps one T for each pod. Its methods may be called by several goroutines, for different pods.
type Store[T any] struct {
	// Dir is made when something is saved.
	Dir string
	// What is kept, for errors, such as "network plan".
	What string
}

// Load reads the record of a pod; nil when there is none.
func (s Store[T]) Load(pod types.UID) (*T, error) {
	file, err := s.file(pod)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	record := new(T)
	if err == nil {
		err = json.Unmarshal(text, record)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of pod %s: %w", s.What, pod, err)
	}
	return record, nil
}

// Save stores the record of a pod, all of it or, when it fails, leaves the record from before.
func (s Store[T]) Save(pod types.UID, record *T) error {
	file, err := s.file(pod)
	if err != nil {
		return err
	}
	text, err := json.Marshal(record)
	if err == nil {
		err = os.MkdirAll(s.Dir, 0o700)
	}
	if err == nil {
		err = files.Replace(file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep %s of pod %s: %w", s.What, pod, err)
	}
	return nil
}

// Remove forgets a pod. It is no error when nothing is kept for it.
func (s Store[T]) Remove(pod types.UID) error {
	file, err := s.file(pod)
	if err != nil {
		return err
	}
	return s.remove(file)
}

// Pods returns the pods that have a record.
func (s Store[T]) Pods() ([]types.UID, error) {
	var out []types.UID
	err := s.each(func(name string) error {
		if pod, whole := strings.CutSuffix(name, ".json"); whole {
			out = append(out, types.UID(pod))
		}
		return nil
	})
	return out, err
}

// KeepOnly forgets the other pods, and writes that a kill has cut.
func (s Store[T]) KeepOnly(exists func(types.UID) bool) error {
	return s.each(func(name string) error {
		if pod, _, _ := strings.Cut(name, "."); exists(types.UID(pod)) {
			return nil
		}
		return s.remove(filepath.Join(s.Dir, name))
	})
}

func (s Store[T]) each(do func(name string) error) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list %s of pods: %w", s.What, err)
	}
	var errs []error
	for _, entry := range entries {
		errs = append(errs, do(entry.Name()))
	}
	return errors.Join(errs...)
}

func (s Store[T]) remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget %s of a pod: %w", s.What, err)
	}
	return nil
}

// file returns the path of a pod's record. It refuses a UID that could name another file.
func (s Store[T]) file(pod types.UID) (string, error) {
	if err := ValidUID(pod); err != nil {
		return "", err
	}
	return filepath.Join(s.Dir, string(pod)+".json"), nil
}

// ValidUID refuses what cannot be a pod's UID, as part of a file's name or pattern.
func ValidUID(pod types.UID) error {
	if pod == "" || strings.ContainsAny(string(pod), `./*?[\`) {
		return fmt.Errorf("%q is not the UID of a pod", pod)
	}
	return nil
}
