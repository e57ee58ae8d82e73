package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
)

func machine(name string) v1.VirtualMachine {
	vm := v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}}},
	}
	vm.Status.Conditions = []v1.VirtualMachineCondition{{Type: "Ready"}, {Type: "Paused"}}
	return vm
}

// line is a machine as -o jsonl prints it.
func line(name string) string {
	vm := machine(name)
	vm.ManagedFields = nil
	text, err := json.Marshal(&vm)
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

func parse(t *testing.T, o *Output, args ...string) {
	t.Helper()
	cmd := &cobra.Command{}
	o.AddFlags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
}

// report holds objects, as that of describe does.
type report struct {
	metav1.TypeMeta `json:",inline"`
	VM              v1.VirtualMachine `json:"vm"`
}

func (r *report) DeepCopyObject() runtime.Object { return r }

func (r *report) Objects() []metav1.Object { return []metav1.Object{&r.VM} }

// TestManagedFieldsOfReports has them left out of what a report holds, unless they are asked for.
func TestManagedFieldsOfReports(t *testing.T) {
	for _, format := range []string{"json", "yaml", "jsonl"} {
		for _, shown := range []bool{false, true} {
			o := NewOutput()
			args := []string{"-o", format}
			if shown {
				args = append(args, "--show-managed-fields")
			}
			parse(t, o, args...)
			var out bytes.Buffer
			r := &report{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Report"}, VM: machine("demo")}
			if err := o.Print(r, &out); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(out.String(), "managedFields"); got != shown {
				t.Errorf("%v: managedFields are shown: %t\n%s", args, got, out.String())
			}
		}
	}
}

func TestOutput(t *testing.T) {
	dir := t.TempDir()
	columns := filepath.Join(dir, "columns")
	if err := os.WriteFile(columns, []byte("NAME  KIND\nmetadata.name  .kind\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := machine("demo")
	list := &v1.VirtualMachineList{Items: []v1.VirtualMachine{machine("a"), machine("b")}}
	for _, test := range []struct {
		args []string
		one  string
		many string
	}{
		{
			[]string{"-o", "name"},
			"virtualmachine.kubevirt.io/demo\n",
			"virtualmachine.kubevirt.io/a\nvirtualmachine.kubevirt.io/b\n",
		},
		{[]string{"-o", "jsonl"}, line("demo"), line("a") + line("b")},
		{[]string{"-o", "jsonpath={.metadata.name}"}, "demo", ""},
		{[]string{"-o", "jsonpath=.status.conditions[1].type"}, "Paused", ""},
		{[]string{"-o", "go-template={{.kind}}"}, "VirtualMachine", ""},
		{[]string{"--template", "{{.kind}}"}, "VirtualMachine", ""},
		{
			[]string{
				"-o", "custom-columns=NAME:.metadata.name,CONDITIONS:.status.conditions[*].type,NODE:.status.node",
			},
			"NAME   CONDITIONS     NODE\ndemo   Ready,Paused   <none>\n",
			"NAME   CONDITIONS     NODE\na      Ready,Paused   <none>\nb      Ready,Paused   <none>\n",
		},
		{[]string{"-o", "custom-columns-file=" + columns}, "NAME   KIND\ndemo   VirtualMachine\n", ""},
	} {
		o := NewOutput()
		parse(t, o, test.args...)
		if err := o.Validate(); err != nil || !o.Given() {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		var b bytes.Buffer
		if err := o.Print(&one, &b); err != nil || b.String() != test.one {
			t.Errorf("%q: got %q, %v; want %q", test.args, b.String(), err, test.one)
		}
		if test.many == "" {
			continue
		}
		var many bytes.Buffer
		if err := o.Print(list, &many); err != nil || many.String() != test.many {
			t.Errorf("%q: got %q, %v; want %q", test.args, many.String(), err, test.many)
		}
	}
}

// Objects that come one after the other are rows of one table of custom columns.
func TestColumnsOfSeveral(t *testing.T) {
	long, short := machine("longer-name"), machine("a")
	const rows = "longer-name   VirtualMachine\na             VirtualMachine\n"
	for want, flags := range map[string][]string{"NAME          KIND\n" + rows: nil, rows: {"--no-headers"}} {
		o := NewOutput()
		parse(t, o, "-o", "custom-columns=NAME:.metadata.name,KIND:.kind")
		o.NoHeaders = flags != nil
		var b bytes.Buffer
		for _, vm := range []*v1.VirtualMachine{&long, &short} {
			if err := o.Print(vm, &b); err != nil {
				t.Fatal(err)
			}
		}
		if b.String() != want {
			t.Errorf("%q, not %q", b.String(), want)
		}
	}
}

// What is printed one after the other is a stream of documents.
func TestOutputOfSeveral(t *testing.T) {
	one, two := machine("a"), machine("b")
	o := NewOutput()
	parse(t, o, "-o", "yaml")
	var b bytes.Buffer
	for _, vm := range []*v1.VirtualMachine{&one, &two} {
		if err := o.Print(vm, &b); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(b.String(), "---\n") != 1 || strings.HasPrefix(b.String(), "---") {
		t.Errorf("%q", b.String())
	}
}

// Errors of several objects are one, whose code is that on which they agree.
func TestJoined(t *testing.T) {
	absent := &ExitError{Code: ExitNotFound, Err: errors.New("a")}
	late := &ExitError{Code: ExitTimeout, Err: errors.New("b")}
	for _, c := range []struct {
		errs []error
		code int
		text string
	}{
		{[]error{nil, nil}, ExitOK, ""},
		{[]error{nil, absent}, ExitNotFound, "a"},
		{[]error{absent, nil, late}, ExitFailure, "a\nb"},
	} {
		err := Joined(c.errs...)
		if ExitCode(err) != c.code || err != nil && Explain(err, Connection{}) != c.text {
			t.Errorf("%v: code %d, %v", c.errs, ExitCode(err), err)
		}
	}
}

// What counts bytes is a number that a script can read, also when it has seven digits.
func TestOutputOfIntegers(t *testing.T) {
	vm := machine("demo")
	vm.Generation = 3147743
	for format, want := range map[string]string{
		"jsonpath={.metadata.generation}":         "3147743",
		"jsonpath-as-json={.metadata.generation}": "[\n    3147743\n]\n",
		"custom-columns=G:.metadata.generation":   "G\n3147743\n",
	} {
		o := NewOutput()
		parse(t, o, "-o", format)
		var b bytes.Buffer
		if err := o.Print(&vm, &b); err != nil || b.String() != want {
			t.Errorf("%s: got %q, %v; want %q", format, b.String(), err, want)
		}
	}
}

func TestOutputLeavesOutManagedFields(t *testing.T) {
	vm := machine("demo")
	for _, format := range []string{"json", "jsonl", "yaml"} {
		for show, args := range map[bool][]string{
			false: {"-o", format},
			true:  {"-o", format, "--show-managed-fields"},
		} {
			o := NewOutput()
			parse(t, o, args...)
			var b bytes.Buffer
			if err := o.Print(vm.DeepCopy(), &b); err != nil {
				t.Fatal(err)
			}
			if got := bytes.Contains(b.Bytes(), []byte("somebody")); got != show {
				t.Errorf("%q: managedFields are there: %v", args, got)
			}
		}
	}
}

func TestOutputRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-o", "xml"},
		{"-o", "jsonpath"},
		{"-o", "jsonpath={.a"},
		{"-o", "go-template={{"},
		{"-o", "custom-columns=A"},
		{"-o", "custom-columns=A:{.b"},
		{"-o", "custom-columns-file=/nowhere"},
		{"-o", "jsonpath-file=/nowhere"},
	} {
		o := NewOutput("wide")
		parse(t, o, args...)
		if err := o.Validate(); ExitCode(err) != ExitUsage {
			t.Errorf("%q: got %v, want a usage error", args, err)
		}
	}
	o := NewOutput("wide")
	parse(t, o, "-o", "wide")
	if o.Given() || o.Validate() != nil {
		t.Error("a format of the command's own counts as one for objects")
	}
}

func TestNameOfWhatHasNone(t *testing.T) {
	o := NewOutput()
	o.Format = "name"
	var b bytes.Buffer
	report := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "cli.virtkit.io/v1", Kind: "SomeReport"}}
	if err := o.Print(report, &b); ExitCode(err) != ExitUsage || b.Len() > 0 {
		t.Errorf("got %q and error %v", b.String(), err)
	}
	if o = NewNameless(); o.Validate() != nil || strings.Contains(strings.Join(o.formats(), " "), "name") {
		t.Errorf("%v", o.formats())
	}
	o.Format = "name"
	if err := o.Validate(); ExitCode(err) != ExitUsage {
		t.Errorf("it is not refused before anything is done: %v", err)
	}
}
