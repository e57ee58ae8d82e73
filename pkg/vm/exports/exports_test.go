package exports

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/export/v1beta1"
)

func TestLinks(t *testing.T) {
	link := Links("virt-export-e.ns.svc", "PEM", []Volume{
		{Name: "root", Content: Disk}, {Name: "block.0", Content: Device}, {Name: "share", Content: Files},
	}, true)
	got, err := json.Marshal(link)
	if err != nil {
		t.Fatal(err)
	}
	const at = `"https://virt-export-e.ns.svc`
	want := `{"cert":"PEM","volumes":[` +
		`{"name":"root","formats":[{"format":"raw","url":` + at + `/volumes/root/disk.img"},` +
		`{"format":"gzip","url":` + at + `/volumes/root/disk.img.gz"},` +
		`{"format":"qcow2","url":` + at + `/volumes/root/disk.qcow2"}]},` +
		`{"name":"block.0","formats":[{"format":"raw","url":` + at + `/volumes/block.0/disk.img"},` +
		`{"format":"gzip","url":` + at + `/volumes/block.0/disk.img.gz"},` +
		`{"format":"qcow2","url":` + at + `/volumes/block.0/disk.qcow2"}]},` +
		`{"name":"share","formats":[{"format":"dir","url":` + at + `/volumes/share/dir/"},` +
		`{"format":"tar.gz","url":` + at + `/volumes/share/disk.tar.gz"}]}],` +
		`"manifests":[{"type":"all","url":` + at + `/internal/manifests/all"},` +
		`{"type":"auth-header-secret","url":` + at + `/internal/manifests/secret"},` +
		`{"type":"ova","url":` + at + `/internal/vm.ova"}]}`
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if link := Links("h", "", nil, false); link.Manifests != nil || link.Volumes != nil {
		t.Errorf("%+v", link)
	}
}

// Names are labels, and no two exports have one.
func TestName(t *testing.T) {
	long := strings.Repeat("a", 60)
	seen := map[string]string{}
	for _, name := range []string{
		"e", "a.b", "a-b", "a.b.c", "a-b.c", "1", long, long + "a", long + ".a", long + "-a",
		strings.Repeat("a.", 100) + "a",
	} {
		got := Name(name)
		if len(content.IsDNS1123Label(got)) > 0 || !strings.HasPrefix(got, "virt-export-") {
			t.Errorf("%s: %q is no label", name, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s are both %s", name, other, got)
		}
		seen[got] = name
	}
	if Name("e") != "virt-export-e" || Host("ns", "e") != "virt-export-e.ns.svc" {
		t.Error(Name("e"), Host("ns", "e"))
	}
}

func TestTokenSecret(t *testing.T) {
	export := &metav1.ObjectMeta{Name: "e", UID: "12345678-abcd-ef"}
	if got := TokenSecret(export); got != "export-token-e-12345678" {
		t.Error(got)
	}
	export = &metav1.ObjectMeta{Name: strings.Repeat("x", 250), UID: "12345678-abcd-ef"}
	if got := TokenSecret(export); len(got) > 63 || !strings.HasSuffix(got, "-12345678") {
		t.Error(got)
	}
}

func TestExpiration(t *testing.T) {
	export := &v1beta1.VirtualMachineExport{}
	export.CreationTimestamp = metav1.Unix(1000, 0)
	if got := Expiration(export).Unix(); got != 1000+2*60*60 {
		t.Error(got)
	}
	export.Spec.TTLDuration = &metav1.Duration{Duration: time.Minute}
	if got := Expiration(export).Unix(); got != 1060 {
		t.Error(got)
	}
}

func TestSourceKind(t *testing.T) {
	for source, want := range map[[2]string]string{
		{"kubevirt.io", KindVM}: KindVM, {"snapshot.kubevirt.io", KindSnapshot}: KindSnapshot,
		{"", KindClaim}: KindClaim, {"-", KindClaim}: KindClaim, {"-", KindVM}: "",
		{"snapshot.kubevirt.io", KindVM}: "",
		{"v1", KindClaim}:                "", {"", "Pod"}: "",
	} {
		reference := &corev1.TypedLocalObjectReference{Kind: source[1]}
		if source[0] != "-" {
			reference.APIGroup = &source[0]
		}
		if got := SourceKind(reference); got != want {
			t.Errorf("%v: %q", source, got)
		}
	}
}
