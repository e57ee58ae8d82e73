package clonecmd

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// TestReached has what is said at the end of --wait.
func TestReached(t *testing.T) {
	o := &Options{}
	o.Source = "demo"
	if got, want := o.reached("copy"), "virtualmachine.kubevirt.io/copy is stopped: "+
		"it is a copy of VM demo"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	o.FromSnapshot = true
	if got, want := o.reached("copy"), "virtualmachine.kubevirt.io/copy is stopped: it is "+
		"a copy of snapshot demo"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What is wrong with the arguments is said by the name of the flag, before anything is asked.
func TestCompleteRefuses(t *testing.T) {
	for want, test := range map[string]struct {
		args   []string
		change func(*Options)
	}{
		`"Bad_" is not a name`: {[]string{"demo", "Bad_"}, func(*Options) {}},
		`"a/b" is not a name`:  {[]string{"a/b"}, func(*Options) {}},
		`--new-mac: "default=nope"`: {
			[]string{"demo"}, func(o *Options) { o.MACs = map[string]string{"default": "nope"} },
		},
		`--new-mac: "=02:00:00:00:00:17"`: {[]string{"demo"}, func(o *Options) {
			o.MACs = map[string]string{"": "02:00:00:00:00:17"}
		}},
		`--keep: "name" is not one of mac, uuid, serial, instance-id, hostname`: {
			[]string{"demo"}, func(o *Options) { o.Keep = []string{"mac", "name"} },
		},
		"--keep: the serial number is to be kept, and there is a new one": {
			[]string{"demo"}, func(o *Options) { o.Keep, o.Serial = []string{"serial"}, "S1" },
		},
		"--wait cannot be given with --dry-run": {
			[]string{"demo"}, func(o *Options) { o.Wait, o.DryRun = true, cli.DryRunClient },
		},
	} {
		o := &Options{Creation: cli.NewCreation(nil)}
		test.change(o)
		if err := o.complete(test.args); cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The source is a VM or a snapshot, by its prefix or by the flag; what the flags say is in the object.
func TestComplete(t *testing.T) {
	for arg, want := range map[string]struct{ kind, name string }{
		"demo": {"VirtualMachine", "demo"}, "vm/demo": {"VirtualMachine", "demo"},
		"snapshot/before": {"VirtualMachineSnapshot", "before"},
	} {
		o := &Options{Creation: cli.NewCreation(nil), MACs: map[string]string{"default": "02:00:00:00:00:17"}}
		o.Serial, o.LabelFilters = "S1", []string{"*", "!app"}
		o.TemplateLabelFilters, o.TemplateAnnotationFilters = []string{"team"}, []string{"!note"}
		if err := o.complete([]string{arg, "copy"}); err != nil {
			t.Fatal(err)
		}
		o.Keep = []string{"mac", "hostname"}
		made := clone.New("ns", "c1", o.Options)
		if kept := made.Annotations[clones.KeepAnnotation]; kept != "mac,hostname" {
			t.Errorf("%s: keeps %s", arg, kept)
		}
		got := made.Spec
		if got.Source.Kind != want.kind || got.Source.Name != want.name || got.Target.Name != "copy" ||
			got.NewMacAddresses["default"] != "02:00:00:00:00:17" || *got.NewSMBiosSerial != "S1" ||
			len(got.LabelFilters) != 2 || !slices.Equal(got.Template.LabelFilters, []string{"team"}) ||
			!slices.Equal(got.Template.AnnotationFilters, []string{"!note"}) {
			t.Errorf("%s: %+v", arg, got)
		}
	}
}

// A preference, too, may ask for state; the server writes it out, where it may be asked.
func TestKeepsState(t *testing.T) {
	vm := func(preference string, persistent bool) *v1.VirtualMachine {
		template := &v1.VirtualMachineInstanceTemplateSpec{}
		template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: &persistent}
		out := &v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}, Spec: v1.VirtualMachineSpec{Template: template},
		}
		if preference != "" {
			out.Spec.Preference = &v1.PreferenceMatcher{Name: preference}
		}
		return out
	}
	const path = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachines/vm/expand-spec"
	for name, test := range map[string]struct {
		vm     *v1.VirtualMachine
		answer any
		want   bool
	}{
		"its template":                    {vm("", true), nil, true},
		"nothing":                         {vm("", false), nil, false},
		"its preference":                  {vm("windows", false), vm("", true), true},
		"not its preference":              {vm("linux", false), vm("", false), false},
		"who may not have it written out": {vm("windows", false), clienttest.Forbidden("virtualmachines"), false},
		"who may not, but its template":   {vm("windows", true), clienttest.Forbidden("virtualmachines"), true},
		"a preference that is not there":  {vm("windows", false), nil, false},
	} {
		api := clienttest.New(t)
		if test.answer != nil {
			api.Put(path, test.answer)
		}
		got, err := keepsState(t.Context(), api.Client(), test.vm)
		if err != nil || got != test.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
