// Package install puts virtkit on a cluster and takes it off again, with no terminal: it is what
// `virtctl install` and `virtctl uninstall` do.
//
// Objects gives what to install, from package manifests, for some Settings. Installer.Install applies it
// by server-side apply as field manager "virtctl", so that installing again changes nothing and
// installing a newer version upgrades; fields that others keep (certificates, the KubeVirt resource's
// configuration) are not ours and stay. Installer.Wait ends when everything works, or says what does not
// and why. Uninstall goes the other way, admission first so that nothing is in its own way.
package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// FieldManager owns the fields that we set.
const FieldManager = "virtctl"

// partOf marks what is ours.
const partOfLabel, partOf = "app.kubernetes.io/part-of", "virtkit"

// minimumVersion has image volumes on by default, which is how container disks work.
var minimumVersion = utilversion.MustParseGeneric("1.35.0")

// ErrUnsuitable is a cluster that virtkit cannot be installed on.
var ErrUnsuitable = errors.New("this cluster cannot run virtkit")

// ErrNotReady is an installation that did not become ready in time; it wraps action.ErrTimeout.
var ErrNotReady = fmt.Errorf("%w waiting for virtkit to become ready", action.ErrTimeout)

// Change is the result of applying an object.
type Change string

const (
	Created    Change = "created"
	Configured Change = "configured"
	Unchanged  Change = "unchanged"
	// Unchecked is a dry run's answer for an object that the server cannot judge before others exist.
	Unchecked Change = "not checked"
)

// Result is one applied object, as the server has it now (or would, in a dry run).
type Result struct {
	Object *unstructured.Unstructured
	Change Change
}

// Installer works on one cluster. Client and Config must be of the same.
type Installer struct {
	Client dynamic.Interface
	Config *rest.Config
	// Progress, which may be nil, is called with each step that takes time, in words.
	Progress func(string)
	// Interval is the time between two looks at the cluster while waiting.
	Interval time.Duration
}

// New returns an Installer for the cluster that config reaches; it does not dial.
func New(config *rest.Config) (*Installer, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Installer{Client: client, Config: config, Interval: 200 * time.Millisecond}, nil
}

func (i *Installer) progress(format string, args ...any) {
	if i.Progress != nil {
		i.Progress(fmt.Sprintf(format, args...))
	}
}

// Check refuses a cluster that is too old, or where KubeVirt is installed already; the error wraps
// ErrUnsuitable.
func (i *Installer) Check(ctx context.Context) error {
	version, err := i.serverVersion(ctx)
	if err != nil {
		return err
	}
	if err := checkVersion(version); err != nil {
		return err
	}
	return i.checkOurs(ctx)
}

// checkOurs refuses a cluster whose KubeVirt is not virtkit.
func (i *Installer) checkOurs(ctx context.Context) error {
	const vms = "virtualmachines.kubevirt.io"
	crd, err := i.Client.Resource(definitions).Get(ctx, vms, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for an earlier installation: %w", err)
	case crd.GetLabels()[partOfLabel] != partOf:
		return fmt.Errorf("%w: it has another KubeVirt, whose CustomResourceDefinition %s is not virtkit's; remove "+
			"that first", ErrUnsuitable, vms)
	}
	return nil
}

// serverVersion returns the cluster's Kubernetes version, as in "v1.37.1".
func (i *Installer) serverVersion(ctx context.Context) (string, error) {
	raw, err := i.get(ctx, "/version")
	if err != nil {
		return "", err
	}
	return parseVersion(raw)
}

// get reads what the API server says at a path.
func (i *Installer) get(ctx context.Context, path ...string) ([]byte, error) {
	config := rest.CopyConfig(i.Config)
	config.GroupVersion = &metav1.SchemeGroupVersion
	config.NegotiatedSerializer = noCodec
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return client.Get().AbsPath(path...).DoRaw(ctx)
}

func checkVersion(version string) error {
	v, err := utilversion.ParseGeneric(version)
	if err != nil {
		return fmt.Errorf("%w: its version %q cannot be understood: %v", ErrUnsuitable, version, err)
	}
	if v.WithPreRelease("").LessThan(minimumVersion) {
		return fmt.Errorf("%w: it runs Kubernetes %s; virtkit needs 1.35 or newer, since container disks are image "+
			"volumes", ErrUnsuitable, version)
	}
	return nil
}

// Install applies the objects in their order. With dryRun the server does everything but store. The
// results are of the objects that were applied, also when there is an error. It is action.ErrTimeout when the context's
// deadline comes after some of them.
func (i *Installer) Install(ctx context.Context, objects []*unstructured.Unstructured, dryRun bool) ([]Result, error) {
	results, err := i.applyAll(ctx, objects, dryRun)
	if err != nil && len(results) > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		// The server has answered before: nothing but the time is in the way.
		err = fmt.Errorf("%w after %d of %d objects", action.ErrTimeout, len(results), len(objects))
	}
	return results, err
}

func (i *Installer) applyAll(
	ctx context.Context, objects []*unstructured.Unstructured, dryRun bool,
) ([]Result, error) {
	var results []Result
	i.progress("Applying %d objects", len(objects))
	established := dryRun
	for _, o := range objects {
		if !established && o.GetKind() != "CustomResourceDefinition" {
			if err := i.waitEstablished(ctx, results); err != nil {
				return results, err
			}
			established = true
		}
		r, err := i.apply(ctx, o, dryRun)
		if err != nil {
			return results, fmt.Errorf("apply %s: %w", Name(o), err)
		}
		results = append(results, r)
	}
	return results, nil
}

func (i *Installer) apply(ctx context.Context, o *unstructured.Unstructured, dryRun bool) (Result, error) {
	client, err := at(i.Client, o)
	if err != nil {
		return Result{}, err
	}
	before, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		before = nil
	case err != nil:
		return Result{}, err
	case o.GetKind() == "KubeVirt":
		// The administrator's. Writing it would also need virt-api's admission, which a repair may lack.
		return Result{Object: before, Change: Unchanged}, nil
	}
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	after, err := client.Apply(ctx, o.GetName(), o, options)
	if dryRun && apierrors.IsNotFound(err) {
		return Result{Object: o, Change: Unchecked}, nil
	}
	if err != nil {
		return Result{}, err
	}
	change := Configured
	switch {
	case before == nil:
		change = Created
	case dryRun && sameContent(before, after), !dryRun && before.GetResourceVersion() == after.GetResourceVersion():
		change = Unchanged
	}
	return Result{Object: after, Change: change}, nil
}

// sameContent compares what a user sees of two states of an object. A dry run does not count up the resource
// version, which is right otherwise.
func sameContent(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, o := range []*unstructured.Unstructured{a, b} {
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		o.SetGeneration(0)
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

// waitEstablished waits until the applied definitions are served.
func (i *Installer) waitEstablished(ctx context.Context, applied []Result) error {
	for _, r := range applied {
		name := r.Object.GetName()
		err := i.poll(ctx, func(ctx context.Context) (bool, error) {
			crd, err := i.Client.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if c := condition(crd, "NamesAccepted"); c.status == "False" {
				return false, fmt.Errorf("the cluster does not accept the names of %s: %s", name, c.message)
			}
			return condition(crd, "Established").status == "True", nil
		})
		if err != nil {
			return fmt.Errorf("wait until %s is served: %w", name, err)
		}
	}
	return nil
}

// poll calls done until it is, or fails, or the context ends.
func (i *Installer) poll(ctx context.Context, done func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(i.Interval)
	defer ticker.Stop()
	for {
		ok, err := done(ctx)
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func lower(s string) string { return strings.ToLower(s) }
