package usage

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	v1 "kubevirt.io/api/core/v1"
)

// FuzzFileSystems reads what a guest's agent says of its file systems, which becomes labels of metrics.
func FuzzFileSystems(f *testing.F) {
	for _, list := range [][]v1.VirtualMachineInstanceFileSystem{
		nil,
		{{DiskName: "vda1", MountPoint: "/", FileSystemType: "ext4", TotalBytes: 100, UsedBytes: 50}},
		{{DiskName: "a", TotalBytes: 1}, {DiskName: "a\x1b", TotalBytes: 2}, {DiskName: "\u202ea", TotalBytes: 3}},
		{{DiskName: strings.Repeat("é", 2*maxName), TotalBytes: 1}, {TotalBytes: -1}, {TotalBytes: 1, UsedBytes: -1}},
		make([]v1.VirtualMachineInstanceFileSystem, MaxDevices+1),
	} {
		seed, err := json.Marshal(v1.VirtualMachineInstanceGuestAgentInfo{
			FSInfo: v1.VirtualMachineInstanceFileSystemInfo{Filesystems: list},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Add([]byte(`{"fsInfo":{"disks":[{"diskName":"\ud800","totalBytes":9223372036854775807,"usedBytes":1}]}}`))
	f.Add([]byte(`{"fsInfo":{"disks":[{"totalBytes":1e3}]}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := fileSystems(data)
		if err != nil && list != nil || len(list) > MaxDevices {
			t.Fatalf("%d of them, %v", len(list), err)
		}
		seen := map[[3]string]bool{}
		for i := range list {
			fs := &list[i]
			key := [3]string{fs.DiskName, fs.MountPoint, fs.FileSystemType}
			if seen[key] {
				t.Errorf("twice: %q", key)
			}
			seen[key] = true
			for _, text := range key {
				bad := strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
				if bad || utf8.RuneCountInString(text) > maxName || !utf8.ValidString(text) {
					t.Errorf("%q is no label", text)
				}
			}
			if fs.TotalBytes <= 0 || fs.UsedBytes < 0 {
				t.Errorf("%d of %d bytes", fs.UsedBytes, fs.TotalBytes)
			}
		}
	})
}

// FuzzLoads reads what a guest's agent says of its load.
func FuzzLoads(f *testing.F) {
	f.Add(1.0, 2.0, 0.0)
	f.Add(-1.0, 2.0, 3.0)
	f.Add(1e308, 1e-308, math.Copysign(0, -1))
	f.Fuzz(func(t *testing.T, a, b, c float64) {
		for _, load := range loads([]float64{a, b, c}) {
			if !(load >= 0) || math.IsInf(load, 0) {
				t.Errorf("%v", load)
			}
		}
	})
}
