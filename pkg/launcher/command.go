package launcher

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
)

// The launcher's own memory counts in every VM, so it trades processor time for it: it does little.
const (
	collectAt   = 25
	memoryLimit = 24 << 20
	processors  = 2
)

// normal is the verbosity of KubeVirt at which the launcher logs what matters, and no more.
const normal = 2

// NewCommand returns the command `virt-launcher`.
func NewCommand() *cobra.Command {
	o := PodOptions()
	verbosity := uint(normal)
	o.Connect = connect
	cmd := &cobra.Command{
		Use:   "virt-launcher",
		Short: "Run one virtual machine in its pod",
		Long: "virt-launcher is the first process of a VM's pod. It starts libvirtd, waits for virt-handler to\n" +
			"hand over the VMI, and ends when the guest has ended: with 0 after a shutdown, with 1 after a crash.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runtime.GOMAXPROCS(processors)
			debug.SetGCPercent(collectAt)
			debug.SetMemoryLimit(memoryLimit)
			level := slog.LevelInfo
			if verbosity > normal {
				level = slog.LevelDebug
			}
			o.Log = jsonlog.New(os.Stderr, names.VirtLauncher, level)
			return Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "name of the VirtualMachineInstance")
	f.StringVar(&o.Namespace, "namespace", "", "its namespace")
	f.StringVar(&o.UID, "uid", "", "its UID")
	f.StringVar(&o.Node, "node", "", "name of the node, for a guest's metrics")
	f.DurationVar(&o.GracePeriod, "grace-period", o.GracePeriod,
		"how long the guest may take to shut down after SIGTERM")
	f.DurationVar(&o.FenceAfter, "fence-after", 0,
		"end the guest when the cluster has not heard of the node for so long; 0 is never")
	f.BoolVar(&o.MigrationTarget, "migration-target", o.MigrationTarget,
		"wait for a guest that runs in another launcher; never start it")
	f.StringVar(&o.RunDir, "run-dir", o.RunDir, "where sockets, logs and libvirt's state are kept")
	f.StringVar(&o.Disks.Disks, "disks-dir", o.Disks.Disks,
		"where overlays, empty disks and cloud-init images are kept")
	f.StringVar(&o.Disks.ContainerDisks, "container-disks-dir", o.Disks.ContainerDisks,
		"where container disks are mounted")
	f.StringVar(&o.Disks.Claims, "claims-dir", o.Disks.Claims, "where claims with a file system are mounted")
	f.StringVar(&o.Disks.BlockDevices, "block-devices-dir", o.Disks.BlockDevices, "where claims that are devices are")
	f.StringVar(&o.Disks.Secrets, "secrets-dir", o.Disks.Secrets, "where cloud-init's secrets are mounted")
	f.StringVar(&o.SMBIOS.Manufacturer, "smbios-manufacturer", "",
		"manufacturer of the machine in its SMBIOS table; so are the others of smbios")
	f.StringVar(&o.SMBIOS.Product, "smbios-product", "", "product")
	f.StringVar(&o.SMBIOS.Version, "smbios-version", "", "version")
	f.StringVar(&o.SMBIOS.Sku, "smbios-sku", "", "stock keeping unit")
	f.StringVar(&o.SMBIOS.Family, "smbios-family", "", "family")
	f.UintVar(&o.Balloon.Period, "balloon-period", o.Balloon.Period,
		"how often the guest reports its memory statistics, in seconds; 0 is never")
	f.BoolVar(&o.Balloon.KeepFreePages, "keep-free-pages", o.Balloon.KeepFreePages,
		"the guest does not give back memory that it does not use")
	f.StringVar(&o.TerminationLog, "termination-log", o.TerminationLog, "file for the reason of the end")
	f.StringVar(&o.LogFilters, "libvirt-log-filters", "",
		"libvirt's log filters, for debugging: LEVEL:NAME with spaces between; 1:* can show the domain and all that "+
			"QEMU is asked")
	f.UintVarP(&verbosity, "v", "v", verbosity, "log level: 2 what matters, more also what virt-handler asks and "+
		"what the domain is")
	for _, required := range []string{"name", "namespace"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(fmt.Sprintf("flag %s: %v", required, err))
		}
	}
	cmd.AddCommand(newProbeCommand(), newConsoleLogCommand(), newCapabilitiesCommand(new(PodOptions())))
	return cmd
}
