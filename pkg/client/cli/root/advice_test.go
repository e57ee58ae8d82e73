package root

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// advising are the directories whose texts may advise a command of ours.
var advising = []string{"pkg/client", "pkg/vm", "pkg/virtapi", "pkg/controller", "pkg/handler", "pkg/launcher"}

// TestAdviceIsACommand holds every command of ours that the code advises against the tree: in the fix lines of why and
// doctor, in errors, hints and help, and in what the services say. It reads them from the source, in which a text is
// made of literals, of formats and of values, so that no line is left out for want of a test that brings it about.
// Advice is the whole of a text or all that comes after a colon, or stands between backticks, quotes or parentheses;
// what follows in parentheses explains it. So a fix line that names a command in a sentence puts it between backticks.
func TestAdviceIsACommand(t *testing.T) {
	found := 0
	for _, a := range advice(t) {
		for _, line := range advised(a.text) {
			found++
			if _, err := line.parse(); err != nil {
				t.Errorf("%s advises `virtctl %s`: %v", a.at, strings.Join(line.words, " "), err)
			}
			for i, word := range line.words {
				if plain.MatchString(word) && strings.Trim(word, value) != "" && !ours()[word] && !spoken[word] &&
					!strings.HasPrefix(line.words[max(i-1, 0)], "-") {
					t.Errorf("%s: is %q an argument of `virtctl %s`?", a.at, word, strings.Join(line.words, " "))
				}
			}
		}
		for _, loose := range looseIn(a.text) {
			t.Errorf("%s: put the command between backticks: %q in %q", a.at, loose, a.text)
		}
	}
	if found < 150 {
		t.Errorf("only %d commands were found", found)
	}
}

