package vmtemplate

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const fedora = `
apiVersion: template.kubevirt.io/v1beta1
kind: VirtualMachineTemplate
metadata: {name: fedora}
spec:
  message: "Log in to ${NAME} with ${PASSWORD}"
  parameters:
  - {name: NAME, required: true}
  - {name: CORES, value: "2"}
  - {name: TRAY, value: "true"}
  - {name: SIZE, value: 1Gi}
  - {name: NAMESPACE}
  - {name: PASSWORD, generate: expression, from: "x-[a-c]{3}-[0-9]{2}"}
  - {name: LEFT, value: over}
  virtualMachine:
    metadata:
      name: ${NAME}
      namespace: fixed
      labels: {"example.com/${NAME}": "of ${NAME}, ${SIZE}"}
    spec:
      template:
        spec:
          domain:
            cpu: {cores: "${{CORES}}"}
            memory: {guest: "${{SIZE}}"}
            devices: {disks: [{name: cd, cdrom: {readonly: "${{TRAY}}"}}]}
          volumes: [{name: seed, cloudInitNoCloud: {userData: "password: ${PASSWORD} ${{CORES}}"}}]
`

// process gives the VM and the message, or the error.
func process(t *testing.T, text string, values map[string]string) (machine, rest string) {
	t.Helper()
	template, err := Parse([]byte(text))
	if err != nil {
		return "", err.Error()
	}
	done, err := template.Process(values, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		return "", err.Error()
	}
	out, err := yaml.Marshal(done.Machine)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), done.Message + "; unused " + strings.Join(done.Unused, ",")
}

func TestProcess(t *testing.T) {
	// A value is not looked at again, whatever it looks like.
	got, message := process(t, fedora, map[string]string{"NAME": "web-${SIZE}", "PASSWORD": "secret"})
	want := `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata:
  labels:
    example.com/web-${SIZE}: of web-${SIZE}, 1Gi
  name: web-${SIZE}
spec:
  template:
    spec:
      domain:
        cpu:
          cores: 2
        devices:
          disks:
          - cdrom:
              readonly: true
            name: cd
        memory:
          guest: 1Gi
      volumes:
      - cloudInitNoCloud:
          userData: 'password: secret ${{CORES}}'
        name: seed
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if want := "Log in to web-${SIZE} with secret; unused NAMESPACE,LEFT"; message != want {
		t.Errorf("got %q, want %q", message, want)
	}
	_, message = process(t, fedora, map[string]string{"NAME": "web"})
	if !regexp.MustCompile(`^Log in to web with x-[abc]{3}-[0-9]{2};`).MatchString(message) {
		t.Errorf("generated: %q", message)
	}
	// A namespace is left out unless it is a parameter's.
	got, _ = process(t, strings.Replace(fedora, "namespace: fixed", "namespace: ${NAMESPACE}", 1),
		map[string]string{"NAME": "web", "NAMESPACE": "shop"})
	if !strings.Contains(got, "  namespace: shop\n") {
		t.Error(got)
	}
}

func TestProcessRefuses(t *testing.T) {
	replace := func(before, after string) string {
		if !strings.Contains(fedora, before) {
			t.Fatalf("no %s", before)
		}
		return strings.Replace(fedora, before, after, 1)
	}
	named := map[string]string{"NAME": "web"}
	for name, tc := range map[string]struct {
		text   string
		values map[string]string
		want   string
	}{
		"no YAML":     {"{", nil, "read the template: "},
		"OpenShift's": {"kind: Template\napiVersion: template.openshift.io/v1", nil, "virtctl template convert"},
		"another kind": {
			"kind: VirtualMachine\napiVersion: kubevirt.io/v1", nil, `it is a "VirtualMachine" of "kubevirt.io/v1"`,
		},
		"no VM": {
			"kind: VirtualMachineTemplate\napiVersion: template.kubevirt.io/v1alpha1", nil,
			"spec.virtualMachine is empty",
		},
		"not a VM": {
			replace("  virtualMachine:\n", "  virtualMachine:\n    kind: Pod\n"), named, "spec.virtualMachine is a Pod",
		},
		"bad name": {replace("name: LEFT", "name: a-b"), named, `spec.parameters[6].name: "a-b"`},
		"twice": {
			replace("name: LEFT", "name: SIZE"), named, "spec.parameters[6].name: there are two parameters SIZE",
		},
		"required": {fedora, nil, "parameter NAME needs a value; give it one with --param NAME=VALUE"},
		"unknown": {
			fedora,
			map[string]string{"NAME": "web", "NAMES": "x"},
			"the template has no parameter NAMES; it has: NAME, CORES",
		},
		"undefined": {
			replace("namespace: fixed", "generateName: ${OTHER}"), named,
			"spec.virtualMachine.metadata.generateName: the template has no parameter OTHER",
		},
		"undefined, typed": {
			replace("${{CORES}}", "${{OTHER}}"), named,
			"spec.virtualMachine.spec.template.spec.domain.cpu.cores: the template has no parameter OTHER",
		},
		"undefined message": {
			replace("Log in to ${NAME}", "${OTHER}"), named, "spec.message: the template has no parameter OTHER",
		},
		"a word for a number": {
			fedora,
			map[string]string{"NAME": "web", "CORES": "two"},
			`parameter CORES: "two" makes spec.virtualMachine.spec.template.spec.domain.cpu.cores a string, and it ` +
				"must be a whole number that is not negative",
		},
		"a part of a number": {
			fedora, map[string]string{"NAME": "web", "CORES": "1.5"}, `parameter CORES: "1.5" makes `,
		},
		"a type of the template's": {
			replace("${{CORES}}", "many"), named,
			"spec.virtualMachine.spec.template.spec.domain.cpu.cores is a string, and it must be a whole number",
		},
		"null": {fedora, map[string]string{"NAME": "web", "CORES": "null"}, "parameter CORES is null"},
		"generator": {
			replace("generate: expression", "generate: uuid"), named,
			`spec.parameters[5].generate: "uuid" is not expression`,
		},
		"expression": {replace("x-[a-c]{3}-[0-9]{2}", "abc"), named, `spec.parameters[5].from: "abc" has no range`},
	} {
		if machine, got := process(t, tc.text, tc.values); machine != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q %q, want %q", name, machine, got, tc.want)
		}
	}
}

func TestGenerate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for from, want := range map[string]string{
		"[0-1]{8}": `^[01]{8}$`, "test[0-9]{1}x": `^test[0-9]x$`, "0x[A-F0-9]{4}": `^0x[A-F0-9]{4}$`,
		`[\w]{255}`:      `^\w{255}$`,
		`[\d]{3}[\a]{4}`: `^[0-9]{3}[a-zA-Z0-9]{4}$`, `[\A]{30}`: `^[!-/:-@\[-` + "`" + `{-~]{30}$`,
		"[xa-c]{50}": `^[xabc]{50}$`,
	} {
		if got, err := generate(from, random); err != nil || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q, %v", from, got, err)
		}
	}
	for from, want := range map[string]string{
		"": "has no range", "[a-z]": "has no range", "[a-z]{0}": "from 1 to 255", "[a-z]{256}": "from 1 to 255",
		"[a-z]{x}": "from 1 to 255",
		"[z-a]{3}": "z-a is no range", `[\x]{3}`: "followed by none", `[a\]{3}`: "followed by none",
		"[-a]{3}": "- has no letter",
	} {
		if got, err := generate(from, random); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", from, got, err, want)
		}
	}
}

