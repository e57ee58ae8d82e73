package backupcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/client/action/foreign"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// ImportOptions are the options of `virtctl import`.
type ImportOptions struct {
	Factory     *cli.Factory
	Output      *cli.Output
	DryRun      cli.DryRun
	Wish        foreign.Wish
	Networks    []string
	Memory      string
	Quiet       bool
	WaitSeconds uint

	file string
	// given are the flags that were given of those for files of other hypervisors.
	given []string
}

var (
	accessModes = []string{
		string(corev1.ReadWriteOnce), string(corev1.ReadWriteMany), string(corev1.ReadWriteOncePod),
	}
	diskBuses = []string{"virtio", "scsi", "sata", "usb"}
	firmwares = []string{foreign.FirmwareBIOS, foreign.FirmwareEFI}
	// hardware are the flags for files of other hypervisors.
	hardware = []string{"network", "disk-bus", "firmware", "cpu", "memory"}
)

// NewCmdImport makes `virtctl import`.
func NewCmdImport(f *cli.Factory) *cobra.Command {
	o := &ImportOptions{Factory: f, Output: cli.NewOutput()}
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a virtual machine of a file: an export, OVA, libvirt domain, Proxmox backup or disk image",
		Long: `Make a virtual machine, with its disks, of a file, on any cluster with virtkit. FILE is one of:

  what "virtctl export" has written
  an OVA, or an OVF or the directory with one, with its disks: of VMware, VirtualBox, virt-v2v
  the XML of a libvirt domain, whose disks are files here: what "virsh dumpxml --inactive" prints
  a VM of Proxmox VE: an archive of vzdump (.vma), what "vma extract" makes of it, or its .conf with its disks
  a backup of a VM of Incus or LXD: what "incus export --compression=none" writes
  a disk image: vmdk, vhdx, vhd, qcow2; raw with the suffix .img or .raw; .iso

The file is read and verified before anything is made. Each disk gets a claim NAME-VOLUME, to which it is uploaded
through the API server, and then the VM is made. It is stopped unless --start is given, and has MAC addresses, a
firmware UUID and a serial number of its own unless --keep-identity is given. When the import fails or is interrupted,
the claims are deleted; when it was killed, the same command goes on.

The hardware of other hypervisors is turned into that of a VM; what has no counterpart is said, by name. The first
network interface is in the pod's network, and others are where --network says.

With --dry-run=client the claims and the VM are printed; the disks are not verified.`,
		Example: cli.Examples(f.Program, `
			virtctl import demo.tar
			virtctl import demo.tar --name demo-copy -n shop --storage-class fast --start
			virtctl import appliance.ova --network "VM Network"=pod --network Storage=shop/storage
			virtctl import appliance.ova --dry-run=client -o yaml
			virtctl import vzdump-qemu-100.vma --network vmbr0=pod
			virtctl import disk.vmdk --name web --cpu 2 --memory 4Gi --firmware efi`),
		Args: cli.Args(1, 1, "the file"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			for _, name := range hardware {
				if cmd.Flags().Changed(name) {
					o.given = append(o.given, "--"+name)
				}
			}
			if err := o.validate(); err != nil {
				return err
			}
			return Import(cmd.Context(), o)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *ImportOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.Wish.Name, "name", "", "The VM's `NAME`; the one that it had unless given")
	flags.StringVar(&o.Wish.StorageClass, "storage-class", "",
		"Storage class of the claims; the cluster's default unless given")
	flags.StringVar(&o.Wish.AccessMode, "access-mode", "",
		"Access mode of the claims; the modes that they had unless given, or ReadWriteOnce")
	flags.StringArrayVar(&o.Networks, "network", nil,
		"`[SOURCE=]NETWORK` of the interfaces in SOURCE, or of all others: pod, none, or a NetworkAttachmentDefinition")
	flags.StringVar(&o.Wish.DiskBus, "disk-bus", "",
		"`BUS` of all disks: virtio, for a guest that has its driver, scsi, sata or usb; the nearest to theirs unless "+
			"given")
	flags.StringVar(&o.Wish.Firmware, "firmware", "", "`FIRMWARE`, bios or efi; that of the file unless given, or bios")
	flags.Var((*cli.Count)(&o.Wish.CPUs), "cpu", "`NUMBER` of CPUs; those of the file unless given, or 1")
	flags.StringVar(&o.Memory, "memory", "", "Memory, a `QUANTITY` such as 4Gi; that of the file unless given, or 2Gi")
	flags.BoolVar(&o.Wish.KeepIdentity, "keep-identity", false,
		"Keep MAC addresses, firmware UUID and serial number: for a VM that is not there any more")
	flags.BoolVar(&o.Wish.Start, "start", false, "Start the VM")
	flags.UintVar(&o.WaitSeconds, "wait-secs", 300, "Seconds to wait while an upload does not go on")
	flags.BoolVarP(&o.Quiet, "quiet", "q", false, "Show no progress")
	cli.CompleteFlag(cmd, "access-mode", accessModes...)
	cli.CompleteFlag(cmd, "disk-bus", diskBuses...)
	cli.CompleteFlag(cmd, "firmware", firmwares...)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
}

