//go:build e2e

// Package guest tests the tiny guest by booting it: bin/images/tiny.qcow2, which `go run ./images/build
// tiny-disk` makes, in QEMU without KVM, under BIOS and under UEFI.
package guest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

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
			if info.Hostname != "fromci" || info.CPUs != 1 || info.Firmware != firmware || !info.RNG ||
				info.MemoryKiB < 90000 {
				t.Errorf("info: %s", body)
			}
			if len(info.Disks) != 2 || info.Disks[0].Serial != "root-disk" || len(info.Interfaces) != 1 ||
				info.Interfaces[0].MAC != "02:00:00:00:00:01" {
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
			m.command(`{"execute":"system_powerdown"}`)
			m.expect("tiny: power button pressed, shutting down")
			m.waitEnd()
		})
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	m := start(t, nil)
	m.expect("Log in as root, password tiny")
	m.login("tiny", "root", "tiny")
	for _, service := range []string{"dropbear", "httpd", "acpid"} {
		// dropbear starts when its keys are made.
		if got := m.output("n=0; until pidof " + service +
			" >/dev/null || [ $n = 99 ]; do usleep 100000; n=$((n+1)); done; pidof " + service); got == "" {
			t.Errorf("%s does not run", service)
		}
	}
	m.send("resize")
	m.expect(`\x1b\[999;999H\x1b\[6n`)
	m.send("\x1b[50;132R") // as a terminal answers
	m.expect("50 rows, 132 columns")
	if got := m.output("stty size"); got != "50 132" {
		t.Errorf("the terminal's size is %s", got)
	}
	m.send("poweroff")
	m.expect("tiny: going down")
	m.waitEnd()
}

// A machine with the keys that Windows machines have starts only what is signed.
func TestSecureBoot(t *testing.T) {
	t.Parallel()
	vars := copyOf(t, "/usr/share/OVMF/OVMF_VARS_4M.ms.fd")
	m := start(t, nil, "-m", "256", "-machine", "smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on",
		"-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.ms.fd",
		"-drive", "if=pflash,format=raw,file="+vars)
	m.login("tiny", "root", "tiny")
	if got := m.output("info"); !strings.Contains(got, `"secureBoot":true`) {
		t.Errorf("info: %s", got)
	}
}

func TestGuestAgent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "agent")
	m := start(t, nil, "-device", "virtio-serial-pci", "-chardev", "socket,id=a,server=on,wait=off,path="+socket,
		"-device", "virtserialport,chardev=a,name=org.qemu.guest_agent.0")
	agent := m.dial(socket)
	defer agent.Close()
	m.login("tiny", "root", "tiny")
	if err := agent.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(agent, `{"execute":"guest-get-host-name"}`)
	line, err := bufio.NewReader(agent).ReadString('\n')
	if err != nil || !strings.Contains(line, `"host-name": "tiny"`) {
		t.Errorf("agent: %q, %v", line, err)
	}
	fmt.Fprintln(agent, `{"execute":"guest-shutdown"}`)
	m.expect("tiny: going down: poweroff")
	m.waitEnd()
}

func TestHotPlug(t *testing.T) {
	t.Parallel()
	m := start(t, nil, "-device", "pcie-root-port,id=free1,chassis=1,slot=1",
		"-device", "pcie-root-port,id=free2,chassis=2,slot=2")
	m.login("tiny", "root", "tiny")
	m.command(
		`{"execute":"netdev_add","arguments":{"type":"user","id":"m","net":"192.168.77.0/24"}}`,
		`{"execute":"device_add","arguments":{"driver":"virtio-net-pci","netdev":"m","bus":"free1","romfile":"","id":"nic"}}`,
		`{"execute":"blockdev-add","arguments":{"driver":"null-co","node-name":"null","size":1048576}}`,
		`{"execute":"device_add","arguments":{"driver":"virtio-blk-pci","drive":"null","bus":"free2","serial":"late","id":"disk"}}`,
	)
	m.output("until ip addr show eth1 2>/dev/null | grep -q 192.168.77.15; do usleep 200000; done")
	m.output("until grep -qs late /sys/block/vdb/serial; do usleep 200000; done")
}

func TestSSH(t *testing.T) {
	t.Parallel()
	key, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	m := start(t, map[string]string{
		"meta-data": "local-hostname: sshd\n",
		"user-data": "#cloud-config\nuser: ann\npassword: pw\nssh_authorized_keys: ['" +
			strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))) + "']\n",
	})
	m.expect("sshd login: ")
	for name, auth := range map[string]ssh.AuthMethod{"password": ssh.Password("pw"), "key": ssh.PublicKeys(key)} {
		client, err := m.dialSSH(&ssh.ClientConfig{
			User: "ann", Auth: []ssh.AuthMethod{auth}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out, err := session.Output("id -un; hostname")
		if string(out) != "ann\nsshd\n" || err != nil {
			t.Errorf("%s: %q, %v", name, out, err)
		}
		client.Close()
	}
}

func TestScript(t *testing.T) {
	t.Parallel()
	m := start(t, map[string]string{
		"meta-data": "local-hostname: scripted\n",
		"user-data": "#!/bin/sh\necho SCRIPT in $(hostname)\n",
	})
	m.expect("SCRIPT in scripted")
	m.expect("scripted login: ")
}

func TestBadUserData(t *testing.T) {
	t.Parallel()
	m := start(t, map[string]string{
		"meta-data": "local-hostname: bad\n",
		"user-data": "#cloud-config\nwrite_files: [{content: x}]\n",
	})
	m.expect(`cloud-init: user-data: write_files\[0\]: path is missing`)
	m.login("bad", "root", "tiny")
}

func TestNetworks(t *testing.T) {
	second := []string{
		"-netdev", "user,id=m,net=192.168.77.0/24", "-device", "virtio-net-pci,netdev=m,romfile=,mac=02:00:00:00:00:02",
	}
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
