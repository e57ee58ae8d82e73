package diff

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// maxManifest bounds a manifest, bytes.
const maxManifest = 16 << 20

// Read reads the objects of a manifest, YAML documents or JSON; the items of lists are objects of their own.
func Read(r io.Reader) ([]map[string]any, error) {
	limited := &io.LimitedReader{R: r, N: maxManifest + 1}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(limited))
	var out []map[string]any
	for {
		document, err := documents.Read()
		if limited.N <= 0 {
			return nil, fmt.Errorf("the manifest is larger than %d MiB", maxManifest>>20)
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, err
		}
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil {
			return nil, fmt.Errorf("a document is no object: %w", err)
		}
		if len(object) == 0 {
			continue
		}
		items, isList := object["items"].([]any)
		if !isList {
			out = append(out, object)
			continue
		}
		for _, item := range items {
			if inner, ok := item.(map[string]any); ok {
				out = append(out, inner)
			}
		}
	}
}
