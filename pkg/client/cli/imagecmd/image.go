// Package imagecmd is `virtctl image`: cloud images from a catalogue to claims, of which VMs are made.
package imagecmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/names"
)

// NewCmdImage makes `virtctl image`, which holds a command for each verb.
func NewCmdImage(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "image",
		Short: "Pull cloud images, and list those that are there",
		Long: `Pull cloud images to claims of a namespace, of which "create vm --image" makes the disks of VMs.

The catalogue knows the images of well-known distributions. $XDG_CONFIG_HOME/virtkit/images.yaml adds your own, and the
ConfigMap ` + images.ConfigMap + ` those of a namespace, or in namespace ` + names.Namespace + ` those of a cluster.`,
	})
	cmd.AddCommand(NewCmdList(f), NewCmdShow(f), NewCmdPull(f), NewCmdImport(f), NewCmdAdd(f), NewCmdRemove(f))
	return cmd
}

// ownFile returns the path of the user's own catalogue.
func ownFile(f *cli.Factory) (string, error) {
	if dir := f.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "virtkit", "images.yaml"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no place for a catalogue: %w", err)
	}
	return filepath.Join(home, ".config", "virtkit", "images.yaml"), nil
}

// cacheDir returns the directory to which images are downloaded.
func cacheDir(f *cli.Factory) (string, error) {
	if dir := f.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "virtkit", "images"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no place for downloads: %w", err)
	}
	return filepath.Join(dir, "virtkit", "images"), nil
}

// catalogue returns the images that can be pulled to the namespace to work in. When the cluster does not answer, it
// prints a note and leaves out the cluster's.
func catalogue(ctx context.Context, f *cli.Factory) (*images.Catalogue, error) {
	c, namespace, err := f.Scope()
	if err != nil {
		c, namespace = nil, ""
	}
	all, shared, own := Catalogue(ctx, f, c, namespace)
	if err = errors.Join(err, shared); err != nil {
		fmt.Fprintf(f.IO.ErrOut, "note: a catalogue in the cluster is left out: %v\n", err)
	}
	if own != nil {
		return nil, own
	}
	return all, ctx.Err()
}

// Catalogue returns the images that can be pulled: those of the program, the cluster, the namespace and the user, where
// a later one replaces an earlier one. shared is why the cluster's are left out, and own why there are none. Without a
// client those of the cluster are left out.
func Catalogue(
	ctx context.Context, f *cli.Factory, c *client.Client, namespace string,
) (found *images.Catalogue, shared, own error) {
	path, err := ownFile(f)
	if err != nil {
		return nil, nil, err
	}
	mine, err := images.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	all := []*images.Catalogue{images.Builtin()}
	if c != nil {
		var of []*images.Catalogue
		of, shared = clusterCatalogues(ctx, c, namespace)
		all = append(all, of...)
	}
	return images.Merge(append(all, mine)...), shared, nil
}

func clusterCatalogues(ctx context.Context, c *client.Client, namespace string) ([]*images.Catalogue, error) {
	var out []*images.Catalogue
	var errs []error
	for _, ns := range slices.Compact([]string{names.Namespace, namespace}) {
		found, err := images.FromNamespace(ctx, c, ns)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, found)
	}
	return out, errors.Join(errs...)
}

// Find returns an image of the catalogue, of which the namespace to work in has a part.
func Find(ctx context.Context, f *cli.Factory, ref string) (*images.Image, error) {
	if _, _, err := images.ParseRef(ref); err != nil {
		return nil, cli.UsageErrorf("%s", err)
	}
	all, err := catalogue(ctx, f)
	if err != nil {
		return nil, err
	}
	image, err := all.Find(ref)
	if err != nil {
		return nil, fmt.Errorf("%w; `%s image list --available` has all", err, f.Program)
	}
	return image, nil
}

// references completes the references of images that can be pulled; those of the program and the user, without asking
// the cluster.
func references(f *cli.Factory) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all := []*images.Catalogue{images.Builtin()}
		if path, err := ownFile(f); err == nil {
			if own, err := images.ReadFile(path); err == nil {
				all = append(all, own)
			}
		}
		var out []string
		for _, image := range images.Merge(all...).Images {
			out = append(out, image.Ref()+"\t"+image.Title)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// pulled completes the references of images that the namespace has on claims.
func pulled(f *cli.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, namespace, err := f.Scope()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := images.List(cmd.Context(), c, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, image := range list.Images() {
			if image.Claim != "" {
				out = append(out, image.Image)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
