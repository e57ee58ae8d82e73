// Package schemas holds what virtctl prints against docs/schemas, the JSON Schemas of its reports. The published ones
// leave open what else an object may have, for keys may be added to a report. Here our own objects are closed: a key
// that no schema has is an error.
package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// Schemas are compiled schemas by the kind of the report.
type Schemas map[string]*jsonschema.Schema

// Load reads the schemas of a folder: KIND.json each.
func Load(folder string) (Schemas, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.UseLoader(nowhere{})
	ids := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		object, _ := document.(map[string]any)
		id, _ := object["$id"].(string)
		kind := strings.TrimSuffix(filepath.Base(file), ".json")
		if want := "https://virtkit.io/schemas/" + action.ReportVersion + "/" + kind + ".json"; id != want {
			return nil, fmt.Errorf("%s: its $id is %q, not %q", file, id, want)
		}
		closeObjects(document)
		if err := compiler.AddResource(id, document); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		ids[kind] = id
	}
	out := Schemas{}
	for kind, id := range ids {
		if out[kind], err = compiler.Compile(id); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no schemas", folder)
	}
	return out, nil
}

// nowhere loads nothing: every schema that another names is in the folder.
type nowhere struct{}

// Load implements jsonschema.URLLoader.
func (nowhere) Load(url string) (any, error) { return nil, fmt.Errorf("there is no schema %s", url) }

// closeObjects refuses other keys in each object whose schema lists some and says nothing of others.
func closeObjects(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, ok := node["properties"].(map[string]any); ok && node["additionalProperties"] == nil {
			node["additionalProperties"] = false
		}
		for _, value := range node {
			closeObjects(value)
		}
	case []any:
		for _, value := range node {
			closeObjects(value)
		}
	}
}

// Check holds each report in text against its schema and returns how many there were. text is JSON documents one
// after the other; it ends at what is no JSON. A list's items are reports, too.
func (s Schemas) Check(text []byte) (int, error) {
	n := 0
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			if errors.Is(err, io.EOF) || n == 0 {
				return n, nil
			}
			return n, fmt.Errorf("after %d reports: %w", n, err)
		}
		var head struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Items      []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			continue // a list or a word, as JSONPath prints them
		}
		if head.APIVersion == "v1" && head.Kind == "List" {
			for _, item := range head.Items {
				more, err := s.Check(item)
				if n += more; err != nil {
					return n, err
				}
			}
		}
		if head.APIVersion != action.ReportVersion {
			continue
		}
		if err := s.one(head.Kind, raw); err != nil {
			return n, err
		}
		n++
	}
}

func (s Schemas) one(kind string, text []byte) error {
	schema := s[kind]
	if schema == nil {
		return fmt.Errorf("%s has no schema", kind)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if err := schema.Validate(document); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}
