package disk

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestNoCloud(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web.example"}}
	meta := `{"instance-id":"web.example.ns","local-hostname":"web"}`
	for _, tc := range []struct {
		name          string
		src           v1.CloudInitNoCloudSource
		user, network string
		keys          []string
		want          map[string]string
	}{
		{name: "nothing", want: map[string]string{"user-data": "", "meta-data": meta}},
		{name: "plain", src: v1.CloudInitNoCloudSource{UserData: "u", NetworkData: "n"}, want: map[string]string{"user-data": "u", "meta-data": meta, "network-config": "n"}},
		{name: "base64", src: v1.CloudInitNoCloudSource{UserDataBase64: "dXNlcg==", NetworkDataBase64: "bmV0"}, want: map[string]string{"user-data": "user", "meta-data": meta, "network-config": "net"}},
		{name: "secrets", user: "su", network: "sn", want: map[string]string{"user-data": "su", "meta-data": meta, "network-config": "sn"}},
		{
			name: "keys", keys: []string{"ssh-ed25519 AAAA a", "ssh-rsa BBBB"},
			want: map[string]string{"user-data": "", "meta-data": `{"instance-id":"web.example.ns","local-hostname":"web","public-keys":{"0":"ssh-ed25519 AAAA a","1":"ssh-rsa BBBB"}}`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, err := NoCloud(vmi, &tc.src, Facts{UserData: []byte(tc.user), NetworkData: []byte(tc.network), PublicKeys: tc.keys})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for name, data := range files {
				got[name] = string(data)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHostname(t *testing.T) {
	for _, tc := range []struct{ name, hostname, want string }{
		{"demo", "", "demo"},
		{"demo", "other", "other"},
		{"a.b.c", "", "a"},
		{strings.Repeat("a", 62) + "-bcd", "", strings.Repeat("a", 62)},
	} {
		vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: tc.name}}
		vmi.Spec.Hostname = tc.hostname
		if got := Hostname(vmi); got != tc.want {
			t.Errorf("%s/%s: %s, want %s", tc.name, tc.hostname, got, tc.want)
		}
	}
}
