// Package installcmd is `virtctl install` and `virtctl uninstall`.
package installcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	base "github.com/virtkit/virtkit/pkg/client/action"
	action "github.com/virtkit/virtkit/pkg/client/action/install"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/version"
)

// Options of `virtctl install`.
type Options struct {
	Factory  *cli.Factory
	Settings action.Settings
	// Monitoring is auto, always or never.
	Monitoring string
	DryRun     cli.DryRun
	// Instancetypes applies the common instance types and preferences, too.
	Instancetypes bool
	Wait          bool
	Timeout       time.Duration
	Output        *cli.Output
}

// NewCmdInstall makes the command; runF replaces Run in tests.
func NewCmdInstall(f *cli.Factory, runF func(context.Context, *Options) error) *cobra.Command {
	o := &Options{Factory: f, Output: cli.NewOutput()}
	var annotations []string
	o.Settings.Tag = action.TagOf(version.Get().GitVersion)
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install or upgrade virtkit in the cluster",
		Long: `Install or upgrade virtkit in the cluster, in namespace kubevirt.

Needs Kubernetes 1.35 or newer and a cluster administrator's rights. Installing again repairs and
changes nothing that is as it should be; what you configured in the KubeVirt resource stays, and so do the
registry, pull policy, kubelet's directory and pods' annotations of the installation before that no flag
changes (--pod-annotation KEY= takes one away). The manifests are the ones of manifests/ in the source, for
those who prefer 'kubectl apply -k'.

Where the cluster has the Prometheus operator, objects for it are created, too: a ServiceMonitor, alerts, a
dashboard for Grafana, and the right of Prometheus to read the metrics.`,
		Example: cli.Examples(f.Program, `
			virtctl install
			virtctl install --image-registry registry.example.com/virtkit --image-tag v1.2.3
			virtctl install --instancetypes
			virtctl install --dry-run=client > virtkit.yaml`),
		Args: cli.Args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Settings.PodAnnotations, err = cli.Pairs("pod-annotation", annotations); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	o.DryRun.AddFlag(cmd)
	flags.BoolVar(&o.Instancetypes, "instancetypes", false,
		"Also install common instance types (u1.medium, …) and preferences (fedora, …)")
	flags.BoolVar(&o.Wait, "wait", true, "Wait until everything is ready")
	flags.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "The most time to take")
	flags.StringVar(&o.Settings.Registry, "image-registry", "",
		"Registry and path of the images, a `PREFIX` (default ghcr.io/virtkit)")
	flags.StringVar(&o.Settings.Tag, "image-tag", o.Settings.Tag, "`TAG` of the images")
	flags.StringVar(&o.Settings.PullPolicy, "image-pull-policy", "",
		"`POLICY`: IfNotPresent, Always or Never (default IfNotPresent)")
	flags.StringVar(&o.Settings.KubeletDir, "kubelet-dir", "",
		"The kubelet's root `DIRECTORY` on the nodes (default /var/lib/kubelet)")
	flags.StringArrayVar(&annotations, "pod-annotation", nil,
		"Annotation `KEY=VALUE` for the components' pods (can be repeated)")
	flags.StringVar(&o.Monitoring, "monitoring", string(action.MonitoringAuto),
		"`WHEN` to create objects for the Prometheus operator: auto (where it is), always or never")
	o.Output.AddFlags(cmd)
	cli.CompleteFlag(cmd, "image-pull-policy", pullPolicies...)
	cli.CompleteFlag(cmd, "monitoring", monitoring...)
	return cmd
}

var pullPolicies = []string{"IfNotPresent", "Always", "Never"}

var monitoring = []string{
	string(action.MonitoringAuto), string(action.MonitoringAlways),
	string(action.MonitoringNever),
}

func (o *Options) validate() error {
	if !slices.Contains(monitoring, o.Monitoring) {
		return cli.UsageErrorf("--monitoring is %s, not %q", strings.Join(monitoring, ", "), o.Monitoring)
	}
	switch o.Settings.PullPolicy {
	case "", "IfNotPresent", "Always", "Never":
	default:
		return cli.UsageErrorf("--image-pull-policy is %s, not %q", strings.Join(pullPolicies, ", "),
			o.Settings.PullPolicy)
	}
	if o.Instancetypes && !o.Wait && o.DryRun == cli.DryRunNone {
		return cli.UsageErrorf("--instancetypes needs --wait, since virt-api has to be ready to admit them")
	}
	if o.Settings.Tag == "" {
		return cli.UsageErrorf("--image-tag must not be empty")
	}
	if d := o.Settings.KubeletDir; d != "" && !strings.HasPrefix(d, "/") {
		return cli.UsageErrorf("--kubelet-dir is an absolute path on the nodes, not %q", d)
	}
	return o.Output.Validate()
}

