package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logCalls are the methods of slog, klog and logr that take keys and values, and how many arguments come before these:
// without a first argument that is an error, which logr's Error has.
var logCalls = map[string]int{
	"Info": 1, "Warn": 1, "Error": 1, "Debug": 1, "InfoS": 1, "ErrorS": 1, "With": 0, "WithValues": 0,
	"InfoContext": 2, "WarnContext": 2, "ErrorContext": 2, "DebugContext": 2,
}

// loggers are the names of loggers, and of the functions that give one.
var loggers = []string{
	"log", "Log", "logger", "Logger", "klog", "slog",
	"V", "FromContext", "LoggerFrom", "With", "WithValues", "WithName", "Background",
}

var logKey = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// otherKeys are keys that would say the same by another name.
var otherKeys = map[string]string{
	"error": "err", "elapsed": "took", "duration": "took",
	"instance": "vmi", "guest": "vmi", "nodeName": "node", "podName": "pod",
}

// TestLogKeys holds the convention of CONTRIBUTING.md for the keys of log lines.
func TestLogKeys(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := 0
	for _, file := range sources(t, root) {
		ours := strings.HasPrefix(file, "pkg/") || strings.HasPrefix(file, "cmd/")
		ours = ours && strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go")
		if !ours {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			keys, ok := logged(call)
			if !ok {
				return true
			}
			seen++
			where := file + ":" + strconv.Itoa(set.Position(call.Pos()).Line)
			for _, key := range keys {
				text, known := literal(key)
				switch better := otherKeys[text]; {
				case !known:
					t.Errorf("%s: a key of a log line is not a literal", where)
				case better != "":
					t.Errorf("%s: the key %q is %q everywhere else", where, text, better)
				case !logKey.MatchString(text):
					t.Errorf("%s: the key %q is not in lowerCamelCase", where, text)
				}
			}
			return true
		})
	}
	if seen < 100 {
		t.Errorf("%d log lines were found; does loggers have the names of all?", seen)
	}
}

// logged are the keys of a call that logs.
func logged(call *ast.CallExpr) ([]ast.Expr, bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(loggers, last(method.X)) || call.Ellipsis.IsValid() {
		return nil, false
	}
	before, ok := logCalls[method.Sel.Name]
	if !ok {
		return nil, false
	}
	// ErrorS, and logr's Error: the message comes second.
	if strings.HasPrefix(method.Sel.Name, "Error") && before == 1 && len(call.Args) > 1 {
		_, message := literal(call.Args[0])
		if _, second := literal(call.Args[1]); method.Sel.Name == "ErrorS" ||
			!message && second && len(call.Args)%2 == 0 {
			before = 2
		}
	}
	var keys []ast.Expr
	for i := before; i < len(call.Args); i += 2 {
		keys = append(keys, call.Args[i])
	}
	return keys, true
}

// last is the last name of what a method is called on: log of s.log, V of klog.V(4).
func last(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.SelectorExpr:
		return of.Sel.Name
	case *ast.CallExpr:
		return last(of.Fun)
	}
	return ""
}

func literal(of ast.Expr) (string, bool) {
	l, ok := of.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}
