package uploader

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

const (
	// collectAt and memoryLimit keep the server small; a compression that looks far back takes more than the limit.
	collectAt   = 25
	memoryLimit = 48 << 20
	processors  = 2
	// component is its name in the log.
	component = names.VirtUpload
)

// NewCommand returns the command `virt-launcher upload`.
func NewCommand() *cobra.Command {
	o := Options{
		Socket: filepath.Join(names.RunDir, names.SocketUpload), Scratch: names.UploadScratchDir,
		Idle: 10 * time.Minute, ConvertLimit: 6 * time.Hour, QEMUImg: "/usr/bin/qemu-img",
		Confined:       []string{"/proc/self/exe", "upload", "confined", "--"},
		TerminationLog: "/dev/termination-log",
	}
	format := ""
	cmd := &cobra.Command{
		Use:   "upload",
		Short: "Take the upload of a disk image to a claim",
		Long: "It takes the bytes of one image at a unix socket to which virt-handler leads, writes the disk to the\n" +
			"claim, and ends: with 0 when the disk is there, with 1 when it is not. virt-controller makes its pod.",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runtime.GOMAXPROCS(processors)
			debug.SetGCPercent(collectAt)
			debug.SetMemoryLimit(memoryLimit)
			o.Request.Format = imageformat.Format(format)
			o.Log = jsonlog.New(os.Stderr, component, slog.LevelInfo)
			return Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Request.ID, "id", "", "the upload's ID")
	f.Int64Var(&o.Request.Size, "size", 0, "how many bytes will be sent")
	f.StringVar(&o.ImageDirectory, "image-directory", "",
		"where the container image is mounted whose disk is taken, instead of bytes that are sent")
	f.StringVar(&o.Image, "image", "", "what that image is called")
	f.StringVar(&o.ImagePath, "image-path", "", "where its disk is; the only file below /disk unless given")
	f.StringVar(&format, "format", "", "what they are; found out unless given")
	f.StringVar(&o.Directory, "directory", "", "where the claim's file system is mounted")
	f.StringVar(&o.Device, "device", "", "the claim's block device, instead")
	f.Int64Var(&o.Capacity, "capacity", 0, "the claim's capacity, bytes")
	f.Float64Var(&o.Overhead, "overhead", 0, "the share of the claim that its file system needs")
	f.DurationVar(&o.Idle, "idle", o.Idle, "give up when no byte comes for so long")
	cmd.AddCommand(&cobra.Command{
		Use:    "confined -- PROGRAM [ARGUMENT...]",
		Short:  "Run a program without network, in limits of processor time and memory",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return Confine(args) },
	})
	return cmd
}
