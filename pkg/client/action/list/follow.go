package list

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
)

// API has the methods of a client that the package calls.
type API interface {
	VMList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineList, error)
	VMIList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineInstanceList, error)
	Watch(ctx context.Context, resource, namespace string, opts metav1.ListOptions) (watch.Interface, error)
}

// Selection is which machines to list.
type Selection struct {
	Kind Kind
	// Namespace is "" for all.
	Namespace string
	// Names are the machines to list; all when there is none.
	Names []string
	// LabelSelector and FieldSelector select the objects that make rows: VMs for VMs, instances for
	// VMIs, both for All.
	LabelSelector, FieldSelector string
}

// Objects are the objects that rows are made of.
type Objects struct {
	VMs  []v1.VirtualMachine
	VMIs []v1.VirtualMachineInstance

	vmVersion, vmiVersion string
}

// options returns the list options for one of the resources. Instances of selected VMs cannot be selected by the VMs'
// labels, so all of them are read.
func (s Selection) options(resource string) metav1.ListOptions {
	if len(s.Names) == 1 {
		return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.Names[0]).
			String()}
	}
	selected := s.Kind == All || (s.Kind == VMs) == (resource == client.VMs)
	if !selected {
		return metav1.ListOptions{}
	}
	return metav1.ListOptions{LabelSelector: s.LabelSelector, FieldSelector: s.FieldSelector}
}

// has reports whether a name is among those to list. The instance of a VM has its name.
func (s Selection) has(name string) bool {
	return len(s.Names) == 0 || slices.Contains(s.Names, name)
}

// Missing returns the names that are to be listed and were not found.
func (s Selection) Missing(o Objects) []string {
	var out []string
	for _, name := range s.Names {
		vm := slices.ContainsFunc(o.VMs, func(vm v1.VirtualMachine) bool { return vm.Name == name })
		vmi := slices.ContainsFunc(o.VMIs, func(vmi v1.VirtualMachineInstance) bool { return vmi.Name == name })
		if found := s.Kind != VMIs && vm || s.Kind != VMs && vmi; !found {
			out = append(out, name)
		}
	}
	return out
}

// Get lists the selected objects.
func Get(ctx context.Context, api API, s Selection) (Objects, error) {
	var o Objects
	if s.Kind != VMIs {
		list, err := api.VMList(ctx, s.Namespace, s.options(client.VMs))
		if err != nil {
			return o, err
		}
		o.VMs, o.vmVersion = list.Items, list.ResourceVersion
	}
	list, err := api.VMIList(ctx, s.Namespace, s.options(client.VMIs))
	if err != nil {
		return o, err
	}
	o.VMIs, o.vmiVersion = list.Items, list.ResourceVersion
	o.VMs = slices.DeleteFunc(o.VMs, func(vm v1.VirtualMachine) bool { return !s.has(vm.Name) })
	o.VMIs = slices.DeleteFunc(o.VMIs, func(vmi v1.VirtualMachineInstance) bool { return !s.has(vmi.Name) })
	return o, nil
}

// retryAfter is the pause before a lost watch is made again.
const retryAfter = time.Second

// Follow calls changed with all rows that are new or differ from what was last reported, first with all there are,
// until ctx ends. A row that went away is reported with Status "Deleted".
func Follow(ctx context.Context, api API, s Selection, changed func([]Row) error) error {
	f := &follower{api: api, selection: s, shown: map[string]Row{}}
	f.report = func() error { return f.reportRows(changed) }
	return f.run(ctx)
}

// run loads and watches until ctx ends, and calls report after each change.
func (f *follower) run(ctx context.Context) error {
	api, s := f.api, f.selection
	out := outage.Follow(ctx)
	defer out.End()
	for first := true; ; first = false {
		out.Asks()
		objects, err := Get(ctx, api, s)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (first || client.Refused(err)):
			return err
		case err != nil:
			out.Lost(ctx, err)
		default:
			out.Answered()
			if err := f.load(objects); err != nil {
				return err
			}
			if err := f.watch(ctx, objects); err != nil {
				return err
			}
		}
		if err := action.Sleep(ctx, retryAfter); err != nil {
			return err
		}
	}
}

