package capabilities

import (
	"bytes"
	"testing"
)

// FuzzCheck: what a probe prints never makes virt-handler fall over, and nothing is kept that does not
// say for which QEMU it is.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(description(1000, "<flag name='a'/>")))
	f.Add([]byte("<qemuCaps><a><qemuctime>1000</qemuctime></a></qemuCaps>"))
	f.Add([]byte("</qemuCaps>"))
	f.Add([]byte("<qemuCaps/><qemuCaps><qemuctime>1000</qemuctime></qemuCaps>"))
	key := Key{ctimes: []int64{1000}}
	f.Fuzz(func(t *testing.T, data []byte) {
		if check(key, data) == nil && !bytes.Contains(data, []byte("qemuctime")) {
			t.Errorf("took %q", data)
		}
	})
}
