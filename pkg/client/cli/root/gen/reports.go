package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A report is a Go type below pkg/client/action that embeds metav1.TypeMeta: what virtctl prints with -o where there is
// no object of the cluster to print.
type report struct {
	// kind is what its constructor writes into TypeMeta.
	kind string
	// text is the type's doc comment.
	text   string
	fields []field
}

// field is one key of a report's JSON.
type field struct {
	path, kind, text string
	optional         bool
	// same is the path of the keys that this one's objects have, too, when they are described there.
	same string
	// hidden keys are in the schema and not in the page.
	hidden bool
}

// source is one package's types and constants.
type source struct {
	name, folder string
	// others are all packages by name.
	others  map[string]*source
	types   map[string]*ast.TypeSpec
	docs    map[string]string
	strings map[string]string
	// kinds are the Kind and the API version of each type, as written in its constructor.
	kinds    map[string]string
	versions map[string]string
}

// reports reads the Go code below the repository's root.
func reports(repository string) ([]report, error) {
	actions := filepath.Join(repository, "pkg", "client", "action") + string(filepath.Separator)
	shared := filepath.Join(repository, "pkg", "report")
	sources, err := parseSources(actions, filepath.Join(shared, "progress"), filepath.Join(shared, "stats"),
		filepath.Join(shared, "nwfilter"))
	if err != nil {
		return nil, err
	}
	var out []report
	var problems []error
	for _, s := range sources {
		if !strings.HasPrefix(s.folder+string(filepath.Separator), actions) {
			continue
		}
		for name, spec := range s.types {
			structure, ok := spec.Type.(*ast.StructType)
			if !ok || !isReport(structure) {
				continue
			}
			where := s.name + "." + name
			r := report{kind: s.kind(name), text: s.docs[name]}
			if r.kind == "" {
				problems = append(problems, fmt.Errorf("%s: no constructor says its Kind: write %s{TypeMeta: "+
					"metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: …}}", where, name))
			}
			if version := s.versions[name]; version != "action.ReportVersion" && r.kind != "" {
				problems = append(problems,
					fmt.Errorf("%s: its APIVersion is %s; it has to be action.ReportVersion", where, version))
			}
			if r.text == "" {
				problems = append(problems, fmt.Errorf("%s: no doc comment", where))
			}
			if r.fields, err = s.fieldsOf(structure, "", map[string]string{}); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", where, err))
			}
			r.text = strings.ReplaceAll(r.text, name+" is what", "What")
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b report) int { return cmp.Compare(a.kind, b.kind) })
	return out, errors.Join(problems...)
}

func isReport(s *ast.StructType) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		return len(f.Names) == 0 && typeName(f.Type) == "metav1.TypeMeta"
	})
}

// parseSources parses each package below some folders.
func parseSources(roots ...string) ([]*source, error) {
	packages, named := map[string]*source{}, map[string]*source{}
	var out []*source
	visit := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		if packages[folder] == nil {
			packages[folder] = &source{
				name: file.Name.Name, folder: folder, others: named, types: map[string]*ast.TypeSpec{},
				docs: map[string]string{}, strings: map[string]string{},
				kinds: map[string]string{}, versions: map[string]string{},
			}
			named[file.Name.Name] = packages[folder]
			out = append(out, packages[folder])
		}
		packages[folder].read(file)
		return nil
	}
	var problems []error
	for _, root := range roots {
		problems = append(problems, filepath.WalkDir(root, visit))
	}
	return out, errors.Join(problems...)
}

func (s *source) read(file *ast.File) {
	for _, d := range file.Decls {
		general, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				s.types[spec.Name.Name] = spec
				s.docs[spec.Name.Name] = comment(cmp.Or(spec.Doc, general.Doc))
			case *ast.ValueSpec:
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						if text, ok := literal(spec.Values[i]); ok {
							s.strings[name.Name] = text
						}
					}
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if made, ok := n.(*ast.CompositeLit); ok {
			s.constructor(made)
		}
		return true
	})
}

// constructor looks for T{TypeMeta: metav1.TypeMeta{APIVersion: …, Kind: …}}.
func (s *source) constructor(made *ast.CompositeLit) {
	meta, ok := value(made, "TypeMeta").(*ast.CompositeLit)
	if !ok {
		return
	}
	name := typeName(made.Type)
	s.versions[name] = typeName(value(meta, "APIVersion"))
	kind := value(meta, "Kind")
	if text, ok := literal(kind); ok {
		s.kinds[name] = text
	} else if constant := typeName(kind); constant != "" {
		s.kinds[name] = constant
	}
}

// kind returns the Kind of a type: what its constructor says, or the constant that it names.
func (s *source) kind(name string) string {
	return cmp.Or(s.strings[s.kinds[name]], s.kinds[name])
}

func value(made *ast.CompositeLit, key string) ast.Expr {
	for _, e := range made.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok && typeName(pair.Key) == key {
			return pair.Value
		}
	}
	return nil
}

func literal(e ast.Expr) (string, bool) {
	basic, ok := e.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(basic.Value)
	return text, err == nil
}

