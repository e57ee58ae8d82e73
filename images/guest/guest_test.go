//go:build e2e

// Package guest tests the tiny guest by booting it: bin/images/tiny.qcow2, which `go run ./images/build
// tiny-disk` makes, in QEMU without KVM, under BIOS and under UEFI.
package guest

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/virtkit/virtkit/pkg/disk"
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
	http   string // address where the guest's port 80 is reached
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
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-b", abs, "-F", "qcow2", overlay).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	port := freePort(t)
	all := []string{
		"-machine", "q35,accel=tcg", "-m", "128", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-drive", "file=" + overlay + ",if=none,id=d", "-device", "virtio-blk-pci,drive=d,serial=root-disk",
		"-netdev", "user,id=n,hostfwd=tcp:127.0.0.1:" + port + "-:80", "-device", "virtio-net-pci,netdev=n,romfile=,mac=02:00:00:00:00:01",
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
	m := &machine{t: t, http: "http://127.0.0.1:" + port, ended: make(chan struct{})}
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

func (m *machine) command(name string) {
	m.t.Helper()
	fmt.Fprintf(m.qmp, "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":%q}\n", name)
}

func (m *machine) waitEnd() {
	m.t.Helper()
	select {
	case <-m.ended:
	case <-time.After(patience):
		m.t.Fatal("guest did not power off")
	}
}

const userData = `#cloud-config
hostname: fromci.example.org
ssh_pwauth: true
users:
  - default
  - name: ann
    gecos: Ann Example
    plain_text_passwd: "s3cret"
    lock_passwd: false
    sudo: ALL=(ALL) NOPASSWD:ALL
    ssh_authorized_keys: [ssh-ed25519 AAAAann ann]
chpasswd:
  expire: false
  users: [{name: root, password: changed, type: text}]
ssh_authorized_keys:
  - ssh-ed25519 AAAAtop top
write_files:
  - path: /etc/greeting
    content: |
      hello from write_files
    permissions: '0640'
  - {path: /www/blob, encoding: b64, content: AAEC/w==}
  - {path: /etc/greeting, append: true, content: "and more\n", permissions: 0640}
bootcmd:
  - echo boot $(cat /etc/greeting | wc -l) > /run/bootcmd
runcmd:
  - echo RUNCMD ran in $(hostname)
  - [sh, -c, 'echo "it''s a list" > /run/list']
`

// withFirmware gives QEMU's arguments for a firmware.
func withFirmware(t *testing.T, name string) []string {
	t.Helper()
	if name == "bios" {
		return nil
	}
	vars, err := os.ReadFile("/usr/share/OVMF/OVMF_VARS_4M.fd")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "vars.fd")
	if err := os.WriteFile(file, vars, 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{
		"-m", "192", // with 128 the kernel finds no room beside the firmware
		"-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd",
		"-drive", "if=pflash,format=raw,file=" + file,
	}
}

func TestCloudInit(t *testing.T) {
	for _, firmware := range []string{"bios", "uefi"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			m := start(t, map[string]string{
				"meta-data": "instance-id: i-1\nlocal-hostname: frommeta\npublic-keys: [ssh-ed25519 AAAAmeta meta]\n",
				"user-data": userData,
			}, withFirmware(t, firmware)...)
			m.expect("RUNCMD ran in fromci")
			m.expect("tiny: fromci is ready, address 10.0.2.15")
			m.login("fromci", "ann", "s3cret")
			for command, want := range map[string]string{
				"id -un":                              "ann",
				"cat /run/list":                       "it's a list",
				"cat /run/bootcmd":                    "boot 2",
				"stat -c %a /etc/greeting":            "640",
				"hexdump -e '4/1 \"%02x\"' /www/blob": "000102ff",
				"cat ~/.ssh/authorized_keys":          "ssh-ed25519 AAAAann ann",
				"cloud-init status --wait":            "status: done",
				"cat /run/cloud-init/instance-id":     "i-1",
				"grep -c 'password tiny' /etc/issue":  "0",
			} {
				if got := m.output(command); got != want {
					t.Errorf("%s: %q, want %q", command, got, want)
				}
			}
			var info struct {
				Hostname   string
				CPUs       int
				MemoryKiB  int
				Firmware   string
				RNG        bool
				Disks      []struct{ Name, Serial string }
				Interfaces []struct{ MAC string }
			}
			body := m.get("/cgi-bin/info")
			if err := json.Unmarshal([]byte(body), &info); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			if info.Hostname != "fromci" || info.CPUs != 1 || info.Firmware != firmware || !info.RNG || info.MemoryKiB < 90000 {
				t.Errorf("info: %s", body)
			}
			if len(info.Disks) != 2 || info.Disks[0].Serial != "root-disk" || len(info.Interfaces) != 1 || info.Interfaces[0].MAC != "02:00:00:00:00:01" {
				t.Errorf("info: %s", body)
			}
			if got := m.get("/"); got != "hello from fromci\n" {
				t.Errorf("index: %q", got)
			}
			m.send("exit")
			m.login("fromci", "root", "changed")
			if got := m.output("grep -c -e AAAAtop -e AAAAmeta /root/.ssh/authorized_keys"); got != "2" {
				t.Errorf("root's keys: %s, want 2", got)
			}
			m.command("system_powerdown")
			m.expect("tiny: power button pressed, shutting down")
			m.waitEnd()
		})
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

func TestPlain(t *testing.T) {
	t.Parallel()
	m := start(t, nil)
	m.expect("Log in as root, password tiny")
	m.login("tiny", "root", "tiny")
	for _, service := range []string{"dropbear", "httpd", "acpid"} {
		// dropbear starts when its keys are made.
		if got := m.output("n=0; until pidof " + service + " >/dev/null || [ $n = 99 ]; do usleep 100000; n=$((n+1)); done; pidof " + service); got == "" {
			t.Errorf("%s does not run", service)
		}
	}
	m.send("poweroff")
	m.expect("tiny: going down")
	m.waitEnd()
}

func TestScript(t *testing.T) {
	t.Parallel()
	m := start(t, map[string]string{"meta-data": "local-hostname: scripted\n", "user-data": "#!/bin/sh\necho SCRIPT in $(hostname)\n"})
	m.expect("SCRIPT in scripted")
	m.expect("scripted login: ")
}

func TestBadUserData(t *testing.T) {
	t.Parallel()
	m := start(t, map[string]string{"meta-data": "local-hostname: bad\n", "user-data": "#cloud-config\nwrite_files: [{content: x}]\n"})
	m.expect(`cloud-init: user-data: write_files\[0\]: path is missing`)
	m.login("bad", "root", "tiny")
}

func TestNetworks(t *testing.T) {
	second := []string{"-netdev", "user,id=m,net=192.168.77.0/24", "-device", "virtio-net-pci,netdev=m,romfile=,mac=02:00:00:00:00:02"}
	tests := map[string]struct {
		config string
		want   map[string]string // command to output
	}{
		"dhcp on all": {"", map[string]string{
			"ip -4 -o addr show dev eth0 | grep -o 'inet [^ ]*'": "inet 10.0.2.15/24",
			"ip -4 -o addr show dev eth1 | grep -o 'inet [^ ]*'": "inet 192.168.77.15/24",
			"ip route get 1.1.1.1 | grep -o 'dev [^ ]*'":         "dev eth0",
		}},
		"v1": {`
version: 1
config:
- {type: physical, name: lan0, mac_address: '02:00:00:00:00:02', mtu: 1400, subnets: [{type: static, address: 192.168.77.9, netmask: 255.255.255.0}]}
- {type: physical, name: eth0, subnets: [{type: dhcp4}]}
- {type: nameserver, address: [192.0.2.53], search: [example.org]}
`, map[string]string{
			"ip -4 -o addr show dev lan0 | grep -o 'inet [^ ]*'": "inet 192.168.77.9/24",
			"cat /sys/class/net/lan0/mtu":                        "1400",
			"head -2 /etc/resolv.conf":                           "search example.org\nnameserver 192.0.2.53",
		}},
		"v2": {`
network:
  version: 2
  ethernets:
    first:
      match: {macaddress: '02:00:00:00:00:01'}
      addresses: [10.0.2.99/24]
      gateway4: 10.0.2.2
      nameservers: {addresses: [10.0.2.3]}
      routes: [{to: 203.0.113.0/24, via: 10.0.2.4}]
    eth1: {dhcp4: true}
`, map[string]string{
			"ip -4 -o addr show dev eth0 | grep -o 'inet [^ ]*'": "inet 10.0.2.99/24",
			"ip -4 -o addr show dev eth1 | grep -o 'inet [^ ]*'": "inet 192.168.77.15/24",
			"ip route get 203.0.113.1 | grep -o 'via [^ ]*'":     "via 10.0.2.4",
			"ip route get 1.1.1.1 | grep -o 'via [^ ]*'":         "via 10.0.2.2",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"meta-data": "local-hostname: net\n", "user-data": "#cloud-config\n{}\n"}
			if tt.config != "" {
				files["network-config"] = tt.config
			}
			m := start(t, files, second...)
			m.expect("net is ready")
			m.login("net", "root", "tiny")
			for command, want := range tt.want {
				if got := m.output(command); got != want {
					t.Errorf("%s: %q, want %q", command, got, want)
				}
			}
		})
	}
}
