package waitcmd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func options(change func(*Options)) *Options {
	f := cli.NewFactory("kubectl virt", cli.NoStreams(), func(string) string { return "" })
	o := &Options{Factory: f, Output: cli.NewOutput(), For: "running", Names: []string{"vm"}}
	o.Timeout.Duration = time.Second
	change(o)
	return o
}

// What cannot be waited for is said before anything is asked, by the name of its flag.
func TestRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--for is missing":           func(o *Options) { o.For = "" },
		"--for: ":                    func(o *Options) { o.For = "flying" },
		"--prompt needs --for=login": func(o *Options) { o.For, o.Prompt = "ready", "x" },
		"--prompt: ":                 func(o *Options) { o.For, o.Prompt = "login", "(" },
		"name the VMs to wait for, or choose them with -l or --all": func(o *Options) { o.Names = nil },
		"or choose them with -l or --all":                           func(o *Options) { o.All = true },
		"choose them with -l or --all": func(o *Options) {
			o.Names, o.All, o.Selector = nil, true, "a=b"
		},
	} {
		err := Run(t.Context(), options(change))
		if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Who has waited too long is told what blocks the VM; who looks once, or whom something else ends, is not.
func TestBlocked(t *testing.T) {
	const path = "/apis/kubevirt.io/v1/namespaces/ns/"
	always := v1.RunStrategyAlways
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm"}}
	vm.Spec.RunStrategy, vm.Spec.Template = &always, &v1.VirtualMachineInstanceTemplateSpec{}
	late := fmt.Errorf("%w waiting for VM ns/vm: it is Starting", action.ErrTimeout)
	for name, test := range map[string]struct {
		object any
		change func(*Options)
		err    error
		want   []string
	}{
		"no virt-controller": {
			vm, func(*Options) {}, late,
			[]string{"; virt-controller does not run", "; `kubectl virt why vm -n ns` says more"},
		},
		"may not be read": {
			clienttest.Forbidden("virtualmachines"), func(*Options) {}, late,
			[]string{"; `kubectl virt why vm -n ns` says more"},
		},
		"looked once": {vm, func(o *Options) { o.Timeout.Duration = 0 }, late, nil},
		"another end": {vm, func(*Options) {}, action.ErrNotFound, nil},
	} {
		api := clienttest.New(t)
		api.Put(path+"virtualmachines/vm", test.object)
		o := options(test.change)
		got := o.blocked(t.Context(), api.Client(), cli.Target{Namespace: "ns", Name: "vm"}, wait.State{},
			test.err)
		if !errors.Is(got, test.err) || !strings.HasPrefix(got.Error(), test.err.Error()) {
			t.Errorf("%s: %v does not wrap %v", name, got, test.err)
		}
		for _, want := range test.want {
			if !strings.Contains(got.Error(), want) {
				t.Errorf("%s: %v, want %q", name, got, want)
			}
		}
		if test.want == nil && got.Error() != test.err.Error() {
			t.Errorf("%s: %v, want %v", name, got, test.err)
		}
	}
}

// What a condition says of the VM is not said again by what blocks it.
func TestSaidOnce(t *testing.T) {
	const gone = `PersistentVolumeClaim "gone" does not exist in namespace "ns"`
	const says = "; `kubectl virt why vm -n ns` says more"
	broken := &v1.VirtualMachine{}
	broken.Status.Conditions = []v1.VirtualMachineCondition{
		{Type: v1.VirtualMachineFailure, Status: "True", Message: gone},
	}
	for name, tc := range map[string]struct{ said, blocks, want string }{
		"more of the same": {
			"; " + gone, `volume "root": ` + gone + `; did you mean "done"?`,
			`; volume "root": ` + gone + `; did you mean "done"?`,
		},
		"the same":       {"; " + gone, gone, "; " + gone},
		"something else": {"; " + gone, "no node takes VMs", "; " + gone + "; no node takes VMs"},
		"not said":       {"", `volume "root": ` + gone, `; volume "root": ` + gone},
		"nothing":        {"; " + gone, "", "; " + gone},
	} {
		late := fmt.Errorf("%w waiting for VM ns/vm: it is Starting%s", action.ErrTimeout, tc.said)
		o := options(func(*Options) {})
		err := o.more(late, cli.Target{Namespace: "ns", Name: "vm"}, wait.State{VM: broken}, tc.blocks)
		want := "timed out waiting for VM ns/vm: it is Starting" + tc.want + says
		if err.Error() != want || !errors.Is(err, action.ErrTimeout) || cli.ExitCode(err) != cli.ExitTimeout {
			t.Errorf("%s: code %d, %s\nwant %s", name, cli.ExitCode(err), err, want)
		}
	}
}
