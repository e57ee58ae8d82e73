package wait

import "testing"

func TestPromptsOfAnEarlierLifeDoNotCount(t *testing.T) {
	for _, test := range []struct {
		what, text string
		want       bool
	}{
		{"at the end", "Welcome\r\ntiny login: ", true},
		{"with colours", "\x1b[0mtiny\x1b[1m login: ", true},
		{"the kernel says something later", "tiny login: \r\n[    9.1] random: crng init done\r\n", true},
		{"the kernel says something on its line", "Fedora login: [    9.1] random: crng init done\r\n", true},
		{"a service says something on its line", "tiny login: tiny: tiny is ready, address 10.128.2.103\r\n", true},
		{"a name is typed", "tiny login: root\r\nPassword: ", true},
		{"a log speaks of it", "[    9.1] audit: login: failed\r\nsshd: no login: refused\r\n", false},
		{"somebody is logged in", "tiny login: root\r\nPassword:\r\ntiny login: \r\n# ls\r\n", true},
		{"nothing yet", "SeaBIOS (version 1.16)\r\nBooting from Hard Disk...\r\n", false},
		{"last login", "Last login: Thu Jan  1 00:00:00 on ttyS0\r\n", false},
		{"it restarts", "tiny login: \r\nThe system is going down NOW!\r\nSent SIGTERM to all processes\r\n", false},
		{"it restarted", "tiny login: \r\n[   31.8] reboot: Restarting system\r\nSeaBIOS (version 1.16)\r\n", false},
		{"it boots again", "tiny login: \r\n[    0.0] Linux version 6.12.1\r\n", false},
		{"it is there again", "tiny login: \r\n[   31.8] reboot: Restarting system\r\nSeaBIOS\r\ntiny login: ", true},
		{"systemd", "debian login: \r\n[  OK  ] Reached target reboot.target - System Reboot.\r\n", false},
		{"UEFI", "debian login: \r\nBdsDxe: loading Boot0001\r\n", false},
	} {
		if got := shows([]byte(test.text), LoginPrompt); got != test.want {
			t.Errorf("%s: got %v", test.what, got)
		}
	}
}
