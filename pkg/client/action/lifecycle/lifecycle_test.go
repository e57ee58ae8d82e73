package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
)

type recorder struct {
	lines      []string
	migrations []v1.VirtualMachineInstanceMigration
	err        error
	// missing has the resources without an object.
	missing []string
	vm      *v1.VirtualMachine
	vmi     *v1.VirtualMachineInstance
}

func (r *recorder) Put(_ context.Context, resource, namespace, name, subresource string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r.lines = append(r.lines, strings.Join([]string{resource, namespace, name, subresource, string(data)}, " "))
	return r.err
}

func (r *recorder) Delete(_ context.Context, resource, namespace, name string, opts metav1.DeleteOptions) error {
	data, err := json.Marshal(opts)
	if err != nil {
		return err
	}
	r.lines = append(r.lines, strings.Join([]string{"delete", resource, namespace, name, string(data)}, " "))
	return r.err
}

func (r *recorder) MigrationList(context.Context, string, metav1.ListOptions,
) (*v1.VirtualMachineInstanceMigrationList, error) {
	return &v1.VirtualMachineInstanceMigrationList{Items: r.migrations}, nil
}

func (r *recorder) CreateTyped(
	_ context.Context, group, resource string, object, _ metav1.Object, dryRun bool,
) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	r.lines = append(r.lines, fmt.Sprintf("create %s %s %v %s", group, resource, dryRun, data))
	return r.err
}

func (r *recorder) VM(_ context.Context, _, name string) (*v1.VirtualMachine, error) {
	return r.vm, r.read(client.VMs, name)
}

func (r *recorder) VMI(_ context.Context, _, name string) (*v1.VirtualMachineInstance, error) {
	return r.vmi, r.read(client.VMIs, name)
}

// read finds what missing does not have.
func (r *recorder) read(resource, name string) error {
	if slices.Contains(r.missing, resource) {
		return apierrors.NewNotFound(schema.GroupResource{Group: v1.GroupVersion.Group, Resource: resource}, name)
	}
	return nil
}

func TestDo(t *testing.T) {
	zero, minute := int64(0), int64(60)
	for want, do := range map[string]struct {
		verb Verb
		o    Options
	}{
		`virtualmachines ns vm start {"paused":true}`:              {Start, Options{Paused: true}},
		`virtualmachineinstances ns vm pause {}`:                   {Pause, Options{}},
		`virtualmachineinstances ns vm unpause {"dryRun":["All"]}`: {Unpause, Options{DryRun: true}},
		`virtualmachineinstances ns vm reset {}`:                   {Reset, Options{}},
		`virtualmachineinstances ns vm softreboot {}`:              {SoftReboot, Options{}},
		`virtualmachines ns vm migrate {"addedNodeSelector":{"a":"b"}}`: {
			Migrate, Options{NodeSelector: map[string]string{"a": "b"}},
		},
		`virtualmachines ns vm evacuate/cancel {"evacuationNodeName":""}`: {EvacuateCancel, Options{}},
		`delete virtualmachines ns vm {"gracePeriodSeconds":0,"dryRun":["All"]}`: {
			Delete, Options{GracePeriodSeconds: &zero, DryRun: true},
		},
		`virtualmachines ns vm start {}`:                 {Start, Options{}},
		`virtualmachines ns vm start {"dryRun":["All"]}`: {Start, Options{DryRun: true}},
		`virtualmachines ns vm stop {}`:                  {Stop, Options{}},
		`virtualmachines ns vm stop {"gracePeriod":0}`:   {Stop, Options{GracePeriodSeconds: &zero}},
		`virtualmachines ns vm restart {"gracePeriodSeconds":60,"dryRun":["All"]}`: {
			Restart, Options{GracePeriodSeconds: &minute, DryRun: true},
		},
	} {
		r := &recorder{}
		if err := Do(t.Context(), r, do.verb, Target{Namespace: "ns", Name: "vm"}, do.o); err != nil {
			t.Fatal(err)
		}
		if len(r.lines) != 1 || r.lines[0] != want {
			t.Errorf("got %q, want %q", r.lines, want)
		}
	}
}

// TestDeleteSparesAnother: a target with a UID is deleted only while it is that object.
func TestDeleteSparesAnother(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Group: "kubevirt.io", Resource: client.VMs}, "vm",
		errors.New("Precondition failed"))
	r := &recorder{err: conflict}
	err := Do(t.Context(), r, Delete, Target{Namespace: "ns", Name: "vm", UID: "one"}, Options{})
	if want := []string{`delete virtualmachines ns vm {"preconditions":{"uid":"one"}}`}; !slices.Equal(r.lines, want) {
		t.Errorf("asked %q, not %q", r.lines, want)
	}
	if !errors.Is(err, conflict) || !errors.Is(err, action.ErrNotFound) ||
		!strings.Contains(err.Error(), "another of its name stays") {
		t.Errorf("says %v", err)
	}
}

func TestDoSaysWhatFailed(t *testing.T) {
	cause := errors.New("no")
	err := Do(t.Context(), &recorder{err: cause}, Stop, Target{Namespace: "ns", Name: "vm"}, Options{})
	if !errors.Is(err, cause) || err.Error() != "stop VM ns/vm: no" {
		t.Errorf("got %v", err)
	}
	cause = errors.New("VirtualMachine ns/vm: VM is not running")
	if err := Do(t.Context(), &recorder{err: cause}, Stop, Target{Namespace: "ns", Name: "vm"},
		Options{}); err.Error() != "stop VM ns/vm: VM is not running" {
		t.Errorf("names the VM twice: %v", err)
	}
	if err := Do(t.Context(), &recorder{}, "explode", Target{Namespace: "ns", Name: "vm"}, Options{}); err == nil {
		t.Error("an unknown verb is accepted")
	}
}

// A migration with disks is made as an object: the subresource knows nothing of disks.
func TestMigrateWithDisks(t *testing.T) {
	vm := Target{Namespace: "ns", Name: "vm"}
	o := Options{WithDisks: true, DryRun: true, NodeSelector: map[string]string{"a": "b"}}
	r := &recorder{}
	if err := Do(t.Context(), r, Migrate, vm, o); err != nil {
		t.Fatal(err)
	}
	want := `create /apis/kubevirt.io/v1 virtualmachineinstancemigrations true `
	if len(r.lines) != 1 || !strings.HasPrefix(r.lines[0], want) ||
		!strings.Contains(r.lines[0], `"annotations":{"virtkit.io/with-disks":"true"}`) ||
		!strings.Contains(r.lines[0], `"spec":{"vmiName":"vm","addedNodeSelector":{"a":"b"}}`) {
		t.Errorf("%q", r.lines)
	}
	under := &recorder{migrations: []v1.VirtualMachineInstanceMigration{migration("other", v1.MigrationRunning, 1)}}
	if err := Do(t.Context(), under, Migrate, vm, o); !apierrors.IsConflict(err) || len(under.lines) > 0 {
		t.Errorf("while another is under way: %v, %q", err, under.lines)
	}
	gone := &recorder{missing: []string{client.VMIs}}
	if err := Do(t.Context(), gone, Migrate, vm, o); !apierrors.IsNotFound(err) || len(gone.lines) > 0 {
		t.Errorf("of a VM that does not run: %v, %q", err, gone.lines)
	}
}
