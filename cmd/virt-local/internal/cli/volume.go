package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/pkg/waits"
)

func newVolumeCommand(w *which) *cobra.Command {
	c := &cobra.Command{
		Use:   "volume",
		Short: "Remove data that no volume of the cluster is for",
		Long: `Remove data that no PersistentVolume and no VolumeSnapshotContent is for. Nothing removes it by itself: the object may
be missing since etcd was restored. status lists it.`,
	}
	c.AddCommand(&cobra.Command{
		Use: "remove NAME…", Short: "Remove kept data that status lists, for good",
		Long: "Remove kept data that status lists, for good: all that is named, or nothing if a name is not in " +
			"the list.",
		Example: "  sudo virt-local volume remove pvc-2f1e…",
		Args:    cobra.MinimumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return w.keptNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runVolumeRemove(cmd.Context(), w, args) },
	})
	return c
}

func runVolumeRemove(ctx context.Context, w *which, names []string) error {
	in, err := w.loadAsRoot()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, waits.Scaled(time.Minute))
	defer cancel()
	if err := cluster.RemoveVolumes(ctx, in, names); err != nil {
		return err
	}
	for _, name := range names {
		fmt.Fprintf(os.Stderr, "%s is removed.\n", name)
	}
	return nil
}

// keptNames returns the volumes whose data status lists as kept, for completion.
func (w *which) keptNames(ctx context.Context) []string {
	in, err := w.load()
	if err != nil {
		return nil
	}
	s, err := cluster.ReadStatus(ctx, in)
	if err != nil {
		return nil
	}
	var names []string
	for _, data := range s.Kept {
		names = append(names, data.Volume)
	}
	return names
}
