package page

import (
	"strings"
	"testing"
)

func TestDraft(t *testing.T) {
	key := "ssh-ed25519 " + "QUFBQQ== me@here"
	for name, c := range map[string]struct {
		fill  func(*Draft)
		wrong int // the field; fields for none, -1 for the whole
		line  string
	}{
		"the least":       {func(*Draft) {}, fields, "virtctl create vm --name web --namespace prod --apply"},
		"much":            {func(d *Draft) { d[fieldCPUs], d[fieldMemory], d[fieldImage] = "2", "4Gi", "image:1" }, fields, "virtctl create vm --name web --namespace prod --cpu 2 --memory 4Gi --container-disk image:1 --apply"},
		"disks":           {func(d *Draft) { d[fieldClaim], d[fieldData] = "root", "10Gi" }, fields, "virtctl create vm --name web --namespace prod --pvc root --volume-empty size:10Gi --apply"},
		"a login":         {func(d *Draft) { d[fieldUser], d[fieldPassword], d[fieldKey] = "me", "it's secret", key }, fields, "virtctl create vm --name web --namespace prod --user me --password-file FILE --ssh-key '" + key + "' --apply"},
		"no name":         {func(d *Draft) { d[fieldName] = "" }, fieldName, ""},
		"a bad name":      {func(d *Draft) { d[fieldName] = "Web Server" }, fieldName, ""},
		"no CPUs":         {func(d *Draft) { d[fieldCPUs] = "0" }, fieldCPUs, ""},
		"bad memory":      {func(d *Draft) { d[fieldMemory] = "lots" }, fieldMemory, ""},
		"two sizes":       {func(d *Draft) { d[fieldInstancetype], d[fieldMemory] = "u1.small", "1Gi" }, fieldInstancetype, ""},
		"a bad claim":     {func(d *Draft) { d[fieldClaim] = "other/claim" }, fieldClaim, ""},
		"a bad size":      {func(d *Draft) { d[fieldData] = "-1" }, fieldData, ""},
		"a bad strategy":  {func(d *Draft) { d[fieldStrategy] = "Sometimes" }, fieldStrategy, ""},
		"a private key":   {func(d *Draft) { d[fieldKey] = "-----BEGIN OPENSSH PRIVATE KEY-----" }, fieldKey, ""},
		"an instancetype": {func(d *Draft) { d[fieldInstancetype] = "virtualmachineinstancetype/own" }, fields, "virtctl create vm --name web --namespace prod --instancetype virtualmachineinstancetype/own --apply"},
	} {
		var d Draft
		d[fieldName], d[fieldNamespace] = "web", "prod"
		c.fill(&d)
		vm, wrong := d.build()
		switch {
		case wrong == nil && c.wrong != fields:
			t.Errorf("%s: nothing is wrong", name)
		case wrong != nil && wrong.field != c.wrong:
			t.Errorf("%s: field %d: %s", name, wrong.field, wrong.text)
		case wrong == nil && (vm.Namespace != "prod" || d.line("virtctl") != c.line):
			t.Errorf("%s: %s", name, d.line("virtctl"))
		}
		for what, text := range map[string]string{"manifest": d.preview(), "line": d.line("virtctl")} {
			if strings.Contains(text, "secret") && d[fieldPassword] != "" && !strings.Contains(text, masked) {
				t.Errorf("%s: the password is in the %s", name, what)
			}
			if d[fieldPassword] != "" && strings.Contains(text, d[fieldPassword]) {
				t.Errorf("%s: the password is in the %s", name, what)
			}
		}
	}
}