// TestAdviceIsFound keeps the reading of texts honest.
func TestAdviceIsFound(t *testing.T) {
	for source, want := range map[string]string{
		`"virtctl stop "+e.Name+e.flag()+" --force (at once)"`:               "stop value -n value --force",
		"fmt.Sprintf(\"see `%s why %s%s`\", f.Program, n, f.InNamespace(s))": "why value -n value",
		"fmt.Sprintf(\"`virtctl wait %[2]s --for=%[1]s`\", \"agent\", n)":    "wait value --for=agent",
		`w.line(w.Program, "evacuate", node, "--yes")`:                       "evacuate value --yes",
		`[]string{f.Program, "clone", quoted(n)}`:                            "clone value",
		`f.Program + " describe " + n`:                                       "describe value",
		"\"`% list --watch` and `% dashboard` follow\"":                      "list --watch, dashboard",
		`"as \"virtctl why x\" says"`:                                        "why x",
		`"this virtctl is old"`:                                              "",
	} {
		expression, err := parser.ParseExpr(source)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, text := range textsOf(expression, nil) {
			for _, line := range advised(text) {
				got = append(got, strings.Join(line.words, " "))
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
	if loose := looseIn("nodes with KVM, as virtctl doctor shows"); len(loose) != 1 {
		t.Errorf("%q", loose)
	}
}

// spoken are arguments that are words: kinds, and names in examples.
var spoken = map[string]bool{
	"pvc": true, "vm": true, "vmi": true, "node": true, "vmpool": true, "vmirs": true, "web": true, "fedora": true,
}

// sourceText is a text of the source.
type sourceText struct{ at, text string }

// advice are the texts of the source, with a word in place of each value that is known only when it runs.
func advice(t *testing.T) []sourceText {
	t.Helper()
	const root = "../../../../"
	var out []sourceText
	files := token.NewFileSet()
	for _, dir := range advising {
		constants := map[string]map[string]string{} // by directory
		var parsed []*ast.File
		err := filepath.WalkDir(root+dir, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
				strings.HasSuffix(name, ".pb.go") {
				return err
			}
			file, err := parser.ParseFile(files, name, nil, 0)
			if err != nil {
				return err
			}
			parsed = append(parsed, file)
			in := filepath.Dir(name)
			if constants[in] == nil {
				constants[in] = map[string]string{}
			}
			maps.Copy(constants[in], constantsOf(file))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range parsed {
			in := constants[filepath.Dir(files.Position(file.Pos()).Filename)]
			formats := map[ast.Node]bool{} // read with what is put into them
			ast.Inspect(file, func(node ast.Node) bool {
				expression, ok := node.(ast.Expr)
				if formats[node] {
					return false
				}
				if call, calls := node.(*ast.CallExpr); calls {
					for _, argument := range call.Args {
						if format, ok := formatOf(argument, in); ok && strings.Contains(format, "%") {
							formats[argument] = true
							break
						}
					}
				}
				if !ok {
					_, imports := node.(*ast.ImportSpec)
					return !imports
				}
				texts := textsOf(expression, in)
				at := files.Position(expression.Pos())
				where := strings.TrimPrefix(fmt.Sprintf("%s:%d", at.Filename, at.Line), root)
				for _, text := range texts {
					out = append(out, sourceText{where, text})
				}
				// What was read as a whole is not read again in pieces; what a call is given is.
				_, sum := expression.(*ast.BinaryExpr)
				return !sum || len(texts) == 0
			})
		}
	}
	return out
}

// constantsOf are the texts that a file gives names to.
func constantsOf(file *ast.File) map[string]string {
	out := map[string]string{}
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			if value, ok := spec.(*ast.ValueSpec); ok && len(value.Names) == 1 && len(value.Values) == 1 {
				if text, ok := literal(value.Values[0]); ok {
					out[value.Names[0].Name] = text
				}
			}
		}
	}
	return out
}

func literal(expression ast.Expr) (string, bool) {
	l, ok := expression.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// value stands for what is known only when the program runs.
const value = "value"

// textsOf are the texts that an expression makes: none unless a literal or our program's name is in it.
func textsOf(expression ast.Expr, constants map[string]string) []string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		if text, ok := literal(e); ok && !strings.HasPrefix(e.Value, "`") { // help is shown by TestDocs…
			return []string{text}
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD && texts(e) {
			return []string{sum(e, constants)}
		}
	case *ast.CompositeLit: // []string{w.Program, "clone", …}
		if len(e.Elts) > 1 && program(e.Elts[0]) {
			return []string{words(e.Elts, constants)}
		}
	case *ast.CallExpr:
		if nameOf(e.Fun) == "Examples" {
			return nil // TestDocsShowCommandsThatExist holds them
		}
		if len(e.Args) > 1 && program(e.Args[0]) { // w.line(w.Program, "clone", …)
			return []string{words(e.Args, constants)}
		}
		for i, argument := range e.Args {
			if format, ok := formatOf(argument, constants); ok && strings.Contains(format, "%") {
				return []string{formatted(format, e.Args[i+1:], constants)}
			}
		}
	}
	return nil
}

// texts reports whether a sum has a literal text in it.
func texts(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return texts(e.X) || texts(e.Y)
	case *ast.BasicLit:
		return e.Kind == token.STRING
	}
	return false
}

// formatOf is a text that is written as such.
func formatOf(e ast.Expr, constants map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return literal(e)
	case *ast.BinaryExpr:
		if e.Op == token.ADD && texts(e) {
			return sum(e, constants), true
		}
	}
	return "", false
}

// sum is the text of one operand or of several.
func sum(e ast.Expr, constants map[string]string) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return sum(e.X, constants) + sum(e.Y, constants)
	case *ast.BasicLit:
		text, _ := literal(e)
		return text
	case *ast.ParenExpr:
		return sum(e.X, constants)
	case *ast.Ident:
		if text, known := constants[e.Name]; known {
			return text
		}
	case *ast.CallExpr:
		if called := nameOf(e.Fun); called == "flag" || called == "InNamespace" {
			return " -n " + value
		}
		if t := textsOf(e, constants); len(t) == 1 && nameOf(e.Fun) == "Sprintf" {
			return t[0]
		}
	}
	if program(e) {
		return "virtctl"
	}
	return value
}

// words are the words of a command line, with blanks between them.
func words(all []ast.Expr, constants map[string]string) string {
	var out []string
	for _, e := range all {
		out = append(out, sum(e, constants))
	}
	return strings.Join(out, " ")
}

// program reports an expression that is how the user calls us.
func program(e ast.Expr) bool {
	if of, ok := e.(*ast.SelectorExpr); ok && nameOf(of.X) == "usbredir" {
		return false // a program that we start
	}
	name := nameOf(e)
	return name == "Program" || name == "program"
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr: // c.program()
		if len(e.Args) == 0 {
			return nameOf(e.Fun)
		}
	}
	return ""
}

