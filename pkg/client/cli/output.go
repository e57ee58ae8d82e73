package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// Output is a command's -o flag: json, jsonl, yaml, name, jsonpath=…, go-template=… and custom-columns=… with
// kubectl's meaning and kubectl's printers, and formats of the command's own such as wide.
type Output struct {
	Format string
	// NoHeaders leaves out the titles of custom-columns.
	NoHeaders bool
	// Nameless is whether what is printed has no name, so that -o name is refused before anything is done.
	Nameless bool

	own               []string
	template          string
	allowMissingKeys  bool
	showManagedFields bool

	// cached is the printer of a format: what it prints one after the other is one stream of documents.
	cached    printers.ResourcePrinter
	cachedFor string
}

// NewNameless returns the value of a flag for what has no name.
func NewNameless(own ...string) *Output {
	o := NewOutput(own...)
	o.Nameless = true
	return o
}

// NewOutput returns the flag's value. own are formats that the command prints itself.
func NewOutput(own ...string) *Output {
	return &Output{own: own, allowMissingKeys: true}
}

// AddFlags registers -o and what belongs to it.
func (o *Output) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&o.Format, "output", "o", o.Format, "Output `FORMAT`: "+strings.Join(o.formats(), ", "))
	flags.StringVar(&o.template, "template", "",
		"Go `TEMPLATE` for -o go-template, or the path of one for -o go-template-file")
	flags.BoolVar(&o.allowMissingKeys, "allow-missing-template-keys", true,
		"Print nothing for a field that a template or jsonpath names and the object lacks")
	flags.BoolVar(&o.showManagedFields, "show-managed-fields", false, "Keep managedFields in JSON and YAML")
	err := cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(o.completions(), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	if err != nil {
		panic(err) // no such flag: a programming error
	}
}

func (o *Output) formats() []string {
	out := append(slices.Clone(o.own), "json", FormatLines, "yaml")
	if !o.Nameless {
		out = append(out, "name")
	}
	return append(out, "jsonpath=…", "jsonpath-file=…", "go-template=…", "go-template-file=…", "custom-columns=…",
		"custom-columns-file=…")
}

func (o *Output) completions() []string {
	out := o.formats()
	for i := range out {
		out[i] = strings.TrimSuffix(out[i], "…")
	}
	return out
}

// Given reports whether the user chose a format that prints objects, rather than none or one of the
// command's own.
func (o *Output) Given() bool {
	return (o.Format != "" || o.template != "") && !slices.Contains(o.own, o.Format)
}

// Unknown reports whether the user gave something that is no format, nor begins as one.
func (o *Output) Unknown() bool {
	kind, _, _ := strings.Cut(o.Format, "=")
	known := append(o.formats(), "template", "templatefile") // kubectl's old names
	return o.Format != "" && !slices.ContainsFunc(known, func(format string) bool {
		known, _, _ := strings.Cut(format, "=")
		return kind == known
	})
}

// Validate refuses an unknown format before anything is done.
func (o *Output) Validate() error {
	if !o.Given() {
		return nil
	}
	_, err := o.printer()
	return err
}

// Print writes obj in the chosen format, which must be Given. JSON, YAML and templates are data: to a pipe or a file
// they go as they are; on a terminal what it would obey is escaped, as are names and columns everywhere.
func (o *Output) Print(obj runtime.Object, w io.Writer) error {
	p, err := o.same()
	if err != nil {
		return err
	}
	if format, _, _ := strings.Cut(o.Format, "="); format != "name" && !strings.HasPrefix(format, "custom-columns") {
		w = forPrograms(w)
	}
	objects := []runtime.Object{obj}
	if (o.Format == "name" || o.Format == FormatLines) && isList(obj) {
		if objects, err = meta.ExtractList(obj); err != nil {
			return fmt.Errorf("print as %s: %w", o.Format, err)
		}
	}
	for _, obj := range objects {
		if err := p.PrintObj(obj, w); err != nil {
			return fmt.Errorf("print as %s: %w", o.Format, err)
		}
	}
	return nil
}

// PrintAll writes what a command did for several objects: as a v1 List, so that JSON and YAML are one document and
// templates have .items, as kubectl's are. alone is whether the command was about one object, which is then printed
// as it is.
func (o *Output) PrintAll(objects []runtime.Object, alone bool, w io.Writer) error {
	if alone {
		for _, object := range objects {
			if err := o.Print(object, w); err != nil {
				return err
			}
		}
		return nil
	}
	list := &corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
	for _, object := range objects {
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
	}
	return o.Print(list, w)
}

// same returns the printer that has printed what came before in the same format, if there was anything.
func (o *Output) same() (printers.ResourcePrinter, error) {
	if format := o.Format + "\n" + o.template; o.cached == nil || o.cachedFor != format {
		p, err := o.printer()
		if err != nil {
			return nil, err
		}
		o.cached, o.cachedFor = p, format
	}
	return o.cached, nil
}

// Anew begins another table of custom columns, with its header, for what is printed next. All other formats are one
// stream.
func (o *Output) Anew() {
	if _, ok := o.cached.(*customColumns); ok {
		o.cached = nil
	}
}

