package exporter

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/virtkit/virtkit/pkg/names"
)

type secret struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	StringData map[string]string `json:"stringData"`
}

// secret returns the manifest of the Secret.
func (h *handler) secret(yaml bool) ([]byte, error) {
	token, err := os.ReadFile(h.Token)
	if err != nil {
		return nil, err
	}
	value := names.HeaderExportToken + ":" + string(token)
	if yaml {
		quoted, err := json.Marshal(value) // is YAML, too
		if err != nil {
			return nil, err
		}
		return fmt.Appendf(nil, "apiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\nstringData:\n  token: %s\n---\n",
			names.ExportHeaderSecret+h.Name, quoted), nil
	}
	list := struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Items      []secret       `json:"items"`
	}{"v1", "List", map[string]any{}, []secret{{
		"v1", "Secret", map[string]string{"name": names.ExportHeaderSecret + h.Name}, map[string]string{"token": value},
	}}}
	return json.MarshalIndent(list, "", "    ")
}

// readBelow reads a file of a directory that the kubelet has filled.
func readBelow(directory, file string) ([]byte, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