var placeholder = regexp.MustCompile(`%(?:\[(\d+)\])?[-+# 0]*\d*(?:\.\d+)?([a-zA-Z%])`)

// formatted puts the arguments into a format.
func formatted(format string, arguments []ast.Expr, constants map[string]string) string {
	next := 0
	return placeholder.ReplaceAllStringFunc(format, func(verb string) string {
		m := placeholder.FindStringSubmatch(verb)
		if m[2] == "%" {
			return "%"
		}
		if m[1] != "" {
			next, _ = strconv.Atoi(m[1])
			next--
		}
		at := next
		next++
		switch {
		case m[2] == "d":
			return "1"
		case at < 0 || at >= len(arguments):
			return value
		}
		return sum(arguments[at], constants)
	})
}

var (
	// quoted is what stands between backticks or quotes and calls us; % is the program in package cli's table of verbs.
	quoted = regexp.MustCompile("`(?:virtctl|%) ([^`]+)`|\"virtctl ([^\"]+)\"|'virtctl ([^']+)'")
	// begins is a text that is a command to its end, or to what explains it.
	begins = regexp.MustCompile(`^virtctl ([^(;]+?)(?: \(.*| *\n.*|;.*)?$`)
	// ends is a command after a colon, to the end of the text.
	ends = regexp.MustCompile(`: virtctl ([^` + "`" + `(;]+?)\s*$`)
	// inside is a command in parentheses.
	inside = regexp.MustCompile(`\(virtctl ([^()]+)\)`)
	// loose is a verb of ours after the program's name.
	loose = regexp.MustCompile(`(?:^|[^\w"'/.-])virtctl ([a-z][a-z-]+)(?:[^a-z<-]|$)`)
	// plain is a word of a sentence, where an argument is a value or a word of the command line.
	plain = regexp.MustCompile(`^[a-z]+$`)
)

// ours are the words of our commands' names.
var ours = sync.OnceValue(func() map[string]bool {
	out := map[string]bool{}
	for name := range verbs() {
		for word := range strings.FieldsSeq(name) {
			out[word] = true
		}
	}
	return out
})

// advised are the commands of ours that a text advises.
func advised(text string) []commandLine {
	if first, rest, several := strings.Cut(text, "\n"); several && strings.HasPrefix(rest, "virtctl ") {
		return append(advised(first), advised(rest)...)
	}
	var out []commandLine
	add := func(match string, names bool) {
		words := shellWords(match)
		if len(words) == 0 || strings.HasPrefix(words[0], value) || strings.HasPrefix(words[0], "{{") {
			return // a verb that is known when it runs; all of them are of the tree's
		}
		// A command in a sentence without any argument names a verb, or a flag of it.
		named := names && !slices.ContainsFunc(words, func(w string) bool { return !ours()[w] && w[0] != '-' })
		whole := !named && !strings.ContainsAny(match, "…|[") && !strings.Contains(match, "...")
		out = append(out, commandLine{words, whole})
	}
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		add(m[1]+m[2]+m[3], true)
	}
	for _, m := range inside.FindAllStringSubmatch(text, -1) {
		add(m[1], false)
	}
	if m := ends.FindStringSubmatch(text); m != nil {
		add(m[1], false)
	}
	if m := begins.FindStringSubmatch(text); m != nil && !strings.Contains(text, "`virtctl") {
		add(m[1], false)
	}
	return out
}

// looseIn are commands of ours in a text that nothing sets off from it.
func looseIn(text string) []string {
	if first, rest, several := strings.Cut(text, "\n"); several && strings.HasPrefix(rest, "virtctl ") {
		return append(looseIn(first), looseIn(rest)...)
	}
	rest := quoted.ReplaceAllString(text, "")
	rest = ends.ReplaceAllString(inside.ReplaceAllString(rest, ""), "")
	if begins.MatchString(text) {
		rest = strings.TrimPrefix(rest, "virtctl ")
	}
	var out []string
	for _, m := range loose.FindAllStringSubmatch(rest, -1) {
		if ours()[m[1]] {
			out = append(out, "virtctl "+m[1])
		}
	}
	return out
}
