package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/pkg/waits"
)

func newLoadImageCommand(w *which) *cobra.Command {
	return &cobra.Command{
		Use:   "load-image FILE.tar…",
		Short: "Load image archives into all nodes",
		Long: `Load images from archives (docker save, or an OCI layout as tar) into every node, where pods find them by the names
in the archive with imagePullPolicy IfNotPresent or Never. An archive that is loaded already costs nothing.`,
		Example: `  sudo virt-local load-image bin/images/*.tar`,
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return runLoadImage(cmd.Context(), w, args) },
	}
}

func runLoadImage(ctx context.Context, w *which, paths []string) error {
	in, err := w.loadAsRoot()
	if err != nil {
		return err
	}
	archives, err := openArchives(paths)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, waits.Scaled(10*time.Minute))
	defer cancel()
	loaded, err := cluster.LoadImages(ctx, in, archives)
	for _, l := range loaded {
		what := "is there already"
		if l.Imported {
			what = "loaded"
		}
		fmt.Fprintf(os.Stderr, "%s: %s %s\n", l.Node, strings.Join(l.Images, ", "), what)
	}
	return err
}
