package handler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

// planStore keeps the network plans of a node's launchers across restarts of virt-handler, one file a
// pod in a directory that only virt-handler can write.
type planStore struct{ dir string }

func (p planStore) file(pod types.UID) string { return filepath.Join(p.dir, string(pod)+".json") }

// load returns nil when there is none.
func (p planStore) load(pod types.UID) (*network.Plan, error) {
	data, err := os.ReadFile(p.file(pod))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read network plan: %w", err)
	}
	plan := new(network.Plan)
	if err := json.Unmarshal(data, plan); err != nil {
		return nil, fmt.Errorf("read network plan %s: %w", p.file(pod), err)
	}
	return plan, nil
}

func (p planStore) save(pod types.UID, plan *network.Plan) error {
	data, err := json.Marshal(plan)
	if err != nil {
		return fmt.Errorf("encode network plan: %w", err)
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("keep network plan: %w", err)
	}
	temporary := p.file(pod) + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("keep network plan: %w", err)
	}
	if err := os.Rename(temporary, p.file(pod)); err != nil {
		return fmt.Errorf("keep network plan: %w", err)
	}
	return nil
}

func (p planStore) remove(pod types.UID) error {
	err := os.Remove(p.file(pod))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// pods are those that have a plan.
func (p planStore) pods() ([]types.UID, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list network plans: %w", err)
	}
	var out []types.UID
	for _, e := range entries {
		if pod, plan := strings.CutSuffix(e.Name(), ".json"); plan {
			out = append(out, types.UID(pod))
		}
	}
	return out, nil
}

// keepOnly removes the plans of pods that are gone from the kubelet's directory.
func (p planStore) keepOnly(exists func(types.UID) bool) error {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list network plans: %w", err)
	}
	var errs []error
	for _, e := range entries {
		pod, _, _ := strings.Cut(e.Name(), ".")
		if !exists(types.UID(pod)) {
			errs = append(errs, os.Remove(filepath.Join(p.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
