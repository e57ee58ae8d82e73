package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/names"
)

// probeDaemon makes libvirtd, at a socket, find out what an emulator can do, and returns its domain capabilities.
type probeDaemon func(ctx context.Context, socket, emulator string) (string, error)

// newCapabilitiesCommand returns the command `virt-launcher capabilities`, which virt-handler runs in this image where
// no guest has ever been (pkg/handler/capabilities). libvirtd is set up as for a guest, so that what it finds holds for
// guests.
func newCapabilitiesCommand(o *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "capabilities",
		Short: "Have libvirt probe QEMU, and print the files it keeps of that",
		Long: "The files, and libvirt's domain capabilities as " + names.DomainCapabilities + ", are printed\n" +
			"as a JSON object from their names to their contents, in base64. Nothing else is on stdout.\n" +
			"virt-handler runs this for the launchers of its node.",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runtime.GOMAXPROCS(processors)
			o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			return printCapabilities(cmd.Context(), *o, probe, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.RunDir, "run-dir", o.RunDir, "where libvirt's state is kept")
	return cmd
}

// printCapabilities runs libvirtd for as long as it probes, and writes its cache to out.
func printCapabilities(ctx context.Context, o Options, probe probeDaemon, out io.Writer) error {
	children := newChildren()
	d := newDaemon(o, children)
	if err := d.configure(); err != nil {
		return err
	}
	domain, err := probeOnce(ctx, d, probe)
	if err != nil {
		return err
	}
	files, err := readCapabilities(o.RunDir)
	if err != nil {
		return err
	}
	files[names.DomainCapabilities] = []byte(domain)
	if err := json.NewEncoder(out).Encode(files); err != nil {
		return fmt.Errorf("print the capabilities: %w", err)
	}
	return nil
}

// probeOnce starts libvirtd, has it probe, and ends it.
func probeOnce(ctx context.Context, d *daemon, probe probeDaemon) (domain string, err error) {
	var running, reaping sync.WaitGroup
	last, stopReaping := context.WithCancel(context.Background())
	defer reaping.Wait()
	defer stopReaping()
	reaping.Go(func() { d.children.reap(last) })
	// When libvirtd dies there is nothing to wait for; a guest's is started again, this one need not be.
	ctx, stop := context.WithCancelCause(ctx)
	defer running.Wait()
	defer stop(nil)
	running.Go(func() {
		err := d.once(ctx)
		if err == nil {
			err = errors.New("exit status 0")
		}
		stop(fmt.Errorf("libvirtd has ended: %w", err))
	})
	err = d.awaitSocket(ctx)
	if err == nil {
		domain, err = probe(ctx, d.socket(), d.options.Emulator)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return domain, err
}

// readCapabilities reads the files that libvirt keeps in the run directory.
func readCapabilities(runDir string) (map[string][]byte, error) {
	dir := filepath.Join(runDir, names.CapabilityCacheDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list libvirt's cache: %w", err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a temporary one
		}
		if err != nil {
			return nil, fmt.Errorf("read libvirt's cache: %w", err)
		}
		files[e.Name()] = data
	}
	if len(files) == 0 {
		return nil, errors.New("libvirt has kept nothing of what it found")
	}
	return files, nil
}
