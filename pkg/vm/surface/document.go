package surface

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Markdown returns docs/api-surface.md: the table with the types and descriptions that the API types carry.
func Markdown() string {
	var out strings.Builder
	out.WriteString(`# The supported API surface

<!-- Generated from pkg/vm/surface by go generate; do not edit. -->

virtkit serves KubeVirt's API types, of which it honours the fields on this page. An object that sets any
other field of its ` + "`spec`" + ` is refused with a message that names the field, so nothing is silently ignored. Empty,
zero and switched-off values of other fields say nothing and are accepted.

"Shows in" says what a field changes: the guest's virtual hardware (domain), its images (disk), what cloud-init
reads (cloud-init), its connection (network), the launcher pod (pod), when it starts and stops (lifecycle), the
installation (install), or what a snapshot, restore, clone or export makes (copy).
`)
	for _, kind := range Kinds() {
		fmt.Fprintf(&out, "\n## %s\n", kind.Name)
		fields := kind.Fields
		if kind.own != nil {
			fields = kind.own
		}
		if kind.rest != "" {
			fmt.Fprintf(&out, "\n%s\n", kind.rest)
		}
		sections := []group{{fields: fields}}
		if !kind.plain {
			sections = groups(fields)
		}
		for _, group := range sections {
			if group.title != "" {
				fmt.Fprintf(&out, "\n### %s\n", group.title)
			}
			out.WriteString("\n| field | type | shows in | what it is |\n| --- | --- | --- | --- |\n")
			for _, f := range group.fields {
				of, doc := describe(reflect.TypeOf(kind.prototype), f.Path)
				fmt.Fprintf(&out, "| `spec.%s` | %s | %s | %s |\n", brackets(kind, f.Path), of, f.Effect,
					sentence(doc, f))
			}
		}
	}
	return out.String()
}

type group struct {
	title  string
	fields []Field
}

// groups cuts a table where the section of the object changes.
func groups(fields []Field) []group {
	var out []group
	index := map[string]int{}
	for _, f := range fields {
		title := section(f.Path)
		at, ok := index[title]
		if !ok {
			at = len(out)
			index[title] = at
			out = append(out, group{title: title})
		}
		out[at].fields = append(out[at].fields, f)
	}
	slices.SortStableFunc(out, func(a, b group) int { return strings.Compare(rank(a.title), rank(b.title)) })
	return out
}

// section returns the heading a field belongs under.
func section(path string) string {
	parts := strings.Split(path, ".")
	switch {
	case parts[0] == "domain" && parts[1] == "devices" && len(parts) > 3:
		return "Devices: " + parts[2]
	case parts[0] == "domain" && parts[1] == "devices":
		return "Devices"
	case parts[0] == "domain":
		return "The machine: " + parts[1]
	case parts[0] == "volumes" && len(parts) > 2:
		return "Volumes: " + parts[1]
	case parts[0] == "volumes":
		return "Volumes"
	case parts[0] == "networks":
		return "Networks"
	case parts[0] == "configuration", parts[0] == "certificateRotateStrategy", parts[0] == "template",
		parts[0] == "instancetype", parts[0] == "preference", parts[0] == "replicas", parts[0] == "selector",
		parts[0] == "paused",
		parts[0] == "virtualMachineTemplate", parts[0] == "nameGeneration", parts[0] == "maxUnavailable",
		parts[0] == "autohealing",
		parts[0] == "scaleInStrategy", parts[0] == "updateStrategy", parts[0] == "workloadUpdateStrategy",
		strings.HasPrefix(parts[0], "run"):
		return ""
	default:
		return "Pod and lifecycle"
	}
}

// rank puts the sections in the order a reader wants them.
func rank(title string) string {
	for i, prefix := range []string{"The machine", "Devices", "Volumes", "Networks", "Pod"} {
		if strings.HasPrefix(title, prefix) {
			return string(rune('a' + i))
		}
	}
	return ""
}

// describe returns the type of a field and the API's own documentation of it.
func describe(t reflect.Type, path string) (typeName, doc string) {
	for name := range strings.SplitSeq(path, ".") {
		if t = element(t); t.Kind() == reflect.Map {
			t = t.Elem()
			continue
		}
		found, text := lookup(t, name)
		if found == nil {
			panic("surface: " + path + " is not a field of the API")
		}
		t, doc = found, text
	}
	return nameOf(t), doc
}

// element returns the type that a pointer points to, or the type of a list's elements.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// lookup finds a struct's field by its JSON name, through inlined structs.
func lookup(t reflect.Type, name string) (reflect.Type, string) {
	for i := range t.NumField() {
		f := t.Field(i)
		own, inline := jsonName(f)
		if inline {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				if found, doc := lookup(inner, name); found != nil {
					return found, doc
				}
			}
			continue
		}
		if own == name {
			doc := ""
			if documented, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
				doc = documented.SwaggerDoc()[name]
			}
			return f.Type, doc
		}
	}
	return nil, ""
}

// nameOf returns a type as a reader of YAML sees it.
func nameOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return nameOf(t.Elem())
	case reflect.Slice:
		return "list of " + nameOf(t.Elem())
	case reflect.Map:
		return "map"
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Struct:
		switch t.Name() {
		case "Quantity":
			return "quantity"
		case "Duration":
			return "duration"
		case "IntOrString":
			return "integer or percentage"
		}
		return "object"
	case reflect.Float32, reflect.Float64:
		return "number"
	default:
		return "integer"
	}
}

// brackets writes a path with [] after its lists.
func brackets(kind Kind, path string) string {
	t := reflect.TypeOf(kind.prototype)
	var out []string
	for name := range strings.SplitSeq(path, ".") {
		if t = element(t); t.Kind() == reflect.Map {
			t = t.Elem()
			out = append(out, name)
			continue
		}
		t, _ = lookup(t, name)
		if t.Kind() == reflect.Slice && !strings.HasSuffix(path, "."+name) && path != name {
			name += "[]"
		}
		out = append(out, name)
	}
	return strings.Join(out, ".")
}

// sentence returns the first sentence of a field's description, with our own note and values.
func sentence(doc string, f Field) string {
	doc, _, _ = strings.Cut(doc, "\n")
	doc, _, _ = strings.Cut(doc, ". ")
	doc, _, _ = strings.Cut(doc, "+optional")
	parts := []string{}
	if doc = strings.Join(strings.Fields(doc), " "); doc != "" {
		parts = append(parts, strings.TrimSuffix(doc, ".")+".")
	}
	if len(f.Only) > 0 {
		parts = append(parts, "Values: `"+strings.Join(f.Only, "`, `")+"`.")
	}
	if f.Note != "" {
		parts = append(parts, f.Note)
	}
	return strings.ReplaceAll(strings.Join(parts, " "), "|", "\\|")
}
