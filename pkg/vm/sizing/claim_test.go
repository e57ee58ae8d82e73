package sizing

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func TestFileClaim(t *testing.T) {
	for bytes, want := range map[int64]string{
		0:                 "0",
		1:                 "1Mi",
		17 << 20:          "18Mi",
		17<<20 + 1:        "19Mi",
		1<<30 + DumpRoom:  "1191Mi",
		1<<30 + SavedRoom: "1254Mi",
	} {
		size := FileClaim(bytes)
		if got := size.String(); got != want {
			t.Errorf("a file of %d bytes: %s, want %s", bytes, got, want)
		}
		if size.Value()-size.Value()/fileSystem < bytes {
			t.Errorf("%s has no room for %d bytes beside the file system", size, bytes)
		}
	}
}

// A file of the guest's memory has room for what the guest has, and for what it is to have.
func TestWritten(t *testing.T) {
	size := func(text string) *resource.Quantity { return new(resource.MustParse(text)) }
	for name, tc := range map[string]struct {
		spec   string
		status *v1.MemoryStatus
		want   string
	}{
		"starts":       {`memory: {guest: 1Gi}`, nil, "1Gi"},
		"by its pod":   {`resources: {requests: {memory: 512Mi}}`, nil, "512Mi"},
		"says nothing": {`{}`, nil, "0"},
		"has grown":    {`memory: {guest: 1Gi}`, &v1.MemoryStatus{GuestCurrent: size("2Gi")}, "2Gi"},
		"is to grow":   {`memory: {guest: 4Gi}`, &v1.MemoryStatus{GuestCurrent: size("2Gi")}, "4Gi"},
		"has asked":    {`memory: {guest: 1Gi}`, &v1.MemoryStatus{GuestRequested: size("3Gi")}, "3Gi"},
		"began with":   {`memory: {guest: 1Gi}`, &v1.MemoryStatus{GuestAtBoot: size("2Gi")}, "2Gi"},
		"has shrunk":   {`memory: {guest: 1Gi}`, &v1.MemoryStatus{GuestCurrent: size("1Gi")}, "1Gi"},
		"keeps too much": {
			`memory: {guest: 1Gi}`, &v1.MemoryStatus{GuestCurrent: size("2Gi"), GuestRequested: size("1Gi")}, "2Gi",
		},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain, vmi.Status.Memory = *spec(t, tc.spec), tc.status
		if got := resource.NewQuantity(Written(vmi), resource.BinarySI); got.String() != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
