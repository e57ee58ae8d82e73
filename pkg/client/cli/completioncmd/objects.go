package completioncmd

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/sets"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/vmtemplate"
	"github.com/virtkit/virtkit/pkg/client/action/why/gather"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	instancetypes = "/apis/instancetype.kubevirt.io/v1beta1"
	kubevirt      = "/apis/kubevirt.io/v1"
	core          = "/api/v1"
)

// Instancetypes completes the cluster's instance types, and the namespace's with their kind.
func Instancetypes(f *cli.Factory) cobra.CompletionFunc {
	return names(f, -1, scoped("virtualmachineinstancetype", "virtualmachineclusterinstancetypes"))
}

// Preferences completes the cluster's preferences, and the namespace's with their kind.
func Preferences(f *cli.Factory) cobra.CompletionFunc {
	return names(f, -1, scoped("virtualmachinepreference", "virtualmachineclusterpreferences"))
}

func scoped(kind, clusterResource string) lister {
	return func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		out, err := c.Names(ctx, instancetypes, "", clusterResource)
		if err != nil {
			return nil, err
		}
		own, err := c.Names(ctx, instancetypes, ns, kind+"s")
		if err != nil {
			return nil, err
		}
		for _, name := range own {
			out = append(out, kind+"/"+name)
		}
		return out, nil
	}
}

// Claims completes the names of PersistentVolumeClaims.
func Claims(f *cli.Factory) cobra.CompletionFunc {
	return names(f, -1, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		return c.Names(ctx, core, ns, "persistentvolumeclaims")
	})
}

// Images completes the images of the namespace, and of another one after its name and a slash.
func Images(f *cli.Factory) cobra.CompletionFunc {
	list := func(from string) lister {
		return func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
			if from != "" {
				ns = from
			}
			found, err := images.List(ctx, c, ns)
			if err != nil {
				return nil, err
			}
			var out []string
			for _, image := range found.Images() {
				out = append(out, image.Image)
			}
			return out, nil
		}
	}
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		out, directive := names(f, -1, list(""))(cmd, nil, toComplete)
		from, _, typed := strings.Cut(toComplete, "/")
		if !typed || len(out) > 0 || len(validation.IsDNS1123Label(from)) > 0 {
			return out, directive
		}
		return Prefixed(from+"/", names(f, -1, list(from)))(cmd, nil, toComplete)
	}
}

// Snapshots completes the names of VirtualMachineSnapshots, up to most of them on one line (-1 is no limit).
func Snapshots(f *cli.Factory, most int) cobra.CompletionFunc {
	return names(f, most, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		return c.Names(ctx, snapshot.Group, ns, client.Snapshots)
	})
}

// Exports completes the names of VirtualMachineExports, one of them on a line.
func Exports(f *cli.Factory) cobra.CompletionFunc {
	return names(f, 1, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		return c.Names(ctx, exports.Path, ns, exports.Resource)
	})
}

// Operations completes the names of snapshots, restores or clones: kind is package gather's word for them.
func Operations(f *cli.Factory, kind string) cobra.CompletionFunc {
	of := map[string][2]string{
		gather.Snapshot: {snapshot.Group, client.Snapshots}, gather.Restore: {snapshot.Group, client.Restores},
		gather.Clone: {clone.Group, client.Clones},
	}[kind]
	return names(f, -1, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		return c.Names(ctx, of[0], ns, of[1])
	})
}

// Prefixed completes words that begin with a kind and a slash by names that others complete.
func Prefixed(prefix string, others cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		found, directive := others(cmd, nil, strings.TrimPrefix(toComplete, prefix))
		var out []string
		for _, candidate := range found {
			if name, _, _ := strings.Cut(candidate, "\t"); !slices.Contains(args, prefix+name) {
				out = append(out, prefix+candidate)
			}
		}
		return out, directive
	}
}

// Pods completes the pods of the namespace, and of another one after its name and a slash.
func Pods(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		of, _, typed := strings.Cut(toComplete, "/")
		list := func(ctx context.Context, c *client.Client, namespace string) ([]string, error) {
			if typed {
				namespace = of
			}
			return c.Names(ctx, core, namespace, "pods")
		}
		if typed {
			return Prefixed(of+"/", names(f, -1, list))(cmd, nil, toComplete)
		}
		return names(f, -1, list)(cmd, nil, toComplete)
	}
}

// ReplicaSets completes the names of VirtualMachineInstanceReplicaSets.
func ReplicaSets(f *cli.Factory) cobra.CompletionFunc {
	return names(f, -1, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		return c.Names(ctx, kubevirt, ns, client.ReplicaSets)
	})
}

// Templates completes the VirtualMachineTemplates of the namespace.
func Templates(f *cli.Factory) cobra.CompletionFunc {
	return names(f, 1, func(ctx context.Context, c *client.Client, namespace string) ([]string, error) {
		return vmtemplate.Names(ctx, c, namespace)
	})
}

// OpenShiftTemplates completes the Templates of the namespace.
func OpenShiftTemplates(f *cli.Factory) cobra.CompletionFunc {
	return names(f, 1, func(ctx context.Context, c *client.Client, namespace string) ([]string, error) {
		return vmtemplate.NamesOpenShift(ctx, c, namespace)
	})
}

// Flag completes a flag's values.
func Flag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // no such flag, or registered twice: a programming error
	}
}

// Sets completes pools and replica sets with their kind, most of them.
func Sets(f *cli.Factory, most int) cobra.CompletionFunc {
	return names(f, most, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		var out []string
		for _, kind := range []sets.Kind{sets.Pool, sets.ReplicaSet} {
			found, err := c.Names(ctx, kind.Group, ns, kind.Resource)
			if err != nil {
				return nil, err
			}
			for _, name := range found {
				out = append(out, kind.Short+"/"+name)
			}
		}
		return out, nil
	})
}

// SetsOf completes the names of one kind of them, after a word for the kind.
func SetsOf(f *cli.Factory, kind sets.Kind) cobra.CompletionFunc {
	return names(f, -1, func(ctx context.Context, c *client.Client, ns string) ([]string, error) {
		return c.Names(ctx, kind.Group, ns, kind.Resource)
	})
}
