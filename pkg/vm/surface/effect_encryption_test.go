package surface_test

import "maps"

func init() { maps.Copy(examples, encryptionExamples) }

const withSEV = "domain: {memory: {guest: 1Gi}, firmware: {bootloader: {efi: {secureBoot: false}}}, " +
	"launchSecurity: {sev: {policy: {}}}, devices: {disks: [{name: root, disk: {bus: virtio}}]}}"

var encryptionExamples = map[string]struct{ before, value string }{
	"domain.launchSecurity.sev":                       {value: "{}"},
	"domain.launchSecurity.sev.policy.encryptedState": {before: withSEV, value: "true"},
}