type follower struct {
	api       API
	selection Selection
	// report passes on what has changed.
	report func() error

	vms   map[string]v1.VirtualMachine
	vmis  map[string]v1.VirtualMachineInstance
	shown map[string]Row
}

func (f *follower) load(o Objects) error {
	f.vms = map[string]v1.VirtualMachine{}
	f.vmis = map[string]v1.VirtualMachineInstance{}
	for _, vm := range o.VMs {
		f.vms[key(&vm)] = vm
	}
	for _, vmi := range o.VMIs {
		f.vmis[key(&vmi)] = vmi
	}
	return f.report()
}

// watch follows changes until a watch ends; its error is that of report, or final.
func (f *follower) watch(ctx context.Context, o Objects) error {
	var vms, vmis <-chan watch.Event
	open := func(resource, version string) (watch.Interface, error) {
		opts := f.selection.options(resource)
		opts.ResourceVersion = version
		return f.api.Watch(ctx, resource, f.selection.Namespace, opts)
	}
	if f.selection.Kind != VMIs {
		w, err := open(client.VMs, o.vmVersion)
		if err != nil {
			return final(err)
		}
		defer w.Stop()
		vms = w.ResultChan()
	}
	w, err := open(client.VMIs, o.vmiVersion)
	if err != nil {
		return final(err)
	}
	defer w.Stop()
	vmis = w.ResultChan()
	for {
		var event watch.Event
		var more bool
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, more = <-vms:
		case event, more = <-vmis:
		}
		if !more || event.Type == watch.Error {
			return nil
		}
		if f.apply(event) {
			if err := f.report(); err != nil {
				return err
			}
		}
	}
}

func final(err error) error {
	if client.Refused(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (f *follower) apply(event watch.Event) bool {
	deleted := event.Type == watch.Deleted
	switch o := event.Object.(type) {
	case *v1.VirtualMachine:
		if !f.selection.has(o.Name) {
			return false
		}
		if f.vms[key(o)] = *o; deleted {
			delete(f.vms, key(o))
		}
	case *v1.VirtualMachineInstance:
		if !f.selection.has(o.Name) {
			return false
		}
		if f.vmis[key(o)] = *o; deleted {
			delete(f.vmis, key(o))
		}
	default:
		return false
	}
	return event.Type != watch.Bookmark
}

// reportRows compares all rows with those shown. Rows are few beside what the server can send in the same time, so
// they are made anew.
func (f *follower) reportRows(report func([]Row) error) error {
	var vms []v1.VirtualMachine
	var vmis []v1.VirtualMachineInstance
	for _, vm := range f.vms {
		vms = append(vms, vm)
	}
	for _, vmi := range f.vmis {
		vmis = append(vmis, vmi)
	}
	var changed []Row
	present := map[string]bool{}
	for _, row := range Rows(f.selection.Kind, vms, vmis) {
		id := row.id()
		present[id] = true
		if old, ok := f.shown[id]; !ok || !old.equal(row) {
			f.shown[id] = row
			changed = append(changed, row)
		}
	}
	for id, row := range f.shown {
		if !present[id] {
			delete(f.shown, id)
			row.Status, row.Ready = "Deleted", false
			changed = append(changed, row)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return report(changed)
}

func (r Row) id() string {
	if r.Instance {
		return "vmi/" + r.Namespace + "/" + r.Name
	}
	return r.Namespace + "/" + r.Name
}

// equal reports whether a row looks the same, its age apart.
func (r Row) equal(o Row) bool {
	a, b := r.Cells(r.Created, true, true), o.Cells(o.Created, true, true)
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
