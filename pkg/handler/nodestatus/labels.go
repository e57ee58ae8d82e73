package nodestatus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// Wanted has the labels that a node is to have.
type Wanted struct {
	// Labels are those that it is to have.
	Labels map[string]string
	// Owned are the keys, and prefixes of keys that end in a slash, of which the node is to have no others.
	Owned []string
}

// Labels returns the labels of the node by which guests are scheduled. With an error it leaves out, of Owned too, what
// it could not find out.
type Labels func() (Wanted, error)

// All joins labels.
func All(some ...Labels) Labels {
	return func() (Wanted, error) {
		all := Wanted{Labels: map[string]string{}}
		var errs []error
		for _, labels := range some {
			more, err := labels()
			errs = append(errs, err)
			maps.Copy(all.Labels, more.Labels)
			all.Owned = append(all.Owned, more.Owned...)
		}
		return all, errors.Join(errs...)
	}
}

func (w *Wanted) owns(key string) bool {
	return slices.ContainsFunc(w.Owned, func(owned string) bool {
		return key == owned || strings.HasSuffix(owned, "/") && strings.HasPrefix(key, owned)
	})
}

// change returns what has to be written to the labels that a node has: nil removes one.
func (w *Wanted) change(has map[string]string) map[string]*string {
	out := map[string]*string{}
	for key := range has {
		if _, keep := w.Labels[key]; !keep && w.owns(key) {
			out[key] = nil
		}
	}
	for key, value := range w.Labels {
		if now, ok := has[key]; !ok || now != value {
			out[key] = new(value)
		}
	}
	return out
}

// CPUManager returns the label kubevirt.io/cpumanager of a node whose kubelet gives containers CPUs of their own, by
// the state that it keeps in its directory.
func CPUManager(kubelet string) Labels {
	return func() (Wanted, error) {
		static, err := staticCPUs(filepath.Join(kubelet, "cpu_manager_state"))
		if err != nil {
			return Wanted{}, err
		}
		return flags(map[string]bool{v1.CPUManager: static}), nil
	}
}

// flags returns labels that are "true" or not there.
func flags(set map[string]bool) Wanted {
	out := Wanted{Labels: map[string]string{}}
	for key, on := range set {
		out.Owned = append(out.Owned, key)
		if on {
			out.Labels[key] = "true"
		}
	}
	return out
}

func staticCPUs(path string) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the kubelet's CPU manager state: %w", err)
	}
	var state struct {
		Policy string `json:"policyName"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return false, fmt.Errorf("read the kubelet's CPU manager state, %s: %w", path, err)
	}
	return state.Policy == "static", nil
}