func (o *ImportOptions) validate() error {
	if problems := content.IsDNS1123Subdomain(o.Wish.Name); o.Wish.Name != "" && len(problems) > 0 {
		return cli.UsageErrorf("--name: %q is not a name: %s", o.Wish.Name, strings.Join(problems, "; "))
	}
	for _, choice := range []struct {
		flag, value string
		of          []string
	}{
		{"access-mode", o.Wish.AccessMode, accessModes},
		{"disk-bus", o.Wish.DiskBus, diskBuses},
		{"firmware", o.Wish.Firmware, firmwares},
	} {
		if choice.value != "" && !slices.Contains(choice.of, choice.value) {
			return cli.UsageErrorf("--%s: %q is not one of %s", choice.flag, choice.value,
				strings.Join(choice.of, ", "))
		}
	}
	if slices.Contains(o.given, "--cpu") && o.Wish.CPUs == 0 {
		return cli.UsageErrorf("--cpu: must be at least 1")
	}
	if o.Memory != "" {
		memory, err := resource.ParseQuantity(o.Memory)
		if err != nil || memory.CmpInt64(1<<20) < 0 {
			return cli.UsageErrorf("--memory: %q is not a size of a guest; write one such as 4Gi", o.Memory)
		}
		o.Wish.Memory = &memory
	}
	if err := o.parseNetworks(); err != nil {
		return err
	}
	return o.Output.Validate()
}

// parseNetworks reads --network.
func (o *ImportOptions) parseNetworks() error {
	o.Wish.Networks = map[string]string{}
	for _, text := range o.Networks {
		source, to, cut := "", text, false
		if at := strings.LastIndex(text, "="); at >= 0 {
			source, to, cut = text[:at], text[at+1:], true
		}
		if cut && source == "" {
			return cli.UsageErrorf("--network %s: which network of the file? write SOURCE=NETWORK, or NETWORK for all",
				text)
		}
		if _, has := o.Wish.Networks[source]; has {
			return cli.UsageErrorf("--network %s: that is said twice", text)
		}
		namespace, name, cut := strings.Cut(to, "/")
		if !cut {
			namespace, name = "default", to
		}
		if len(content.IsDNS1123Label(namespace)) > 0 || len(content.IsDNS1123Subdomain(name)) > 0 {
			return cli.UsageErrorf("--network %s: %q is not %s, %s, or [NAMESPACE/]NAME of a "+
				"NetworkAttachmentDefinition", text, to, foreign.NetworkPod, foreign.NetworkNone)
		}
		o.Wish.Networks[source] = to
	}
	return nil
}

// made is what a file becomes.
type made struct {
	*backup.Made
	// verify reads the disks, payloads are they once they are read, and report is of the import. absent begins what is
	// said of what the VM has not, and notes are of the file.
	verify   func(ctx context.Context, show func(name string, done, total int64)) error
	payloads func() []backup.Payload
	report   func(took time.Duration) *backup.Report
	absent   string
	notes    []string
	close    func() error
}

// open opens the file, which must be a regular one, for it is read twice, or a directory with an OVF.
func (o *ImportOptions) open() (*made, error) {
	unreadable := func(err error) error {
		return &cli.ExitError{Code: cli.ExitUsage, Err: errors.New(cli.WhyUnreadable(o.file, err))}
	}
	info, err := os.Stat(o.file)
	if err != nil {
		return nil, unreadable(err)
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, cli.UsageErrorf("%s is not a regular file; name one that `%s export` has written, an OVA, an OVF, "+
			"the XML of a libvirt domain, or a disk image", o.file, o.Factory.Program)
	}
	if info.IsDir() {
		return o.foreign()
	}
	in, err := os.Open(o.file)
	if err != nil {
		return nil, unreadable(err)
	}
	head := make([]byte, len(beginning))
	if _, err := in.ReadAt(head, 0); err != nil || !bytes.Equal(head, []byte(beginning)) {
		return o.another(in)
	}
	out, err := o.backup(in, info.Size())
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return out, nil
}

// beginning is how a file begins that export has written: the name of its first member.
const beginning = "index.json\x00"

