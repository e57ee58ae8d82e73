// Package verbosity reads and changes how much virtkit's components log: the logVerbosity of the KubeVirt resource, and
// the label of a VM by which its launcher has a level of its own. Of reads what holds, Plan makes a change out of what
// a user wants; both are pure. Find and Apply talk to the cluster.
package verbosity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/launcherlog"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

const (
	// Default is the level of a component of which nothing is said.
	Default = 2
	// Max is the highest level.
	Max = 9
	// Label is the label of a VM's template for the level of its launcher.
	Label = launcherlog.LabelVerbosity
)

// Operator is KubeVirt's component that virtkit has not: its level can be set and has no effect.
const Operator = "virt-operator"

// components are the names, as flags and in the output, with the fields of the KubeVirt resource.
var components = map[string]string{
	"virt-api": "virtAPI", "virt-controller": "virtController", "virt-handler": "virtHandler",
	"virt-launcher": "virtLauncher", Operator: "virtOperator",
}

// Components returns the names of the components, sorted.
func Components() []string {
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Report is what `adm log-verbosity -o json` prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Components are the levels of the components, 0 to 9, sorted by name.
	Components []Level `json:"components,omitempty"`
	// VirtualMachines are the levels of VMs' launchers.
	VirtualMachines []Level `json:"virtualMachines,omitempty"`
}

// RowLists returns the keys of the levels.
func (r *Report) RowLists() []string { return []string{"components", "virtualMachines"} }

// Level is how much one component, or the launcher of one VM, logs.
type Level struct {
	// Name is the component's or the VM's.
	Name string `json:"name"`
	// Level is 2 for what matters, up to 9 for debugging.
	Level uint `json:"level"`
	// AfterRestart is, for a VM that runs, the level that its launcher has from its next start on, where that is
	// another.
	AfterRestart *uint `json:"afterRestart,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Components, out.VirtualMachines = slices.Clone(r.Components), slices.Clone(r.VirtualMachines)
	return &out
}

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "LogVerbosityReport"}}
}

// Of returns the level of a component by the KubeVirt resource.
func Of(kv *v1.KubeVirt, component string) uint {
	developer := kv.Spec.Configuration.DeveloperConfiguration
	if developer == nil || developer.LogVerbosity == nil {
		return Default
	}
	levels := developer.LogVerbosity
	level := map[string]uint{
		"virt-api": levels.VirtAPI, "virt-controller": levels.VirtController, "virt-handler": levels.VirtHandler,
		"virt-launcher": levels.VirtLauncher, Operator: levels.VirtOperator,
	}[component]
	if level == 0 {
		return Default
	}
	return level
}

// OfVM returns the level of a VM's launcher: what it has (by the labels of its instance, nil when it does not run), and
// what it will have. The instance that has no label began with what the KubeVirt resource said then, which is taken to
// be what it says now.
func OfVM(kv *v1.KubeVirt, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) Level {
	common := Of(kv, "virt-launcher")
	var template map[string]string
	if vm.Spec.Template != nil {
		template = vm.Spec.Template.ObjectMeta.Labels
	}
	next := labelled(template, common)
	out := Level{Name: vm.Name, Level: next}
	if life.Alive(vmi) {
		if out.Level = labelled(vmi.Labels, common); out.Level != next {
			out.AfterRestart = &next
		}
	}
	return out
}

func labelled(labels map[string]string, otherwise uint) uint {
	level, err := launcherlog.Verbosity(labels[Label])
	if err != nil {
		return otherwise
	}
	return level
}

// Change says how to change the levels of the components.
type Change struct {
	// Reset forgets the levels of all before the others are set.
	Reset bool
	// Set are new levels by component. 0 is stored as KubeVirt's virtctl does, and means the default.
	Set map[string]uint
}

// Patch returns the JSON merge patch of the KubeVirt resource that makes the change.
func (c Change) Patch() ([]byte, error) {
	levels := map[string]any{}
	if c.Reset {
		for _, field := range components {
			levels[field] = nil
		}
	}
	for name, level := range c.Set {
		field, ok := components[name]
		if !ok {
			return nil, fmt.Errorf("there is no component %q", name)
		}
		levels[field] = level
	}
	return json.Marshal(map[string]any{"spec": map[string]any{"configuration": map[string]any{
		"developerConfiguration": map[string]any{"logVerbosity": levels},
	}}})
}

// API has the methods of a client that the package calls.
type API interface {
	KubeVirtList(ctx context.Context) (*v1.KubeVirtList, error)
	Patch(ctx context.Context, resource, namespace, name string, kind types.PatchType, patch []byte, dryRun bool,
		into runtime.Object) error
}

// Find returns the one KubeVirt resource.
func Find(ctx context.Context, api API) (*v1.KubeVirt, error) {
	list, err := api.KubeVirtList(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the KubeVirt resource: %w", err)
	}
	switch len(list.Items) {
	case 0:
		return nil, fmt.Errorf("%w: there is no KubeVirt resource", action.ErrNotInstalled)
	case 1:
		return &list.Items[0], nil
	}
	return nil,
		errors.New("invalid installation: more than one KubeVirt resource found; delete all but kubevirt/kubevirt")
}

// Apply changes the levels of the components and returns the KubeVirt resource as it is then.
func Apply(ctx context.Context, api API, kv *v1.KubeVirt, change Change, dryRun bool) (*v1.KubeVirt, error) {
	patch, err := change.Patch()
	if err != nil {
		return nil, err
	}
	out := &v1.KubeVirt{}
	if err := api.Patch(ctx, client.KubeVirts, kv.Namespace, kv.Name, types.MergePatchType, patch, dryRun, out); err !=
		nil {
		return nil, fmt.Errorf("change the KubeVirt resource %s/%s: %w", kv.Namespace, kv.Name, err)
	}
	return out, nil
}

// ApplyVM sets the label of a VM's template, or with nil removes it, and returns the VM as it is then.
func ApplyVM(
	ctx context.Context, api API, namespace, name string, level *uint, dryRun bool,
) (*v1.VirtualMachine, error) {
	var value any
	if level != nil {
		value = strconv.FormatUint(uint64(*level), 10)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{Label: value}},
	}}})
	if err != nil {
		return nil, err
	}
	out := &v1.VirtualMachine{}
	if err := api.Patch(ctx, client.VMs, namespace, name, types.MergePatchType, patch, dryRun, out); err != nil {
		return nil, fmt.Errorf("change VM %s/%s: %w", namespace, name, err)
	}
	return out, nil
}
