package exports

import (
	"strings"
	"testing"

	"kubevirt.io/api/export/v1beta1"
)

const outside = "https://vms.example.com/api/export.kubevirt.io/v1beta1/namespaces/ns/virtualmachineexports/e"

func TestExternalLinks(t *testing.T) {
	link := ExternalLinks(External("vms.example.com", "ns", "e"), "PEM", []Volume{{Name: "root", Content: Disk}}, true)
	var got []string
	for _, f := range link.Volumes[0].Formats {
		got = append(got, f.Url)
	}
	for _, m := range link.Manifests {
		got = append(got, m.Url)
	}
	want := []string{
		outside + "/volumes/root/disk.img", outside + "/volumes/root/disk.img.gz", outside + "/volumes/root/disk.qcow2",
		outside + "/external/manifests/all", outside + "/external/manifests/secret", outside + "/external/vm.ova",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || link.Cert != "PEM" {
		t.Errorf("%q\n%s", got, link.Cert)
	}
	if got := AddressOf(link, "ns", "e"); got != outside {
		t.Error(got)
	}
	for _, none := range []*v1beta1.VirtualMachineExportLink{
		nil, {}, {Volumes: make([]v1beta1.VirtualMachineExportVolume, 1)},
	} {
		if got := AddressOf(none, "ns", "e"); got != "" {
			t.Errorf("%+v: %s", none, got)
		}
	}
	// What a link says is what the proxy takes.
	for _, address := range want {
		path := strings.TrimPrefix(address, "https://vms.example.com")
		asked, ok := Parse(path)
		if !ok || asked.Namespace != "ns" || asked.Name != "e" || outside+asked.Path != address {
			t.Errorf("%s: %+v %t", path, asked, ok)
		}
	}
}

func TestParse(t *testing.T) {
	const at = "/api/export.kubevirt.io/v1beta1/namespaces/ns/virtualmachineexports/"
	for path, want := range map[string]string{
		at + "a.b/volumes/root/dir/x/../y":                                        "a.b",
		strings.Replace(at, "v1beta1", "v1", 1) + "e/volumes/root/disk.img":       "e",
		strings.Replace(at, "v1beta1", "v1alpha1", 1) + "e/volumes/root/disk.img": "e",
		strings.Replace(at, "v1beta1", "v2", 1) + "e/volumes/root/disk.img":       "",
		at + "e/volumes":                                         "",
		at + "e/exportready":                                     "",
		at + "e/internal/manifests/all":                          "",
		at + "E/volumes/root/disk.img":                           "",
		at + "../volumes/root/disk.img":                          "",
		at + "a%2fb/volumes/root/disk.img":                       "",
		at + strings.Repeat("a", 254) + "/volumes/root/disk.img": "",
		strings.Replace(at, "/ns/", "/"+strings.Repeat("a", 64)+"/", 1) + "e/volumes/root/disk.img": "",
		strings.Replace(at, "/ns/", "/a.b/", 1) + "e/volumes/root/disk.img":                         "",
		"/api/export.kubevirt.io/v1beta1/namespaces/ns/virtualmachines/e/volumes/root/disk.img":     "",
		"/apis" + at[4:] + "e/volumes/root/disk.img":                                                "",
		"/": "",
		"":  "",
	} {
		if asked, ok := Parse(path); ok != (want != "") || ok && asked.Name != want {
			t.Errorf("%s: %+v, %t", path, asked, ok)
		}
	}
}

// No path leads to another host than an export's, nor to what is not for the outside.
func FuzzParse(f *testing.F) {
	f.Add("/api/export.kubevirt.io/v1beta1/namespaces/ns/virtualmachineexports/e/volumes/root/disk.img")
	f.Add("/api/export.kubevirt.io/v1/namespaces/ns/virtualmachineexports/a.b/external/manifests/all")
	f.Fuzz(func(t *testing.T, path string) {
		asked, ok := Parse(path)
		if !ok {
			return
		}
		host := Host(asked.Namespace, asked.Name)
		if strings.ContainsAny(host, "/:@?#%\\ \x00") || !strings.HasPrefix(host, "virt-export-") ||
			!strings.HasSuffix(path, asked.Path) || strings.HasPrefix(asked.Path, "/internal") {
			t.Errorf("%q: %+v at %s", path, asked, host)
		}
	})
}