func TestConvert(t *testing.T) {
	const template = `
apiVersion: template.openshift.io/v1
kind: Template
metadata: {name: rhel, namespace: openshift, uid: x, resourceVersion: "3", labels: {os: rhel}, annotations: {a: b}}
message: Started ${NAME}
objects:
- {apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: "${NAME}"}, spec: {runStrategy: Halted}}
parameters:
- {name: NAME, displayName: Name, generate: expression, from: "rhel-[a-z]{8}", required: true}
`
	object, err := Convert([]byte(template))
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: template.kubevirt.io/v1beta1
kind: VirtualMachineTemplate
metadata:
  annotations:
    a: b
  labels:
    os: rhel
  name: rhel
  namespace: openshift
spec:
  message: Started ${NAME}
  parameters:
  - displayName: Name
    from: rhel-[a-z]{8}
    generate: expression
    name: NAME
    required: true
  virtualMachine:
    apiVersion: kubevirt.io/v1
    kind: VirtualMachine
    metadata:
      name: ${NAME}
    spec:
      runStrategy: Halted
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if machine, message := process(t, string(got), nil); !strings.Contains(machine, "name: rhel-") {
		t.Errorf("it makes no VM: %s", message)
	}
	for text, want := range map[string]string{
		"{":          "read the Template",
		"kind: List": `it is a "List"`,
		"{kind: Template, apiVersion: template.openshift.io/v1}": "exactly one object, found 0",
		"{kind: Template, apiVersion: v1, objects: [{kind: VirtualMachine}, {kind: VirtualMachine}]}": "exactly " +
			"one object, found 2",
		"{kind: Template, apiVersion: v1, objects: [{kind: Pod}]}": `it is a "Pod", not a VirtualMachine`,
	} {
		if _, err := Convert([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What is no template is said without the names of Go's types.
func TestUnreadable(t *testing.T) {
	for text, want := range map[string]string{
		"hello":                  "it is no YAML object, but a string",
		"[1]":                    "it is no YAML object, but a array",
		"metadata: a":            "metadata is a string, and it must be an object",
		"spec: {parameters: 12}": "spec.parameters is a number, and it must be a list",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "struct") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
