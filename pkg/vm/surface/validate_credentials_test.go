package surface

import (
	"strings"
	"testing"
)

func TestValidateCredentials(t *testing.T) {
	keys := func(way string) string {
		return "accessCredentials: [{sshPublicKey: {source: {secret: {secretName: s}}, propagationMethod: {" + way +
			"}}}]"
	}
	const withDrive = "volumes: [{name: root, cloudInitConfigDrive: {userData: x}}]"
	const withCloudInit = "volumes: [{name: root, cloudInitNoCloud: {userData: x}}]"
	for name, tc := range map[string]struct{ spec, want string }{
		"credential of nothing": {
			"accessCredentials: [{}]", `spec.accessCredentials[0]: is empty; use sshPublicKey or userPassword`,
		},
		"credential of both": {
			"accessCredentials: [{sshPublicKey: {source: {secret: {secretName: s}}, " +
				"propagationMethod: {qemuGuestAgent: {users: [a]}}}, userPassword: {source: {secret: {secretName: " +
				"s}}, propagationMethod: {qemuGuestAgent: {}}}}]",
			`spec.accessCredentials[0]: is both`,
		},
		"password": {
			"accessCredentials: [{userPassword: {source: {secret: {secretName: s}}, " +
				"propagationMethod: {qemuGuestAgent: {}}}}]",
			``,
		},
		"password by no way": {
			"accessCredentials: [{userPassword: {source: {secret: {secretName: s}}, propagationMethod: {}}}]",
			`spec.accessCredentials[0].userPassword.propagationMethod: is not set; use qemuGuestAgent`,
		},
		"password from nowhere": {
			"accessCredentials: [{userPassword: {source: {}, propagationMethod: {qemuGuestAgent: {}}}}]",
			`spec.accessCredentials[0].userPassword.source.secret.secretName: is not set`,
		},
		"keys by agent": {keys("qemuGuestAgent: {users: [root, a.b]}"), ``},
		"keys by no way": {
			keys(""),
			`spec.accessCredentials[0].sshPublicKey.propagationMethod: is not set; use noCloud, configDrive or qemuGuestAgent`,
		},
		"keys by two ways": {
			keys("noCloud: {}, qemuGuestAgent: {users: [a]}"),
			`spec.accessCredentials[0].sshPublicKey.propagationMethod: is more than one`,
		},
		"keys of nobody": {
			keys("qemuGuestAgent: {users: []}"),
			`spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users: is empty`,
		},
		"keys of a strange user": {
			keys("qemuGuestAgent: {users: ['a:b']}"),
			`spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users[0]: "a:b" is not the name of a user`,
		},
		"keys of one user twice": {
			keys("qemuGuestAgent: {users: [a, a]}"),
			`spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users[1]: "a" is the name of another user too`,
		},
		"keys by cloud-init": {keys("noCloud: {}") + "\n" + withCloudInit, ``},
		"keys by absent cloud-init": {
			keys("noCloud: {}"),
			`spec.accessCredentials[0].sshPublicKey.propagationMethod.noCloud: needs a volume with cloudInitNoCloud`,
		},
		"keys by absent config drive": {
			keys("configDrive: {}"),
			`spec.accessCredentials[0].sshPublicKey.propagationMethod.configDrive: needs a volume with cloudInitConfigDrive`,
		},
		"keys by config drive": {keys("configDrive: {}") + "\n" + withDrive, ``},
		"keys by the other drive": {
			keys("configDrive: {}") + "\n" + withCloudInit,
			`spec.accessCredentials[0].sshPublicKey.propagationMethod.configDrive: needs a volume with cloudInitConfigDrive`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance(t, tc.spec)
			DefaultVirtualMachineInstance(vmi, testDefaults)
			got := Message(ValidateVirtualMachineInstance(vmi, Actor{}))
			if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestGuestPassword(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                    false,
		"p":                                   true,
		"päss word":                           true,
		"two\nlines":                          false,
		"line\r":                              false,
		"nul\x00":                             false,
		strings.Repeat("p", MaxGuestPassword): true,
		strings.Repeat("p", MaxGuestPassword) + "p": false,
	} {
		if got := GuestPassword(text); got != want {
			t.Errorf("%.20q of %d bytes: %v", text, len(text), got)
		}
	}
}
