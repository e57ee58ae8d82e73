// Package clone has a virtual machine cloned, from itself or from a snapshot: the kind of clone.kubevirt.io.
package clone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// Group is where the kind is served.
const Group = "/apis/clone.kubevirt.io/v1beta1"

// ErrNoKind is a cluster without clones.
var ErrNoKind = errors.New("this cluster does not have clones of virtual machines; `virtctl install` brings them")

func errorOf(err error) error {
	if client.Unserved(err) {
		return ErrNoKind
	}
	return err
}

// KeepUsage describes the flag --keep.
var KeepUsage = "`PARTS` of the source's identity that the copy keeps: " + strings.Join(clones.Parts, ", ")

// Options are the options of a clone.
type Options struct {
	// Source is the VM's name, or with FromSnapshot the snapshot's.
	Source       string
	FromSnapshot bool
	// SourceNamespace is that of the source, where it is not the clone's; empty otherwise.
	SourceNamespace string
	// Target is the new VM's name; empty leaves it to the server.
	Target string

	LabelFilters, AnnotationFilters []string
	// TemplateLabelFilters and TemplateAnnotationFilters are those of the VM's template, and so of its instances.
	TemplateLabelFilters, TemplateAnnotationFilters []string
	// MACs are the new VM's addresses by interface; others are made.
	MACs map[string]string
	// Serial is the SMBIOS serial; empty has one made.
	Serial string
	// Patches are JSON patches of the new VM.
	Patches []string
	// Keep are the parts of the source's identity that the new VM keeps, of clones.Parts.
	Keep []string
}

// Trouble returns what is wrong with the parts that are kept, or "" for nothing.
func (o *Options) Trouble() string {
	if len(o.Keep) == 0 {
		return ""
	}
	return clones.KeepTrouble(New("", "", *o))
}

// New returns the clone that the options ask for; it is not created yet.
func New(namespace, name string, o Options) *clonev1beta1.VirtualMachineClone {
	machine := v1.VirtualMachineGroupVersionKind
	source := &corev1.TypedLocalObjectReference{APIGroup: &machine.Group, Kind: machine.Kind, Name: o.Source}
	if o.FromSnapshot {
		group := snapshotv1beta1.SchemeGroupVersion.Group
		source.APIGroup, source.Kind = &group, "VirtualMachineSnapshot"
	}
	out := &clonev1beta1.VirtualMachineClone{
		TypeMeta: metav1.TypeMeta{
			APIVersion: clonev1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineClone",
		},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: clonev1beta1.VirtualMachineCloneSpec{
			Source: source,
			Target: &corev1.TypedLocalObjectReference{
				APIGroup: &machine.Group, Kind: machine.Kind, Name: o.Target,
			},
			LabelFilters: o.LabelFilters, AnnotationFilters: o.AnnotationFilters,
			Template: clonev1beta1.VirtualMachineCloneTemplateFilters{
				LabelFilters: o.TemplateLabelFilters, AnnotationFilters: o.TemplateAnnotationFilters,
			},
			NewMacAddresses: o.MACs, Patches: o.Patches,
		},
	}
	if o.SourceNamespace != "" && o.SourceNamespace != namespace {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, clones.NamespaceAnnotation, o.SourceNamespace)
	}
	if len(o.Keep) > 0 {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, clones.KeepAnnotation, strings.Join(o.Keep, ","))
	}
	if o.Serial != "" {
		out.Spec.NewSMBiosSerial = &o.Serial
	}
	return out
}

// UnknownInterface returns the first interface, by name, that MACs has an address for and the source's VM does not
// have, and those that it has; "" when it has them all. A VM that names none has the one that its guest is given.
func (o *Options) UnknownInterface(of *v1.VirtualMachineInstanceSpec) (name string, have []string) {
	guest := of.DeepCopy()
	surface.Attach(guest)
	for _, i := range guest.Domain.Devices.Interfaces {
		have = append(have, i.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(o.MACs)) {
		if !slices.Contains(have, name) {
			return name, have
		}
	}
	return "", have
}

// Create asks for a clone and returns it as the server has it; it is not done yet.
func Create(ctx context.Context, c *client.Client, clone *clonev1beta1.VirtualMachineClone, dryRun bool) (
	*clonev1beta1.VirtualMachineClone, error,
) {
	out := &clonev1beta1.VirtualMachineClone{}
	if err := c.CreateTyped(ctx, Group, client.Clones, clone, out, dryRun); err != nil {
		return nil, fmt.Errorf("clone %s/%s: %w", clones.SourceNamespace(clone), clone.Spec.Source.Name, errorOf(err))
	}
	return out, nil
}

// Get reads a clone.
func Get(ctx context.Context, c *client.Client, namespace, name string) (*clonev1beta1.VirtualMachineClone, error) {
	out := &clonev1beta1.VirtualMachineClone{}
	path := Group + "/namespaces/" + url.PathEscape(namespace) + "/" + client.Clones + "/" + url.PathEscape(name)
	if err := c.Read(ctx, path, nil, out); err != nil {
		return nil, fmt.Errorf("read clone %s/%s: %w", namespace, name, errorOf(err))
	}
	return out, nil
}

// Stage returns the phase of a clone, and what is wrong with it, in a few words.
func Stage(clone *clonev1beta1.VirtualMachineClone) string {
	stage := cmp.Or(string(clone.Status.Phase), "Pending")
	if said := Trouble(clone); said != "" {
		stage += ": " + said
	}
	return stage
}

// Trouble returns what a clone's conditions say while it is not ready.
func Trouble(clone *clonev1beta1.VirtualMachineClone) string {
	said := ""
	for _, c := range clone.Status.Conditions {
		if c.Type == clonev1beta1.ConditionReady && c.Status == corev1.ConditionTrue {
			return ""
		}
		said = cmp.Or(c.Message, c.Reason, said)
	}
	return said
}

// Done holds when a clone has succeeded; that it failed is an error.
func Done(clone *clonev1beta1.VirtualMachineClone) (bool, error) {
	if clone.Status.Phase == clonev1beta1.Failed {
		return false, fmt.Errorf("clone %s/%s failed: %s", clone.Namespace, clone.Name,
			cmp.Or(Trouble(clone), "no reason is given"))
	}
	return clone.Status.Phase == clonev1beta1.Succeeded, nil
}

// Wait waits until a clone has succeeded, and reports each of its stages.
func Wait(ctx context.Context, c *client.Client, namespace, name string, report func(stage string)) (
	*clonev1beta1.VirtualMachineClone, error,
) {
	source, err := c.Source(clonev1beta1.SchemeGroupVersion, client.Clones, namespace)
	if err != nil {
		return nil, err
	}
	progress := wait.Progress[*clonev1beta1.VirtualMachineClone]{Stage: Stage, Done: Done, Report: report}
	out, err := progress.Wait(ctx, source, "clone", namespace, name)
	return out, errorOf(err)
}