// fieldsOf returns the keys of a struct's JSON and of what it holds. seen has the types that have been described, and
// where: once in a report is enough.
func (s *source) fieldsOf(structure *ast.StructType, prefix string, seen map[string]string) ([]field, error) {
	var out []field
	var problems []error
	keys := map[string]string{}
	for _, f := range structure.Fields.List {
		for _, n := range f.Names {
			key, _, _ := jsonTag(f)
			keys[n.Name] = cmp.Or(key, n.Name)
		}
	}
	previous := ""
	for _, f := range structure.Fields.List {
		key, optional, inline := jsonTag(f)
		text := comment(f.Doc)
		kind := typeName(f.Type)
		switch {
		case key == "-" || len(f.Names) > 0 && !f.Names[0].IsExported():
			continue
		case kind == "metav1.TypeMeta":
			continue
		case kind == "metav1.ObjectMeta" && key == "metadata":
			out = append(out,
				field{
					path: prefix + key, kind: "ObjectMeta",
					text: cmp.Or(strings.TrimPrefix(strings.TrimPrefix(text, "ObjectMeta "), "Metadata "),
						"as of every object"),
				})
			continue
		case kind == "metav1.ListMeta" && key == "metadata":
			out = append(out, field{path: prefix + key, kind: "ListMeta", text: "as of every list", hidden: true})
			continue
		case len(f.Names) == 0 && (inline || key == ""):
			inner, ok := s.types[kind]
			if !ok {
				problems = append(problems, fmt.Errorf("%s is embedded and not of this package", kind))
				continue
			}
			if embedded, ok := inner.Type.(*ast.StructType); ok {
				more, err := s.fieldsOf(embedded, prefix, seen)
				out, problems = append(out, more...), append(problems, err)
			}
			continue
		case key == "":
			problems = append(problems, fmt.Errorf("%s%s has no json tag", prefix, f.Names[0].Name))
			continue
		}
		// "A and B are …" is about the field after it as well.
		if name := f.Names[0].Name; text == "" && regexp.MustCompile(`\b`+name+`\b`).MatchString(previous) {
			text = previous
		}
		previous = text
		if text == "" {
			problems = append(problems, fmt.Errorf("%s%s has no doc comment", prefix, f.Names[0].Name))
		}
		shown, element, suffix := s.jsonType(f.Type)
		out = append(out, field{path: prefix + key, kind: shown, text: inKeys(text, keys), optional: optional})
		home, inner := s.lookup(element)
		if inner == nil {
			continue
		}
		if described, ok := seen[element]; ok {
			out[len(out)-1].same = described
			continue
		}
		seen[element] = prefix + key + suffix
		if embedded, ok := inner.Type.(*ast.StructType); ok && !isReport(embedded) {
			more, err := home.fieldsOf(embedded, prefix+key+suffix+".", seen)
			out, problems = append(out, more...), append(problems, err)
		}
	}
	return out, errors.Join(problems...)
}

// inKeys names the fields in the beginning of a doc comment as JSON does.
func inKeys(text string, keys map[string]string) string {
	head, rest := text, ""
	if i := strings.Index(text, "."); i >= 0 {
		head, rest = text[:i], text[i:]
	}
	return regexp.MustCompile(`\b[A-Z]\w*\b`).ReplaceAllStringFunc(head, func(word string) string {
		if key, ok := keys[word]; ok {
			return "`" + key + "`"
		}
		return word
	}) + rest
}

func jsonTag(f *ast.Field) (key string, optional, inline bool) {
	if f.Tag == nil {
		return "", false, false
	}
	text, _ := strconv.Unquote(f.Tag.Value)
	parts := strings.Split(reflect.StructTag(text).Get("json"), ",")
	return parts[0], slices.Contains(parts, "omitempty") || slices.Contains(parts, "omitzero"),
		slices.Contains(parts, "inline")
}

// jsonType returns the JSON type of e, the name of the type of its elements, and what stands for an element in a path.
func (s *source) jsonType(e ast.Expr) (shown, element, suffix string) {
	switch t := e.(type) {
	case *ast.StarExpr:
		return s.jsonType(t.X)
	case *ast.ArrayType:
		shown, element, suffix = s.jsonType(t.Elt)
		if shown == "byte" || shown == "uint8" {
			return "base64", "", ""
		}
		return "[]" + shown, element, "[]" + suffix
	case *ast.MapType:
		shown, element, suffix = s.jsonType(t.Value)
		return "map of " + shown, element, ".*" + suffix
	case *ast.InterfaceType:
		return "any", "", ""
	}
	name := typeName(e)
	switch name {
	case "bool", "string", "any", "byte":
		return name, "", ""
	case "int", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64":
		return "integer", "", ""
	case "float64", "float32":
		return "number", "", ""
	case "time.Time", "metav1.Time", "metav1.MicroTime":
		return "time", "", ""
	case "json.RawMessage":
		return "any", "", ""
	}
	if home, inner := s.lookup(name); inner != nil {
		structure, isStruct := inner.Type.(*ast.StructType)
		switch {
		case isStruct && isReport(structure):
			return home.kind(inner.Name.Name), "", ""
		case isStruct:
			return "object", name, ""
		}
		return home.jsonType(inner.Type)
	}
	// Of the API's types, objects have their own names; the others that reports have are strings.
	if from, local, ok := strings.Cut(name, "."); ok && (from == "v1" || from == "corev1") &&
		!strings.HasSuffix(local, "Strategy") {
		return local, "", ""
	}
	return "string", "", ""
}

// lookup finds a type by its name as this package writes it, and the package that it is from.
func (s *source) lookup(name string) (*source, *ast.TypeSpec) {
	if from, local, ok := strings.Cut(name, "."); ok {
		if s = s.others[from]; s == nil {
			return nil, nil
		}
		name = local
	}
	return s, s.types[name]
}

func typeName(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.SelectorExpr:
		return typeName(t.X) + "." + t.Sel.Name
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.BasicLit:
		return t.Value
	}
	return ""
}

func comment(group *ast.CommentGroup) string {
	return strings.Join(strings.Fields(group.Text()), " ")
}