// another opens a file that is not of export.
func (o *ImportOptions) another(in *os.File) (*made, error) {
	if err := in.Close(); err != nil {
		return nil, err
	}
	return o.foreign()
}

// backup opens a file that export has written.
func (o *ImportOptions) backup(in *os.File, size int64) (*made, error) {
	if len(o.given) > 0 {
		return nil, cli.UsageErrorf("%s has a VM that `%s export` has written, with its own hardware; %s is for files "+
			"of other hypervisors", o.file, o.Factory.Program, strings.Join(o.given, ", "))
	}
	file, err := backup.Open(in, size)
	if err != nil {
		return nil, err
	}
	vm, err := file.Make(o.Wish.Wish)
	if err != nil {
		return nil, err
	}
	return &made{
		Made: vm, verify: file.Verify, payloads: file.Payloads, absent: "not in the file", close: in.Close,
		report: func(took time.Duration) *backup.Report {
			return backup.NewReport(o.file, size, &file.Index, vm, took)
		},
	}, nil
}

// foreign opens a file of another hypervisor.
func (o *ImportOptions) foreign() (*made, error) {
	file, err := foreign.Open(o.file)
	if err != nil {
		return nil, err
	}
	vm, err := file.Make(o.Wish)
	if err != nil {
		var wish *foreign.WishError
		if errors.As(err, &wish) {
			err = cli.UsageErrorf("%s: %s", o.file, wish.Error())
		}
		return nil, errors.Join(err, file.Close())
	}
	return &made{
		Made: vm, verify: file.Verify, absent: "not as in the file", notes: file.Notes, close: file.Close,
		payloads: func() []backup.Payload { return file.Payloads(vm) },
		report: func(took time.Duration) *backup.Report {
			return file.NewReport(o.file, vm, took)
		},
	}, nil
}

// Import makes the VM.
func Import(ctx context.Context, o *ImportOptions) (err error) {
	var homeless error
	o.Wish.Namespace, homeless = o.Factory.Namespace()
	if o.DryRun == cli.DryRunClient && clientcmd.IsEmptyConfig(homeless) {
		homeless = nil // what is printed names no namespace
	}
	file, err := o.open()
	if err != nil {
		var exit *cli.ExitError
		if errors.As(err, &exit) {
			return err
		}
		return fmt.Errorf("%s: %w", o.file, err)
	}
	defer func() { err = errors.Join(err, file.close()) }()
	if homeless != nil {
		return homeless
	}
	shown := newProgress(o.Factory, o.Quiet)
	defer shown.end()
	for _, note := range file.notes {
		shown.note(note)
	}
	began := o.Factory.Now()
	if o.DryRun != cli.DryRunClient {
		if err := o.run(ctx, file, shown); err != nil {
			return err
		}
	}
	shown.absent(file.absent, file.NotIncluded, file.Needs)
	if o.DryRun != cli.DryRunNone {
		shown.note("the disks in the file were not read, nor their checksums verified")
	}
	switch {
	case o.DryRun == cli.DryRunClient:
		return o.print(file.Made)
	case o.Output.Given():
		return o.Output.Print(file.report(o.Factory.Now().Sub(began)), o.Factory.IO.Out)
	}
	for _, claim := range file.Claims {
		if err := o.DryRun.Created(o.Factory.IO.Out, "persistentvolumeclaim", claim.Name); err != nil {
			return err
		}
	}
	return o.DryRun.Created(o.Factory.IO.Out, "virtualmachine.kubevirt.io", file.VM.Name)
}

// run verifies the file and makes what it becomes.
func (o *ImportOptions) run(ctx context.Context, file *made, shown *progress) error {
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	if err := o.Factory.CheckStorageClass(ctx, c, o.Wish.StorageClass); err != nil {
		return err
	}
	if o.DryRun == cli.DryRunNone {
		if err := file.verify(ctx, shown.show); err != nil {
			return fmt.Errorf("%s: %w", o.file, err)
		}
	}
	err = backup.Import(ctx, c, file.payloads(), file.Made, backup.ImportOptions{
		DryRun: o.DryRun == cli.DryRunServer, Patience: time.Duration(o.WaitSeconds) * time.Second,
		Show: shown.show, Note: shown.note,
	})
	shown.end()
	if err != nil {
		return fmt.Errorf("import %s: %w", o.file, err)
	}
	return nil
}

// print prints the claims and the VM, as a list that kubectl takes.
func (o *ImportOptions) print(made *backup.Made) error {
	var objects []runtime.Object
	for _, claim := range made.Claims {
		objects = append(objects, claim)
	}
	if !o.Output.Given() {
		o.Output.Format = "yaml"
	}
	return o.Output.PrintAll(append(objects, made.VM), false, o.Factory.IO.Out)
}
