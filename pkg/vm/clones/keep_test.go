package clones

import (
	"slices"
	"strings"
	"testing"

	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
)

// A clone keeps what its annotation lists; what cannot be kept is said.
func TestKept(t *testing.T) {
	for text, test := range map[string]struct {
		serial, crosses bool
		want            []string
		trouble         string
	}{
		"":                                     {serial: true, crosses: true},
		"mac":                                  {serial: true, crosses: true, want: []string{KeepMAC}},
		"mac, uuid,hostname":                   {crosses: true, want: []string{KeepMAC, KeepUUID, KeepHostname}},
		"mac,uuid,serial,instance-id,hostname": {want: Parts},
		"name":                                 {want: []string{"name"}, trouble: `"name" is not one of mac, uuid,`},
		"mac,":                                 {want: []string{KeepMAC, ""}, trouble: `"" is not one of`},
		"serial":                               {serial: true, want: []string{KeepSerial}, trouble: "is a new one"},
		"instance-id":                          {crosses: true, want: []string{KeepInstanceID}, trouble: "has its own"},
	} {
		c := &clonev1beta1.VirtualMachineClone{}
		c.Annotations = map[string]string{}
		if text != "" {
			c.Annotations[KeepAnnotation] = text
		}
		if test.crosses {
			c.Annotations[NamespaceAnnotation] = "other"
		}
		if test.serial {
			c.Spec.NewSMBiosSerial = new("new")
		}
		if got := Kept(c); !slices.Equal(got, test.want) {
			t.Errorf("%q: keeps %q", text, got)
		}
		if got := KeepTrouble(c); (got == "") != (test.trouble == "") || !strings.Contains(got, test.trouble) {
			t.Errorf("%q: %q, want %q", text, got, test.trouble)
		}
	}
}
