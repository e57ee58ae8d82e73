package page

import (
	"strings"
	"testing"

	"charm.land/bubbles/v2/textinput"
	"charm.land/lipgloss/v2"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// TestPlaceholders: what an empty field shows cannot be taken for a value, by its words and by its look.
func TestPlaceholders(t *testing.T) {
	for i, f := range draftFields {
		if f.example == "" || strings.HasPrefix(f.example, "e.g. ") || strings.HasPrefix(f.example, "default ") {
			continue
		}
		if !strings.Contains(f.example, " ") || strings.ContainsAny(f.example, ":/=") {
			t.Errorf("field %d, %s, shows %q", i, f.title, f.example)
		}
	}
	w := &World{Theme: theme.New(theme.Options{})}
	input := textinput.New()
	request := newFieldset(w, takeForm)
	for name, styles := range map[string]textinput.Styles{
		"a form's": fieldStyles(w, &input), "a request's": request.inputs[takeSnapshot].Styles(),
	} {
		for _, style := range []lipgloss.Style{styles.Focused.Placeholder, styles.Blurred.Placeholder} {
			if style.Render("x") != w.Theme.Paint(theme.Dim, "x") {
				t.Errorf("%s placeholder looks as %q", name, style.Render("x"))
			}
		}
	}
}

func TestDraft(t *testing.T) {
	key := "ssh-ed25519 " + "QUFBQQ== me@here"
	for name, c := range map[string]struct {
		fill  func(*Draft)
		wrong int // the field; fields for none, -1 for the whole
		line  string
	}{
		"the least": {func(*Draft) {}, fields, "virtctl create vm --name web --namespace prod --apply"},
		"much": {
			func(d *Draft) { d[fieldCPUs], d[fieldMemory], d[fieldImage] = "2", "4Gi", "image:1" }, fields,
			"virtctl create vm --name web --namespace prod --cpu 2 --memory 4Gi --container-disk image:1 --apply",
		},
		"disks": {
			func(d *Draft) { d[fieldClaim], d[fieldData] = "root", "10Gi" }, fields,
			"virtctl create vm --name web --namespace prod --pvc root --volume-empty size:10Gi --apply",
		},
		"a login": {
			func(d *Draft) { d[fieldUser], d[fieldPassword], d[fieldKey] = "me", "it's secret", key }, fields,
			"virtctl create vm --name web --namespace prod --user me --password-file FILE --ssh-key '" + key +
				"' --apply",
		},
		"no name":    {func(d *Draft) { d[fieldName] = "" }, fieldName, "give one"},
		"a bad name": {func(d *Draft) { d[fieldName] = "Web Server" }, fieldName, ""},
		"no CPUs":    {func(d *Draft) { d[fieldCPUs] = "0" }, fieldCPUs, ""},
		"bad memory": {func(d *Draft) { d[fieldMemory] = "lots" }, fieldMemory, ""},
		"two sizes": {
			func(d *Draft) { d[fieldInstancetype], d[fieldMemory] = "u1.small", "1Gi" }, fieldInstancetype, "",
		},
		"a bad claim":    {func(d *Draft) { d[fieldClaim] = "other/claim" }, fieldClaim, ""},
		"a bad size":     {func(d *Draft) { d[fieldData] = "-1" }, fieldData, ""},
		"a bad strategy": {func(d *Draft) { d[fieldStrategy] = "Sometimes" }, fieldStrategy, ""},
		"a private key":  {func(d *Draft) { d[fieldKey] = "-----BEGIN OPENSSH PRIVATE KEY-----" }, fieldKey, ""},
		"several disks": {
			func(d *Draft) {
				d[fieldImage], d[fieldData] = "one:1 src:two:2,bootorder:1,name:second", "size:1Gi,name:scratch"
			}, fields,
			"virtctl create vm --name web --namespace prod --container-disk one:1 --volume-containerdisk " +
				"src:two:2,bootorder:1,name:second --volume-empty size:1Gi,name:scratch --apply",
		},
		"imported": {
			func(d *Draft) { d[fieldImport] = "type:http,url:https://host/image,size:10Gi" }, fields,
			"virtctl create vm --name web --namespace prod --volume-import " +
				"type:http,url:https://host/image,size:10Gi,name:web-import-0 --apply",
		},
		"imported wrongly":    {func(d *Draft) { d[fieldImport] = "type:floppy" }, fieldImport, ""},
		"imported of nothing": {func(d *Draft) { d[fieldImport] = "type:http,size:1Gi" }, fieldImport, ""},
		"sysprep": {
			func(d *Draft) { d[fieldSysprep] = "src:answers,type:secret" }, fields,
			"virtctl create vm --name web --namespace prod --volume-sysprep src:answers,type:secret --apply",
		},
		"sysprep wrongly": {func(d *Draft) { d[fieldSysprep] = "answers" }, fieldSysprep, ""},
		"credentials": {
			func(d *Draft) { d[fieldCredential] = "src:keys,method:nocloud" }, fields,
			"virtctl create vm --name web --namespace prod --access-cred src:keys,method:nocloud --apply",
		},
		"credentials wrongly": {func(d *Draft) { d[fieldCredential] = "src:keys" }, fieldCredential, ""},
		"user data": {
			func(d *Draft) { d[fieldUserData], d[fieldCloudInit] = "I2Nsb3VkLWNvbmZpZwo=", "configDrive" }, fields,
			"virtctl create vm --name web --namespace prod --cloud-init configDrive --cloud-init-user-data " +
				"I2Nsb3VkLWNvbmZpZwo= --apply",
		},
		"user data wrongly": {func(d *Draft) { d[fieldUserData] = "#cloud-config" }, fieldUserData, ""},
		"no cloud-init":     {func(d *Draft) { d[fieldCloudInit] = "floppy" }, fieldCloudInit, ""},
		"inferred": {
			func(d *Draft) { d[fieldClaim], d[fieldInferInstancetype] = "root", "root" }, fields,
			"virtctl create vm --name web --namespace prod --pvc root --infer-instancetype-from root --apply",
		},
		"inferred wrongly": {func(d *Draft) { d[fieldInferPreference] = "root" }, fieldInferPreference, ""},
		"inferred and given": {
			func(d *Draft) { d[fieldInferPreference], d[fieldPreference] = "root", "fedora" }, fieldInferPreference, "",
		},
		"grace": {
			func(d *Draft) { d[fieldGrace] = "30" }, fields,
			"virtctl create vm --name web --namespace prod --termination-grace-period 30 --apply",
		},
		"networks": {
			func(d *Draft) {
				d[fieldNetworks], d[fieldIPs] = "red=red-net blue=infra/blue", "red=192.0.2.7"
				d[fieldMAC] = "02:12:34:56:78:9a"
			}, fields,
			"virtctl create vm --name web --namespace prod --network red=red-net --network blue=infra/blue --ip " +
				"red=192.0.2.7 --mac 02:12:34:56:78:9a --apply",
		},
		"no network":                {func(d *Draft) { d[fieldNetworks] = "red" }, fieldNetworks, ""},
		"a network twice":           {func(d *Draft) { d[fieldNetworks] = "red=a red=b" }, fieldNetworks, ""},
		"an address without a name": {func(d *Draft) { d[fieldIPs] = "192.0.2.7" }, fieldIPs, ""},
		"an address of no network":  {func(d *Draft) { d[fieldIPs] = "red=192.0.2.7" }, fieldIPs, ""},
		"no address": {
			func(d *Draft) { d[fieldNetworks], d[fieldIPs] = "red=red-net", "red=here" }, fieldIPs, "",
		},
		"no MAC":         {func(d *Draft) { d[fieldMAC] = "x" }, fieldMAC, ""},
		"no grace":       {func(d *Draft) { d[fieldGrace] = "soon" }, fieldGrace, ""},
		"negative grace": {func(d *Draft) { d[fieldGrace] = "-1" }, fieldGrace, ""},
		"an instancetype": {
			func(d *Draft) { d[fieldInstancetype] = "virtualmachineinstancetype/own" }, fields,
			"virtctl create vm --name web --namespace prod --instancetype virtualmachineinstancetype/own --apply",
		},
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
