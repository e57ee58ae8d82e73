package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action"
)

const (
	schemasFolder = "docs/schemas"
	// schemaID begins the $id of every schema. It is a name, and need not be where the file is.
	schemaID = "https://virtkit.io/schemas/" + action.ReportVersion + "/"
)

// schema is a JSON Schema of the draft 2020-12: as much of it as reports need. Our own objects leave open what else
// they may have, as keys may be added within a version; the tests close them.
type schema struct {
	Dialect     string     `json:"$schema,omitempty"`
	ID          string     `json:"$id,omitempty"`
	Title       string     `json:"title,omitempty"`
	Description string     `json:"description,omitempty"`
	Comment     string     `json:"$comment,omitempty"`
	Ref         string     `json:"$ref,omitempty"`
	Type        string     `json:"type,omitempty"`
	Format      string     `json:"format,omitempty"`
	Encoding    string     `json:"contentEncoding,omitempty"`
	Const       string     `json:"const,omitempty"`
	Properties  properties `json:"properties,omitempty"`
	Required    []string   `json:"required,omitempty"`
	Items       *schema    `json:"items,omitempty"`
	// Additional is true for objects that are not ours, and the schema of a map's values.
	Additional any `json:"additionalProperties,omitempty"`
	// Defs are the schemas of the reports that it holds: a file needs no other.
	Defs map[string]*schema `json:"$defs,omitempty"`
}

// properties are in the order of the Go type.
type properties []property

type property struct {
	key    string
	schema *schema
}

// MarshalJSON implements json.Marshaler.
func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, one := range p {
		key, err := json.Marshal(one.key)
		if err != nil {
			return nil, err
		}
		value, err := plainJSON(one.schema)
		if err != nil {
			return nil, err
		}
		b.WriteString(strings.Repeat(",", min(i, 1)))
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	return []byte("{" + b.String() + "}"), nil
}

// plainJSON leaves < and > as they are.
func plainJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSpace(b.Bytes()), err
}

// schemas returns a file a report, by its path below the repository's root.
func schemas(all []report) (map[string][]byte, error) {
	kinds := map[string]report{}
	for _, r := range all {
		kinds[r.kind] = r
	}
	files := map[string][]byte{}
	for _, r := range all {
		s, err := r.document(kinds)
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", r.kind, err)
		}
		text, err := plainJSON(s)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		if err := json.Indent(&b, text, "", "  "); err != nil {
			return nil, err
		}
		b.WriteByte('\n')
		files[path.Join(schemasFolder, r.kind+".json")] = b.Bytes()
	}
	return files, nil
}

// document returns the file of one report's schema. kinds has all reports, which it may hold.
func (r report) document(kinds map[string]report) (*schema, error) {
	root, err := r.schema(kinds, "#")
	if err != nil {
		return nil, err
	}
	root.Dialect, root.ID = "https://json-schema.org/draft/2020-12/schema", schemaID+r.kind+".json"
	held := r.holds(kinds)
	for i := 0; i < len(held); i++ {
		other := kinds[held[i]]
		if root.Defs == nil {
			root.Defs = map[string]*schema{}
		}
		if root.Defs[other.kind] != nil {
			continue
		}
		if root.Defs[other.kind], err = other.schema(kinds, definition(other.kind)); err != nil {
			return nil, err
		}
		held = append(held, other.holds(kinds)...)
	}
	return root, nil
}

// definition returns where a file has the schema of a report that its own holds.
func definition(kind string) string { return "#/$defs/" + kind }

// holds returns the kinds of reports among a report's fields.
func (r report) holds(kinds map[string]report) []string {
	var out []string
	for _, f := range r.fields {
		kind := strings.TrimPrefix(strings.ReplaceAll(f.kind, "[]", ""), "map of ")
		if _, is := kinds[kind]; is {
			out = append(out, kind)
		}
	}
	return out
}

// schema returns the schema of one report, which is at a place in its file, a JSON pointer.
func (r report) schema(kinds map[string]report, place string) (*schema, error) {
	root := &schema{Title: r.kind, Description: r.text, Type: "object"}
	root.add("apiVersion", false, &schema{Type: "string", Const: action.ReportVersion})
	root.add("kind", false, &schema{Type: "string", Const: r.kind})
	// Where the keys of a path's objects go, and where they are, as a JSON pointer.
	objects, pointers := map[string]*schema{"": root}, map[string]string{"": place}
	for _, f := range r.fields {
		parent, key := "", f.path
		if i := strings.LastIndex(f.path, "."); i >= 0 {
			parent, key = f.path[:i], f.path[i+1:]
		}
		owner, ok := objects[parent]
		if !ok {
			return nil, fmt.Errorf("the key %s is of no object", f.path)
		}
		value, element, suffix, pointer := typed(f.kind, kinds)
		value.Description = f.text
		where := pointers[parent] + "/properties/" + key + pointer
		switch {
		case f.same != "" && pointers[f.same] == "":
			return nil, fmt.Errorf("the keys of %s are those of %s, which is not there", f.path, f.same)
		case f.same != "":
			element.Type, element.Ref = "", pointers[f.same]
		case element.Type == "object" && element.Additional == nil:
			objects[f.path+suffix], pointers[f.path+suffix] = element, where
		}
		owner.add(key, f.optional, value)
	}
	return root, nil
}

func (s *schema) add(key string, optional bool, value *schema) {
	s.Properties = append(s.Properties, property{key, value})
	if !optional {
		s.Required = append(s.Required, key)
	}
}

// typed returns the schema of a kind as the page has it, that of its elements, what stands for an element in a path,
// and where the element is below the schema.
func typed(kind string, kinds map[string]report) (value, element *schema, suffix, pointer string) {
	if rest, ok := strings.CutPrefix(kind, "[]"); ok {
		inner, element, suffix, pointer := typed(rest, kinds)
		return &schema{Type: "array", Items: inner}, element, "[]" + suffix, "/items" + pointer
	}
	if rest, ok := strings.CutPrefix(kind, "map of "); ok {
		inner, element, suffix, pointer := typed(rest, kinds)
		return &schema{Type: "object", Additional: inner}, element, ".*" + suffix, "/additionalProperties" + pointer
	}
	value = scalar(kind)
	if _, is := kinds[kind]; is {
		value = &schema{Ref: definition(kind)}
	}
	return value, value, "", ""
}

func scalar(kind string) *schema {
	switch kind {
	case "object", "string", "integer", "number":
		return &schema{Type: kind}
	case "bool":
		return &schema{Type: "boolean"}
	case "any":
		return &schema{}
	case "time":
		return &schema{Type: "string", Format: "date-time"}
	case "base64":
		return &schema{Type: "string", Encoding: kind}
	case "ObjectMeta":
		name := properties{{"name", scalar("string")}, {"namespace", scalar("string")}}
		return &schema{Type: "object", Comment: open, Properties: name, Additional: true}
	}
	if strings.HasSuffix(kind, "Phase") {
		return &schema{Type: "string"}
	}
	return &schema{Type: "object", Comment: "a " + kind + "; " + open, Additional: true}
}

// open is why nothing is said of what an object has.
const open = "its keys are those of the cluster's API"
