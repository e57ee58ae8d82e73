package templatecmd

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// What the server misses in the VM is named as a field of the template, with what to write; anything else that it says
// stays as it is.
func TestRefused(t *testing.T) {
	invalid := func(fields ...*field.Error) *apierrors.StatusError {
		return apierrors.NewInvalid(v1.VirtualMachineGroupVersionKind.GroupKind(), "web", fields)
	}
	domain := field.NewPath("spec", "template", "spec", "domain")
	unchecked := field.Invalid(field.NewPath("<nil>"), "null", "some validation rules were not checked because the "+
		"object was invalid; correct the existing errors to complete validation")
	const within = "spec.virtualMachine.spec.template.spec."
	for _, test := range []struct {
		answer *apierrors.StatusError
		want   string
	}{
		{
			invalid(field.Required(domain.Child("devices"), ""), unchecked),
			"template FILE: " + within + "domain.devices is missing; write `devices: {}` there when the VM is to " +
				"have what every VM has",
		},
		{
			invalid(field.Required(domain, "")),
			"template FILE: " + within + "domain is missing; the template must give it a value",
		},
		{
			invalid(field.Required(domain.Child("devices"), ""), field.Required(domain.Child("memory"), "")),
			"template FILE: " + within + "domain.devices, " + within + "domain.memory are missing; the template must " +
				"give them values",
		},
		{
			invalid(field.Required(domain.Child("devices"), ""), field.Invalid(domain.Child("cpu"), "x", "no number")),
			"create VM default/web: VirtualMachine.kubevirt.io \"web\" is invalid: ",
		},
		{
			&apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: "no details",
			}},
			"create VM default/web: no details",
		},
	} {
		api := clienttest.New(t)
		api.Put("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", test.answer)
		file := filepath.Join(t.TempDir(), "template.yaml")
		err := os.WriteFile(file, []byte(`
apiVersion: template.kubevirt.io/v1beta1
kind: VirtualMachineTemplate
metadata: {name: web}
spec: {virtualMachine: {metadata: {name: web}, spec: {runStrategy: Halted, template: {spec: {domain: {}}}}}}
`), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		f := cli.NewFactory("virtctl", &cli.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out},
			func(string) string { return "" })
		cmd := NewCmdProcess(f)
		f.Flags.AddFlags(cmd.PersistentFlags())
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{"-f", file, "--create", "--kubeconfig", api.Kubeconfig("default")})
		err = cmd.ExecuteContext(t.Context())
		want := strings.ReplaceAll(test.want, "FILE", file)
		if err == nil || !strings.HasPrefix(err.Error(), want) || cli.ExitCode(err) != cli.ExitFailure ||
			out.Len() > 0 {
			t.Errorf("%v (%s), want %s", err, &out, want)
		}
	}
}

// A value is data: it comes into the VM as it was given. One that makes no sense is a wrong command line.
func TestParameters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "template.yaml")
	err := os.WriteFile(file, []byte(`
apiVersion: template.kubevirt.io/v1beta1
kind: VirtualMachineTemplate
metadata: {name: web}
spec:
  parameters: [{name: NAME, required: true}, {name: CORES, value: "1"}, {name: X}]
  virtualMachine:
    metadata: {name: "${NAME}", annotations: {x: "${X}"}}
    spec: {runStrategy: Halted, template: {spec: {domain: {cpu: {cores: "${{CORES}}"}}}}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		given []string
		want  string // the annotation, or with code the error
		code  int
	}{
		{[]string{"NAME=web", `X=a"`}, `a"`, 0},
		{[]string{"NAME=web", `X="a,b"`}, `"a,b"`, 0},
		{[]string{"NAME=web", `X=-C "x y=z"`}, `-C "x y=z"`, 0},
		{[]string{"NAME=web", "X=a=b,NAME=c"}, "a=b,NAME=c", 0},
		{[]string{"NAME"}, "is not KEY=VALUE", cli.ExitUsage},
		{nil, "parameter NAME needs a value", cli.ExitUsage},
		{[]string{"NAME=web", "Y=z"}, "has no parameter Y", cli.ExitUsage},
		{[]string{"NAME=web", "CORES=two"}, "parameter CORES", cli.ExitUsage},
	} {
		var out bytes.Buffer
		f := cli.NewFactory("virtctl", &cli.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: io.Discard},
			func(string) string { return "" })
		cmd := NewCmdProcess(f)
		f.Flags.AddFlags(cmd.PersistentFlags())
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		args := []string{"-f", file, "-o", "jsonpath={.metadata.annotations.x}"}
		for _, pair := range test.given {
			args = append(args, "-p", pair)
		}
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		got := out.String()
		if err != nil {
			got = err.Error()
		}
		if cli.ExitCode(err) != test.code || !strings.Contains(got, test.want) || test.code == 0 && got != test.want {
			t.Errorf("%q: %d, %s; want %d, %s", test.given, cli.ExitCode(err), got, test.code, test.want)
		}
	}
}
