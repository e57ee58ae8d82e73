package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "kubevirt.io/api/core/v1"
)

// Labels says what of the node guests are scheduled by. A label whose value is nil is one that the node is not to have.
type Labels func() (map[string]*string, error)

// CPUManager gives the label kubevirt.io/cpumanager of a node whose kubelet gives containers CPUs of their own, by the
// state that it keeps in its directory.
func CPUManager(kubelet string) Labels {
	return func() (map[string]*string, error) {
		static, err := staticCPUs(filepath.Join(kubelet, "cpu_manager_state"))
		labels := map[string]*string{v1.CPUManager: nil}
		if static {
			labels[v1.CPUManager] = new("true")
		}
		return labels, err
	}
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
