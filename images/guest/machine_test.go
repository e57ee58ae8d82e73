//go:build e2e

package guest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/virtkit/virtkit/pkg/vm/disk"
)

const (
	tiny = "../../bin/images/tiny.qcow2"
	// patience is how long a boot may take on a loaded machine.
	patience = 3 * time.Minute
)

// machine is a running guest.
type machine struct {
	t      *testing.T
	serial net.Conn
	qmp    net.Conn
	http   string // where the guest's port 80 is reached
	ssh    string // and its port 22
	ended  chan struct{}

	mu    sync.Mutex
	said  bytes.Buffer
	more  *sync.Cond
	place int // up to where expect has read
}

// start boots a guest with NoCloud files (none: no such volume) and more arguments to QEMU.
func start(t *testing.T, files map[string]string, args ...string) *machine {
	t.Helper()
	if _, err := os.Stat(tiny); err != nil {
		t.Fatalf("%v; make it with: go run ./images/build tiny-disk", err)
	}
	dir := t.TempDir()
	overlay := filepath.Join(dir, "disk.qcow2")
	abs, err := filepath.Abs(tiny)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2",
		"-b", abs, "-F", "qcow2", overlay).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	port, sshPort := freePort(t), freePort(t)
	all := []string{
		"-machine", "q35,accel=tcg", "-m", "128", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-drive", "file=" + overlay + ",if=none,id=d", "-device", "virtio-blk-pci,drive=d,serial=root-disk",
		"-netdev", "user,id=n,hostfwd=tcp:127.0.0.1:" + port + "-:80,hostfwd=tcp:127.0.0.1:" + sshPort + "-:22",
		"-device", "virtio-net-pci,netdev=n,romfile=,mac=02:00:00:00:00:01",
		"-device", "VGA", "-device", "virtio-rng-pci",
		"-chardev", "socket,id=s,path=" + dir + "/serial,server=on,wait=on", "-serial", "chardev:s",
		"-qmp", "unix:" + dir + "/qmp,server=on,wait=off",
	}
	if files != nil {
		all = append(all, "-drive", "if=virtio,readonly=on,format=raw,file="+writeISO(t, dir, files))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(all, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, http: "http://127.0.0.1:" + port, ssh: "127.0.0.1:" + sshPort, ended: make(chan struct{})}
	m.more = sync.NewCond(&m.mu)
	go func() {
		defer close(m.ended)
		cmd.Wait() // how it ended is seen by what it said
	}()
	t.Cleanup(func() {
		cancel()
		<-m.ended
		if t.Failed() {
			t.Logf("QEMU: %s", stderr.String())
		}
	})
	m.serial = m.dial(dir + "/serial") // QEMU waits for it before it does anything else
	m.qmp = m.dial(dir + "/qmp")
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := m.serial.Read(buf)
			m.mu.Lock()
			m.said.Write(buf[:n])
			m.more.Broadcast()
			m.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-m.ended
		m.serial.Close()
		m.qmp.Close()
		<-read
		if t.Failed() {
			t.Logf("console:\n%s", m.said.String())
		}
	})
	return m
}

// dial connects to a socket that QEMU is about to make.
func (m *machine) dial(path string) net.Conn {
	m.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		c, err := net.Dial("unix", path)
		if err == nil {
			return c
		}
		select {
		case <-tick.C:
		case <-m.ended:
			m.t.Fatal("QEMU ended")
		case <-end:
			m.t.Fatal(err)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

func writeISO(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	data := map[string][]byte{}
	for name, text := range files {
		data[name] = []byte(text)
	}
	iso, err := disk.Image("cidata", data)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "seed.iso")
	if err := os.WriteFile(file, iso, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// expect waits until the console says something that matches, after what was expected before.
func (m *machine) expect(pattern string) []string {
	m.t.Helper()
	re := regexp.MustCompile(pattern)
	late := false
	timer := time.AfterFunc(patience, func() {
		m.mu.Lock()
		late = true
		m.more.Broadcast()
		m.mu.Unlock()
	})
	defer timer.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		rest := m.said.Bytes()[m.place:]
		if at := re.FindSubmatchIndex(rest); at != nil {
			m.place += at[1]
			found := re.FindSubmatch(rest)
			out := make([]string, len(found))
			for i, f := range found {
				out[i] = string(f)
			}
			return out
		}
		if late {
			m.t.Fatalf("console never said %q", pattern)
		}
		m.more.Wait()
	}
}

func (m *machine) send(line string) {
	m.t.Helper()
	if _, err := io.WriteString(m.serial, line+"\n"); err != nil {
		m.t.Fatal(err)
	}
}

// login logs in on the serial console and gives the shell.
func (m *machine) login(host, user, password string) {
	m.t.Helper()
	m.expect(regexp.QuoteMeta(host) + " login: ")
	m.send(user)
	m.expect("Password: ")
	m.send(password)
	m.expect(regexp.QuoteMeta(user+"@"+host) + ":[^\r\n]*[$#] ")
}

// output of a command in the shell. The marks are computed by the shell, so that the echo of what was
// typed does not match.
func (m *machine) output(command string) string {
	m.t.Helper()
	m.send("echo B$((40+2))B; " + command + "; echo E$((40+2))E")
	return strings.TrimSpace(strings.ReplaceAll(m.expect(`(?s)B42B\r?\n(.*?)E42E`)[1], "\r", ""))
}

// command sends commands to QEMU, in QMP's JSON.
func (m *machine) command(commands ...string) {
	m.t.Helper()
	for _, c := range append([]string{`{"execute":"qmp_capabilities"}`}, commands...) {
		if _, err := io.WriteString(m.qmp, c+"\n"); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *machine) waitEnd() {
	m.t.Helper()
	select {
	case <-m.ended:
	case <-time.After(patience):
		m.t.Fatal("guest did not power off")
	}
}

// get fetches a page of the guest's web server.
func (m *machine) get(path string) string {
	m.t.Helper()
	r, err := http.Get(m.http + path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(body)
}

// newSigner makes a key to log in with.
func newSigner() (ssh.Signer, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(key)
}

// dialSSH connects as soon as the server is there: QEMU takes connections before it is, and drops them.
func (m *machine) dialSSH(config *ssh.ClientConfig) (*ssh.Client, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		client, err := ssh.Dial("tcp", m.ssh, config)
		if err == nil || strings.Contains(err.Error(), "unable to authenticate") {
			return client, err
		}
		select {
		case <-tick.C:
		case <-m.ended:
			return nil, err
		case <-end:
			return nil, err
		}
	}
}

// copyOf copies a file that QEMU writes to.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), filepath.Base(name))
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// withFirmware gives QEMU's arguments for a firmware.
func withFirmware(t *testing.T, name string) []string {
	t.Helper()
	if name == "bios" {
		return nil
	}
	file := copyOf(t, "/usr/share/OVMF/OVMF_VARS_4M.fd")
	return []string{
		"-m", "192", // with 128 the kernel finds no room beside the firmware
		"-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd",
		"-drive", "if=pflash,format=raw,file=" + file,
	}
}