// Run installs, or prints what it would.
func Run(ctx context.Context, o *Options) error {
	objects, err := action.Objects(o.Settings)
	if err != nil {
		return err
	}
	var instancetypes []*unstructured.Unstructured
	if o.Instancetypes {
		if instancetypes, err = action.Instancetypes(); err != nil {
			return err
		}
	}
	if o.DryRun == cli.DryRunClient {
		objects = append(objects, instancetypes...)
		if !o.Output.Given() {
			o.Output.Format = "yaml"
		}
		if o.Monitoring == string(action.MonitoringAlways) { // the cluster is not asked
			more, err := action.MonitoringObjects(action.DefaultAccount)
			if err != nil {
				return err
			}
			objects = append(objects, more...)
		}
		return printObjects(o.Output, objects, o.Factory.IO.Out)
	}
	installer, err := newInstaller(o.Factory)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	settings, err := installer.Follow(ctx, o.Settings)
	if err != nil {
		return err
	}
	if objects, err = action.Objects(settings); err != nil {
		return err
	}
	progress := newProgress(o.Factory.IO)
	installer.Progress = progress.step
	results, note, err := o.install(ctx, installer, objects, instancetypes)
	progress.end()
	if err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(o.Factory.IO.ErrOut, "note: "+note)
	}
	if o.Output.Given() {
		after := make([]*unstructured.Unstructured, len(results))
		for k, r := range results {
			after[k] = r.Object
		}
		return printObjects(o.Output, after, o.Factory.IO.Out)
	}
	fmt.Fprintln(o.Factory.IO.Out, o.summary(results))
	return nil
}

// newInstaller returns the installer for the cluster that the flags choose.
func newInstaller(f *cli.Factory) (*action.Installer, error) {
	config, err := f.RESTConfig()
	if err != nil {
		return nil, err
	}
	return action.New(config)
}

func (o *Options) install(
	ctx context.Context, installer *action.Installer, objects, instancetypes []*unstructured.Unstructured,
) (results []action.Result, note string, err error) {
	if err := installer.Check(ctx); err != nil {
		return nil, "", err
	}
	monitoring, note, err := installer.AddMonitoring(ctx, action.Monitoring(o.Monitoring))
	if err != nil {
		return nil, "", err
	}
	dryRun := o.DryRun == cli.DryRunServer
	results, err = installer.Install(ctx, append(objects, monitoring...), dryRun)
	if err != nil {
		if !dryRun {
			o.Factory.IO.Interrupted(err, "a part is applied; `%s install` again goes on", o.Factory.Program)
			if errors.Is(err, base.ErrTimeout) {
				err = fmt.Errorf("%w; `%s install` again goes on", err, o.Factory.Program)
			}
		}
		return results, note, err
	}
	if !dryRun && o.Wait {
		err = installer.Wait(ctx, objects)
		o.Factory.IO.Interrupted(err, "everything is applied, and starts; `%s install` again goes on waiting",
			o.Factory.Program)
		if errors.Is(err, action.ErrNotReady) {
			err = fmt.Errorf("%w. Everything is applied; `%s install` again goes on waiting", err, o.Factory.Program)
		}
	}
	if err != nil || len(instancetypes) == 0 {
		return results, note, err
	}
	more, err := installer.Install(ctx, instancetypes, dryRun)
	return append(results, more...), note, err
}

// summary returns one line that says what was done.
func (o *Options) summary(results []action.Result) string {
	count := map[action.Change]int{}
	for _, r := range results {
		count[r.Change]++
	}
	var parts []string
	for _, change := range []action.Change{action.Created, action.Configured, action.Unchanged, action.Unchecked} {
		if n := count[change]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, change))
		}
	}
	done := "is ready"
	switch {
	case o.DryRun == cli.DryRunServer:
		done = "would be applied"
	case !o.Wait:
		done = "is applied"
	}
	return fmt.Sprintf("virtkit %s %s in namespace %s: %s", o.Settings.Tag, done, names.Namespace,
		strings.Join(parts, ", "))
}

// printObjects writes the objects one after the other where the format allows, else as one list.
func printObjects(output *cli.Output, objects []*unstructured.Unstructured, out io.Writer) error {
	switch output.Format {
	case "yaml", "name":
		for _, object := range objects {
			if err := output.Print(object, out); err != nil {
				return err
			}
		}
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "List"})
	for _, object := range objects {
		list.Items = append(list.Items, *object)
	}
	return output.Print(list, out)
}