func (o *Output) printer() (printers.ResourcePrinter, error) {
	format, argument, _ := strings.Cut(o.Format, "=")
	if o.Format == "" && o.template != "" {
		format = "go-template"
	}
	switch format {
	case "json":
		return o.withoutManagedFields(&printers.JSONPrinter{}), nil
	case FormatLines:
		return o.withoutManagedFields(printers.ResourcePrinterFunc(printLine)), nil
	case "yaml":
		return o.withoutManagedFields(&printers.YAMLPrinter{}), nil
	case "name":
		if o.Nameless {
			return nil, UsageErrorf("-o name: what is printed has no name; use one of %s",
				strings.Join(o.formats(), ", "))
		}
		return printers.ResourcePrinterFunc(printName), nil
	case "jsonpath", "jsonpath-as-json", "jsonpath-file", "go-template", "template", "go-template-file", "templatefile",
		"custom-columns", "custom-columns-file":
		text, err := o.argument(format, argument)
		if err != nil {
			return nil, err
		}
		return o.templatePrinter(format, text)
	}
	return nil, UsageErrorf("unknown output format %q; use one of %s", o.Format, strings.Join(o.formats(), ", "))
}

// printName writes KIND.GROUP/NAME, as kubectl does, and of a report of many objects one for each.
func printName(obj runtime.Object, w io.Writer) error {
	if m, err := meta.Accessor(obj); err == nil && m.GetName() != "" || obj.GetObjectKind().GroupVersionKind().
		Kind == "" {
		return (&printers.NamePrinter{ShortOutput: true}).PrintObj(obj, w)
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	switch report := obj.(type) {
	case Named:
		_, err := fmt.Fprintln(w, strings.ToLower(kind.GroupKind().String())+"/"+report.ReportName())
		return err
	case ObjectNamer:
		for _, name := range report.ObjectNames() {
			if _, err := fmt.Fprintln(w, name); err != nil {
				return err
			}
		}
		return nil
	}
	if kind.GroupVersion().String() == action.ReportVersion {
		return UsageErrorf("-o name: a report of kind %s has no name; use another format", kind.Kind)
	}
	_, err := fmt.Fprintln(w, strings.ToLower(kind.GroupKind().String())) // its name is to be generated
	return err
}

// ObjectNamer is a report of many objects, whose names it returns as KIND.GROUP/NAME.
type ObjectNamer interface{ ObjectNames() []string }

// Named is a report about one thing, which it is named after.
type Named interface{ ReportName() string }

func (o *Output) withoutManagedFields(p printers.ResourcePrinter) printers.ResourcePrinter {
	if o.showManagedFields {
		return p
	}
	outer := &printers.OmitManagedFieldsPrinter{Delegate: p}
	return printers.ResourcePrinterFunc(func(object runtime.Object, w io.Writer) error {
		if report, ok := object.(Holder); ok {
			for _, held := range report.Objects() {
				held.SetManagedFields(nil)
			}
		}
		return outer.PrintObj(object, w)
	})
}

// Holder is a report that holds objects of the cluster.
type Holder interface{ Objects() []metav1.Object }

// argument returns what follows FORMAT=, or --template, or the content of the file that they name.
func (o *Output) argument(format, text string) (string, error) {
	if text == "" {
		text = o.template
	}
	if text == "" {
		return "", UsageErrorf("-o %s needs an argument: -o %s=…", format, format)
	}
	if !strings.HasSuffix(format, "file") {
		return text, nil
	}
	data, err := os.ReadFile(text)
	if err != nil {
		return "", Unreadable("-o "+format, text, err)
	}
	return string(data), nil
}

func (o *Output) templatePrinter(format, text string) (printers.ResourcePrinter, error) {
	switch {
	case strings.HasPrefix(format, "jsonpath"):
		p, err := printers.NewJSONPathPrinter(relaxed(text))
		if err != nil {
			return nil, UsageErrorf("-o %s: %s", format, err)
		}
		p.AllowMissingKeys(o.allowMissingKeys)
		p.EnableJSONOutput(format == "jsonpath-as-json")
		return withIntegers(p), nil
	case strings.HasPrefix(format, "custom-columns"):
		return newCustomColumns(format, text, o.NoHeaders)
	default:
		p, err := printers.NewGoTemplatePrinter([]byte(text))
		if err != nil {
			return nil, UsageErrorf("-o %s: %s", format, err)
		}
		p.AllowMissingKeys(o.allowMissingKeys)
		return p, nil
	}
}

// withIntegers lets p print integers as such, as kubectl does of what it has from a server. It would read them as
// floating-point numbers, and print 3147743 as 3.147743e+06.
func withIntegers(p printers.ResourcePrinter) printers.ResourcePrinter {
	return printers.ResourcePrinterFunc(func(obj runtime.Object, w io.Writer) error {
		object, err := tree(obj)
		if err != nil {
			return err
		}
		return p.PrintObj(&unstructured.Unstructured{Object: object}, w)
	})
}

// tree returns an object's JSON as maps, slices and scalars, integers as int64.
func tree(obj runtime.Object) (map[string]any, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	return object, utiljson.Unmarshal(data, &object)
}

// relaxed lets a jsonpath be written without its braces, `.status.phase`, as kubectl does.
func relaxed(path string) string {
	if strings.Contains(path, "{") {
		return path
	}
	return "{." + strings.TrimPrefix(path, ".") + "}"
}
