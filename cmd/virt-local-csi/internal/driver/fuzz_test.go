package driver

import (
	"strings"
	"testing"
	"time"
)

// FuzzFaults reads the parameter faults of classes. What it takes can be written again, and means the same.
func FuzzFaults(f *testing.F) {
	for _, text := range []string{
		"CreateVolume=delay:20ms CreateSnapshot=fail:2  NodeStageVolume=fail", "CreateVolume", "=fail",
		"CreateVolume=fail:-3",
		"CreateVolume=delay:-1h", "CreateVolume=delay:9999999h", "CreateVolume=fail:99999999999999999999",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseFaults(text)
		if err != nil {
			if !strings.Contains(err.Error(), FaultsKey) {
				t.Errorf("%q is refused without a remedy: %v", text, err)
			}
			return
		}
		if words := len(strings.Fields(text)); len(all) != words {
			t.Errorf("%q: %d faults of %d words", text, len(all), words)
		}
		for _, one := range all {
			if !isMethod(one.method) || one.delay < 0 || one.delay > time.Hour || one.fails < -1 {
				t.Errorf("%q has %+v", text, one)
			}
		}
	})
}

// FuzzMounts reads mount tables, in which pods choose paths.
func FuzzMounts(f *testing.F) {
	f.Add("36 35 7:3 / /data\\040x rw,noatime shared:1 - xfs /dev/loop3 rw\n")
	f.Add("1 2 3 4 5 6")
	f.Add("\\134\\")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMounts(text) {
			if m.device == "" || m.root == "" || m.path == "" {
				t.Errorf("%q has %+v", text, m)
			}
		}
	})
}
