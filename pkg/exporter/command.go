package exporter

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
)

const (
	// collectAt and memoryLimit keep the server small, whatever the size of the disks: TestMemory.
	collectAt   = 25
	memoryLimit = 48 << 20
	processors  = 2
)

// Add adds a volume of a kind, disk, device or files, that is NAME=PATH.
func (o *Options) Add(of, volume string) error {
	name, path, ok := strings.Cut(volume, "=")
	kind, known := map[string]kind{"disk": disk, "device": device, "files": tree}[of]
	if !ok || !known || name == "" || path == "" {
		return fmt.Errorf("--%s: %q is not a volume: write NAME=PATH", of, volume)
	}
	o.Volumes = append(o.Volumes, Volume{name, path, kind})
	return nil
}

// NewCommand returns the command `virt-exporter serve`.
func NewCommand() *cobra.Command {
	o := Options{
		Socket:  filepath.Join(names.RunDir, names.SocketExport),
		Address: fmt.Sprintf(":%d", names.ExportPort),
		Cert:    filepath.Join(names.ExportCertDir, "tls.crt"), Key: filepath.Join(names.ExportCertDir, "tls.key"),
		Token: filepath.Join(names.ExportTokenDir, names.ExportTokenKey), Stall: 2 * time.Minute,
	}
	var disks, devices, files []string
	created, deadline := "", ""
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the volumes of a VirtualMachineExport",
		Long: "It serves claims over HTTPS to who has the export's token, until the export is over. virt-controller\n" +
			"makes its pod.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runtime.GOMAXPROCS(processors)
			debug.SetGCPercent(collectAt)
			debug.SetMemoryLimit(memoryLimit)
			o.Log = jsonlog.New(os.Stderr, names.VirtExport, slog.LevelInfo)
			var err error
			if o.Deadline, err = time.Parse(time.RFC3339, deadline); err != nil {
				return fmt.Errorf("--deadline: %w", err)
			}
			if created != "" { // else of a virt-controller from before
				if o.Created, err = time.Parse(time.RFC3339, created); err != nil {
					return fmt.Errorf("--created: %w", err)
				}
			}
			for kind, values := range map[string][]string{"disk": disks, "device": devices, "files": files} {
				for _, value := range values {
					if err := o.Add(kind, value); err != nil {
						return err
					}
				}
			}
			return Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "the export's name")
	f.StringVar(&o.Host, "host", "", "the name of the export's Service, which is in the addresses of the manifests")
	f.StringVar(&o.Tag, "tag", "", "what distinguishes the devices' contents, where nobody else writes to them")
	f.StringVar(&o.Manifests, "manifests", "", "the directory with the VM's manifests; none unless given")
	f.StringArrayVar(&disks, "disk", nil, "NAME=DIRECTORY of a claim that holds a disk")
	f.StringArrayVar(&devices, "device", nil, "NAME=DEVICE of a claim that is a disk")
	f.StringArrayVar(&files, "files", nil, "NAME=DIRECTORY of a claim whose files are exported")
	f.StringVar(&created, "created", "", "when the source of the export was made")
	f.StringVar(&deadline, "deadline", "", "when the export is over")
	return cmd
}
