package launcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/launcherlog"
)

// daemon is the pod's own libvirtd, in session mode: without privileges, everything it writes below the
// run directory. It is started with the launcher, before there is anything to run: measured, neither
// its start nor a connection makes libvirt probe QEMU, only the first domain does, so virt-handler
// has until Start to put the cache of capabilities in place.
type daemon struct {
	options  Options
	children *children
	log      *slog.Logger
	// stderr is the file to which libvirtd writes its log.
	stderr *os.File
}

func newDaemon(o Options, c *children) *daemon {
	return &daemon{options: o, children: c, log: o.Log, stderr: os.Stderr}
}

// Directories below the run directory. They are short: libvirt's sockets below them must fit 107 bytes.
func (d *daemon) runtimeDir() string { return filepath.Join(d.options.RunDir, "rt") }
func (d *daemon) configHome() string { return filepath.Join(d.options.RunDir, "config") }
func (d *daemon) cacheHome() string  { return filepath.Join(d.options.RunDir, "cache") }
func (d *daemon) tempDir() string    { return filepath.Join(d.options.RunDir, "tmp") }
func (d *daemon) socket() string     { return filepath.Join(d.runtimeDir(), "libvirt/libvirt-sock") }

// libvirtdConf keeps the daemon small; the host UUID is made anew for each pod, since two pods of one node would
// otherwise refuse to migrate to each other.
const libvirtdConf = `auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
keepalive_interval = -1
min_workers = 2
max_workers = 8
prio_workers = 2
admin_min_workers = 1
admin_max_workers = 1
host_uuid = %q
`

// quietConf has libvirtd say what it says on its own, filteredConf what the filters let through: an output drops what
// is below its own level. The filters are parsed, so that they end no string.
const (
	quietConf    = "log_outputs = \"3:stderr\"\n"
	filteredConf = "log_outputs = \"1:stderr\"\nlog_filters = \"%s\"\n"
)

// logConf returns the part of libvirtd's configuration that selects what it logs.
func (d *daemon) logConf() (string, error) {
	filters, err := launcherlog.ParseFilters(d.options.LogFilters)
	if err != nil {
		return "", fmt.Errorf("--libvirt-log-filters: %w", err)
	}
	if filters == "" {
		return quietConf, nil
	}
	return fmt.Sprintf(filteredConf, filters), nil
}

// qemuConf leaves to the pod what the pod does anyway: users, cgroups, namespaces, confinement.
const qemuConf = `dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
security_default_confined = 0
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
max_core = 0
dump_guest_core = 0
`

// sharedConf names the claims: one that a guest may take along to another node is the same there, whatever its file
// system looks like from here. Of those that are plugged in it names the directory above theirs: libvirt passes over
// what does not exist when it starts.
const sharedConf = `shared_filesystems = [ %q, %q ]
`

// emulatedConf is for pods without a KVM device. After QEMU has started, libvirt asks it for each property of its
// CPU, some 450 questions of 1 ms; without this capability of QEMU it asks for the feature words instead, in one. They
// lack only the features that live in model-specific registers, of which an emulated CPU has none.
const emulatedConf = `capability_filters = [ "cpu-unavailable-features" ]
`

// hugepagesConf is for pods with huge pages: libvirt looks for them by itself only where it is root.
const hugepagesConf = `hugetlbfs_mount = %q
`

// configure writes the configuration. The directory of the capability cache is made too, so that
// virt-handler only has to put a file into it.
func (d *daemon) configure() error {
	conf := filepath.Join(d.configHome(), "libvirt")
	for _, dir := range []string{
		d.runtimeDir(), conf, d.tempDir(),
		filepath.Join(d.options.RunDir, names.CapabilityCacheDir),
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("configure libvirtd: %w", err)
		}
	}
	qemu := qemuConf + fmt.Sprintf(sharedConf, d.options.Disks.Claims, filepath.Dir(d.options.Disks.Hotplug))
	// virt-handler has yet to let us open the device, but it is there.
	if _, err := os.Stat(d.options.KVMDevice); errors.Is(err, os.ErrNotExist) {
		qemu += emulatedConf
	}
	if _, err := os.Stat(d.options.Hugepages); err == nil {
		qemu += fmt.Sprintf(hugepagesConf, d.options.Hugepages)
	}
	logging, err := d.logConf()
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"libvirtd.conf": fmt.Sprintf(libvirtdConf, randomUUID()) + logging,
		"qemu.conf":     qemu,
	} {
		if err := os.WriteFile(filepath.Join(conf, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("configure libvirtd: %w", err)
		}
	}
	return nil
}

// randomUUID returns a version 4 UUID.
func randomUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, or ends the program (crypto/rand)
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// environment returns the daemon's environment. One malloc arena instead of one a thread saves megabytes.
func (d *daemon) environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + d.options.RunDir,
		"XDG_RUNTIME_DIR=" + d.runtimeDir(),
		"XDG_CONFIG_HOME=" + d.configHome(),
		"XDG_CACHE_HOME=" + d.cacheHome(),
		"XDG_DATA_HOME=" + filepath.Join(d.options.RunDir, "data"),
		"XDG_STATE_HOME=" + filepath.Join(d.options.RunDir, "state"),
		"TMPDIR=" + d.tempDir(),
		"MALLOC_ARENA_MAX=1",
	}
}

// Pauses between two starts of a daemon that keeps dying.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// healthy is the time that a daemon must live for its death to count as the first again.
	healthy = 30 * time.Second
)

// run keeps the daemon running until ctx ends.
func (d *daemon) run(ctx context.Context) {
	pause := firstPause
	for {
		began := time.Now()
		err := d.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > healthy {
			pause = firstPause
		}
		d.log.Warn("libvirtd has ended, starting it again", "err", err, "pause", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// once runs the daemon to its end.
func (d *daemon) once(ctx context.Context) error {
	// The socket of the one before must not look like this one's.
	if err := os.Remove(d.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove libvirtd's old socket: %w", err)
	}
	cmd := exec.Command(d.options.Libvirtd, "-t", "0")
	cmd.Env = d.environment()
	cmd.Stdout, cmd.Stderr = d.stderr, d.stderr
	// Its own process group, so that a terminal's Ctrl-C reaches the launcher alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := d.children.start(cmd)
	if err != nil {
		return err
	}
	return p.wait(ctx)
}

// knock is the interval of attempts to connect to a daemon that is starting, which takes it some 50 ms.
const knock = 3 * time.Millisecond

// connect waits until the daemon listens and connects to it.
func (d *daemon) connect(ctx context.Context) (hypervisor.Connection, error) {
	if err := d.awaitSocket(ctx); err != nil {
		return nil, err
	}
	return d.options.Connect(ctx, d.socket())
}

// awaitSocket waits until the daemon listens.
func (d *daemon) awaitSocket(ctx context.Context) error {
	tick := time.NewTicker(knock)
	defer tick.Stop()
	for {
		_, err := os.Stat(d.socket())
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("look for libvirtd's socket: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
