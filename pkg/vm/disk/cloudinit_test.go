package disk

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/identity"
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
		{
			name: "plain", src: v1.CloudInitNoCloudSource{UserData: "u", NetworkData: "n"},
			want: map[string]string{"user-data": "u", "meta-data": meta, "network-config": "n"},
		},
		{
			name: "base64", src: v1.CloudInitNoCloudSource{UserDataBase64: "dXNlcg==", NetworkDataBase64: "bmV0"},
			want: map[string]string{"user-data": "user", "meta-data": meta, "network-config": "net"},
		},
		{
			name: "secrets", user: "su", network: "sn",
			want: map[string]string{"user-data": "su", "meta-data": meta, "network-config": "sn"},
		},
		{
			name: "keys", keys: []string{"ssh-ed25519 AAAA a", "ssh-rsa BBBB"},
			want: map[string]string{
				"user-data": "",
				"meta-data": `{"instance-id":"web.example.ns","local-hostname":"web","public-keys":{"0":"ssh-ed25519 AAAA a","1":"ssh-rsa BBBB"}}`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			volume := &v1.Volume{VolumeSource: v1.VolumeSource{CloudInitNoCloud: &tc.src}}
			label, files, err := cloudInitFiles(vmi, volume,
				Facts{UserData: []byte(tc.user), NetworkData: []byte(tc.network), PublicKeys: tc.keys})
			if err != nil {
				t.Fatal(err)
			}
			if label != "cidata" {
				t.Errorf("label %q", label)
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

// A guest whose VM was renamed is the instance that it was, so that cloud-init does not take its start for a first
// boot.
func TestInstanceIDOfRenamed(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "new", Annotations: map[string]string{identity.KnownAs: "old"},
	}}
	for file, source := range map[string]v1.VolumeSource{
		"meta-data":                    {CloudInitNoCloud: &v1.CloudInitNoCloudSource{}},
		driveFolder + "meta_data.json": {CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{}},
	} {
		_, files, err := cloudInitFiles(vmi, &v1.Volume{VolumeSource: source}, Facts{})
		if err != nil || !strings.Contains(string(files[file]), `"old.ns"`) {
			t.Errorf("%s: %s, %v", file, files[file], err)
		}
	}
}

func TestNoCloudInstanceType(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", Annotations: map[string]string{v1.InstancetypeAnnotation: "own"},
		},
	}
	volume := &v1.Volume{VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "u"}}}
	_, files, err := cloudInitFiles(vmi, volume, Facts{})
	if got := string(files["meta-data"]); err != nil ||
		got != `{"instance-type":"own","instance-id":"web.ns","local-hostname":"web"}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestConfigDrive(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web.example",
		Annotations: map[string]string{v1.InstancetypeAnnotation: "own", v1.ClusterInstancetypeAnnotation: "u1.small"},
	}}
	vmi.Spec.Domain.Firmware = &v1.Firmware{UUID: "1f0c"}
	const (
		user    = "openstack/latest/user_data"
		meta    = "openstack/latest/meta_data.json"
		network = "openstack/latest/network_data.json"
		begin   = `{"instance_type":"u1.small","instance_id":"web.example.ns","hostname":"web","uuid":"1f0c"`
	)
	for _, tc := range []struct {
		name  string
		src   v1.CloudInitConfigDriveSource
		facts Facts
		want  map[string]string
	}{
		{
			name: "plain", src: v1.CloudInitConfigDriveSource{UserData: "u", NetworkData: "{}"},
			want: map[string]string{user: "u", meta: begin + "}", network: "{}"},
		},
		{
			name: "base64", src: v1.CloudInitConfigDriveSource{UserDataBase64: "dXNlcg=="},
			want: map[string]string{user: "user", meta: begin + "}"},
		},
		{
			name: "secrets", facts: Facts{UserData: []byte("su"), NetworkData: []byte("sn")},
			want: map[string]string{user: "su", meta: begin + "}", network: "sn"},
		},
		{
			name: "keys", facts: Facts{PublicKeys: []string{"ssh-ed25519 AAAA a", "ssh-rsa BBBB"}},
			want: map[string]string{
				user: "",
				meta: begin + `,"public_keys":{"0":"ssh-ed25519 AAAA a","1":"ssh-rsa BBBB"}}`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			volume := &v1.Volume{VolumeSource: v1.VolumeSource{CloudInitConfigDrive: &tc.src}}
			label, files, err := cloudInitFiles(vmi, volume, tc.facts)
			if err != nil {
				t.Fatal(err)
			}
			if label != "config-2" {
				t.Errorf("label %q", label)
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
	bad := &v1.Volume{
		VolumeSource: v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserDataBase64: "%"}},
	}
	if _, _, err := cloudInitFiles(vmi, bad, Facts{}); err == nil ||
		!strings.HasPrefix(err.Error(), "cloudInitConfigDrive.userDataBase64: ") {
		t.Errorf("not base64: %v", err)
	}
}
