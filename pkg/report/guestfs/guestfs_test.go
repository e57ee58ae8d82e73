package guestfs

import "testing"

// Both virt-apis' words name an image: the whole name, or KubeVirt's parts of it.
func TestImage(t *testing.T) {
	for _, tc := range []struct {
		info Info
		want string
	}{
		{Of("example.com/x/libguestfs-tools:v1"), "example.com/x/libguestfs-tools:v1"},
		{Of(""), ""},
		{Info{Registry: "quay.io/kubevirt", Tag: "v1.8.0"}, "quay.io/kubevirt/libguestfs-tools:v1.8.0"},
		{
			Info{Registry: "quay.io/kubevirt/", Tag: "v1", Digest: "sha256:0a"},
			"quay.io/kubevirt/libguestfs-tools@sha256:0a",
		},
		{Info{ImagePrefix: "my-", Tag: "v1"}, "my-libguestfs-tools:v1"},
		{Info{Registry: "quay.io/kubevirt", Tag: "v1", GsImage: "mine:1"}, "mine:1"},
		{Info{Registry: "quay.io/kubevirt"}, ""},
	} {
		if got := tc.info.Image(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.info, got, tc.want)
		}
	}
}
