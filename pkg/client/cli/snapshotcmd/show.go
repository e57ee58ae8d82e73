package snapshotcmd

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// ShowOptions are the options of `virtctl snapshot show`.
type ShowOptions struct {
	Factory *cli.Factory
	Output  *cli.Output
	Name    string
}

// NewCmdShow makes `virtctl snapshot show`.
func NewCmdShow(f *cli.Factory) *cobra.Command {
	o := &ShowOptions{Factory: f, Output: cli.NewOutput(formatWide)}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show what a snapshot has, and what was restored from it",
		Example: cli.Examples(f.Program, `
			virtctl snapshot show before-upgrade
			virtctl snapshot show before-upgrade -o jsonpath='{.status.phase}'`),
		Args:              cli.Args(1, 1, "the name of a snapshot"),
		ValidArgsFunction: completioncmd.Snapshots(f, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Name = bare(args[0]); checkName("snapshot", o.Name) != nil {
				return checkName("snapshot", o.Name)
			}
			if err := o.Output.Validate(); err != nil {
				return err
			}
			return Show(cmd.Context(), o)
		},
	}
	o.Output.AddFlags(cmd)
	return cmd
}

// Show prints the page or the object.
func Show(ctx context.Context, o *ShowOptions) error {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	s, err := snapshot.Get(ctx, c, namespace, o.Name)
	if err != nil {
		return err
	}
	if o.Output.Given() {
		return o.Output.Print(s, o.Factory.IO.Out)
	}
	// Who may read snapshots may not have to read the rest, which the page then lacks.
	content, err := snapshot.Content(ctx, c, s)
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return err
	}
	restores, err := snapshot.RestoresOf(ctx, c, namespace, o.Name)
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	return page(o.Factory.IO.Out, s, content, restores, o.Factory.Now())
}

func page(
	out io.Writer, s *snapshotv1beta1.VirtualMachineSnapshot, content *snapshotv1beta1.VirtualMachineSnapshotContent,
	restores []snapshotv1beta1.VirtualMachineRestore, now time.Time,
) error {
	t := cli.NewTable(out)
	line := func(key, value string) { t.Row(key+":", orNone(value)) }
	line("Name", s.Name)
	line("Namespace", s.Namespace)
	line("VM", s.Spec.Source.Name)
	line("Created", fmt.Sprintf("%s (%s ago)", s.CreationTimestamp.UTC().Format(time.RFC3339),
		age(now, s.CreationTimestamp.Time)))
	line("Phase", snapshot.Phase(s))
	line("Ready", strconv.FormatBool(vmsnapshots.Ready(s)))
	if s.Status != nil && s.Status.CreationTime != nil {
		line("Taken", s.Status.CreationTime.UTC().Format(time.RFC3339))
	}
	if said := snapshot.Trouble(s); said != "" {
		line("Error", strings.Join(strings.Fields(said), " "))
	}
	if waits := snapshot.Progress(s); waits != "" {
		line("Progress", waits)
	}
	if s.Status != nil {
		for _, i := range s.Status.SourceIndications {
			line("Indication", fmt.Sprintf("%s: %s", i.Indication, i.Message))
		}
	}
	in, left := volumes(s)
	if content == nil {
		line("Volumes", strings.Join(in, ", "))
	} else {
		for _, b := range content.Spec.VolumeBackups {
			size := b.PersistentVolumeClaim.Spec.Resources.Requests[corev1.ResourceStorage]
			text := fmt.Sprintf("%s: claim %s, %s", b.VolumeName, b.PersistentVolumeClaim.Name, size.String())
			if b.VolumeSnapshotName != nil {
				text += ", volumesnapshot/" + *b.VolumeSnapshotName
			}
			line("Volume", text)
		}
	}
	line("Left out", strings.Join(left, ", "))
	if named := references(content); named != "" {
		line("By reference", named+", which a restore takes as they are then")
	}
	for i := range restores {
		r := &restores[i]
		line("Restore", fmt.Sprintf("%s to VM %s: %s", r.Name, r.Spec.Target.Name, snapshot.RestoreStage(r)))
	}
	return t.Flush()
}

// references names the objects that the snapshot's VM refers to and of which the snapshot has no copy.
func references(content *snapshotv1beta1.VirtualMachineSnapshotContent) string {
	if content == nil || content.Spec.Source.VirtualMachine == nil {
		return ""
	}
	return strings.Join(clones.Left(&content.Spec.Source.VirtualMachine.Spec), ", ")
}
