// Package machine is the machine of `make lab`: a server with what production has and this machine may not, in a QEMU
// process that emulates all of it.
//
//	bin/images/lab (images/build)        <build>/lab/<name>, removed with the machine
//	  disk.ext4, vmlinuz, initrd           root.qcow2   what this run changes of disk.ext4
//	  qemu/: QEMU and its libraries        build.ext4   bin, dev and the run's keys, at /opt/virtkit
//	            │                          console.log  the serial console
//	            └──────► QEMU ◄────────────┘
//	                      │ SSH, over a port of loopback that the kernel chose
//	                      └── commands, a shell, connections to any port inside
//
// QEMU's TCG emulates AMD's SVM with nested paging, so /dev/kvm is there and a guest under that KVM is translated only
// once. Nothing but the run's directory is written outside of it, and several machines run side by side.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Options say what machine to start.
type Options struct {
	// Root is the repository, which has been built: bin with bin/images and bin/images/lab.
	Root string
	// Keep leaves the machine running when the caller ends.
	Keep bool
	// Boot is how long it may take until it answers.
	Boot time.Duration
	// Log gets a line for each step.
	Log func(format string, args ...any)
}

// Machine is one that runs.
type Machine struct {
	Name string
	// Dir has its files.
	Dir string
	// Client is the SSH connection to it, as root.
	Client *ssh.Client

	// ended is closed when the QEMU that this process started has ended; its log says how.
	ended <-chan struct{}
}

// runs is where the machines' directories are.
func runs(root string) string { return filepath.Join(root, "bin", "lab") }

// Start starts a machine and waits until it takes commands. On an error nothing of it is left, but for a copy of its
// console in bin/lab/console.log and of what QEMU said.
func Start(ctx context.Context, o Options) (m *Machine, err error) {
	if err := os.MkdirAll(runs(o.Root), 0o755); err != nil {
		return nil, err
	}
	if err := sweep(runs(o.Root)); err != nil {
		return nil, err
	}
	m = &Machine{Name: rand.String(5)}
	m.Dir = filepath.Join(runs(o.Root), m.Name)
	if err := os.Mkdir(m.Dir, 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Stop())
		}
	}()
	lock, err := hold(m.Dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // QEMU holds it from now on
	o.Log("making its disks")
	files := filesIn(o.Root)
	if err := makeDisks(ctx, o.Root, files, m.Dir); err != nil {
		return nil, err
	}
	o.Log("booting, see %s", filepath.Join(m.Dir, "console.log"))
	if m.ended, err = run(files, m.Dir, lock, o.Keep); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Boot)
	defer cancel()
	m.Client, err = await(ctx, m.Dir, m.ended)
	return m, err
}

// run starts QEMU, which ends with this process unless it is kept.
func run(f files, dir string, lock *os.File, keep bool) (ended <-chan struct{}, err error) {
	log, err := os.OpenFile(filepath.Join(dir, qemuLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	argv := f.command("qemu-system-x86_64", arguments(f)...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, log, log, []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for the caller, who ends it
	if !keep {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The kernel ends QEMU with the thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the state has it
		fmt.Fprintf(log, "%s QEMU has ended: %v\n", time.Now().UTC().Format(time.RFC3339), cmd.ProcessState)
		close(done)
	}()
	return done, <-started
}

// qemuLog is what QEMU says, and how it ended.
const qemuLog = "qemu.log"

// whyEnded is an error when QEMU has ended. It may take a moment until that is known of one whose connections ended.
func (m *Machine) whyEnded() error {
	if m.ended == nil {
		return nil // another's
	}
	select {
	case <-m.ended:
		said, err := os.ReadFile(filepath.Join(m.Dir, qemuLog))
		return errors.Join(fmt.Errorf("the machine is off: %s", lastLines(string(said), 3)), err)
	case <-time.After(time.Second):
		return nil
	}
}

// await connects as soon as the machine takes connections.
func await(ctx context.Context, dir string, ended <-chan struct{}) (*ssh.Client, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		client, err := connect(ctx, dir)
		if err == nil {
			return client, nil
		}
		select {
		case <-ended:
			said, err := os.ReadFile(filepath.Join(dir, qemuLog))
			return nil, errors.Join(errors.New(lastLines(string(said), 5)), err)
		case <-ctx.Done():
			console, _ := os.ReadFile(filepath.Join(dir, "console.log"))
			return nil, fmt.Errorf("the machine does not answer: %w; its console ends with\n%s", err,
				lastLines(string(console), 20))
		case <-tick.C:
		}
	}
}

// Attach connects to a machine that was kept: the one of that name or, without one, the only one there is.
func Attach(ctx context.Context, root, name string) (*Machine, error) {
	m, err := find(root, name)
	if err != nil {
		return nil, err
	}
	m.Client, err = connect(ctx, m.Dir)
	return m, err
}

// Down ends a machine that was kept, whether it answers or not.
func Down(root, name string) error {
	m, err := find(root, name)
	if err != nil {
		return err
	}
	return m.Stop()
}

// find finds a machine that runs.
func find(root, name string) (*Machine, error) {
	there, err := Running(root)
	if err != nil {
		return nil, err
	}
	switch {
	case len(there) == 0:
		return nil, errors.New("no lab is running: LAB_KEEP=1 make lab keeps one")
	case name == "" && len(there) > 1:
		return nil, fmt.Errorf("several labs are running: say which by LAB=NAME, of %s", strings.Join(there, ", "))
	case name == "":
		name = there[0]
	case !slices.Contains(there, name):
		return nil, fmt.Errorf("no lab %q is running; there is %s", name, strings.Join(there, ", "))
	}
	return &Machine{Name: name, Dir: filepath.Join(runs(root), name)}, nil
}

// Stop ends the machine at once, and removes its files.
func (m *Machine) Stop() error {
	if m.Client != nil {
		_ = m.Client.Close() // it need not hear of it
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// Of one that has no socket, or does not answer, the lock tells whether it is gone.
	quitting := quit(ctx, m.Dir)
	for held(m.Dir) {
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("lab %s does not end", m.Name), quitting)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return remove(m.Dir)
}

// remove removes a machine's files; what the last one said stays beside its directory.
func remove(dir string) error {
	for _, log := range []string{"console.log", qemuLog} {
		if err := os.Rename(filepath.Join(dir, log), filepath.Join(filepath.Dir(dir), log)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// Running lists the machines that run.
func Running(root string) ([]string, error) {
	entries, err := os.ReadDir(runs(root))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && held(filepath.Join(runs(root), e.Name())) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// sweep removes what machines whose callers were killed have left.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if d := filepath.Join(dir, e.Name()); e.IsDir() && !held(d) {
			if err := remove(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// hold locks a machine's directory. Whoever has inherited the file, as QEMU, holds the lock.
func hold(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// held reports whether somebody holds a machine's directory.
func held(dir string) bool {
	f, err := hold(dir)
	if err != nil {
		return errors.Is(err, unix.EWOULDBLOCK)
	}
	f.Close()
	return false
}

// lastLines are the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
