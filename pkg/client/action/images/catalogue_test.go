package images

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/instancetype/common"
)

// What the program's catalogue names is there once the common instance types are installed.
func TestBuiltin(t *testing.T) {
	types, preferences := map[string]bool{"": true}, map[string]bool{"": true}
	for _, i := range common.Instancetypes() {
		types[i.Name] = true
	}
	for _, p := range common.Preferences() {
		preferences[p.Name] = true
	}
	catalogue := Builtin()
	for i := range catalogue.Images {
		image := &catalogue.Images[i]
		if !types[image.Instancetype] || !preferences[image.Preference] {
			t.Errorf("%s: no instance type %q or preference %q is among the common ones", image.Ref(),
				image.Instancetype, image.Preference)
		}
		if image.User == "" || image.Title == "" {
			t.Errorf("%s has no user or no title", image.Ref())
		}
		if _, err := image.Source("amd64"); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{
		"alpine", "arch", "centos", "cirros", "debian", "fedora", "freebsd", "opensuse", "ubuntu",
	} {
		if _, err := catalogue.Find(name); err != nil {
			t.Error(err)
		}
	}
}

const sum = "7d6355852aeb6dbcd191bcda7cd74f1536cfe5cbf8a10495a7283a8396e4b75b"

func image(name, version string, aliases ...string) Image {
	return Image{
		Name: name, Version: version, Aliases: aliases, Size: "1Gi",
		Sources: []Source{{Arch: "amd64", URL: "https://example.com/x.img", Checksum: sum}},
	}
}

func TestFind(t *testing.T) {
	catalogue := &Catalogue{Images: []Image{image("debian", "13", "trixie"), image("debian", "12"), image("arch", "1")}}
	for ref, want := range map[string]string{
		"debian": "debian/13", "debian/12": "debian/12", "debian/trixie": "debian/13", "arch": "arch/1",
	} {
		if got, err := catalogue.Find(ref); err != nil || got.Ref() != want {
			t.Errorf("%s: %v, %v; want %s", ref, got, err, want)
		}
	}
	for ref, want := range map[string]string{
		"debian/11": "there is no image debian/11 in the catalogue; there is debian/13, debian/12",
		"ubuntu":    "there is no image ubuntu in the catalogue; there are images of debian, arch",
		"Debian":    `"Debian" is no image; write NAME or NAME/VERSION, such as debian/13`,
		"debian/":   `"debian/" is no image; write NAME or NAME/VERSION, such as debian/13`,
	} {
		if _, err := catalogue.Find(ref); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", ref, err, want)
		}
	}
	debian, _ := catalogue.Find("debian")
	if _, err := debian.Source("arm64"); err == nil ||
		err.Error() != "image debian/13 is not there for architecture arm64; it is for amd64" {
		t.Error(err)
	}
}

// A later catalogue replaces an image of the same name and version, and its own newer versions come first.
func TestMerge(t *testing.T) {
	first := &Catalogue{Images: []Image{image("debian", "13"), image("debian", "12"), image("ubuntu", "24.04")}}
	mine := image("debian", "12")
	mine.Title = "mine"
	second := &Catalogue{Images: []Image{image("debian", "14"), mine, image("golden", "1")}}
	var got []string
	for _, i := range Merge(first, second).Images {
		got = append(got, i.Ref()+i.Title)
	}
	want := []string{"debian/14", "debian/13", "debian/12mine", "golden/1", "ubuntu/24.04"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	const head = "apiVersion: cli.virtkit.io/v1\nkind: ImageCatalogue\nimages:\n"
	entry := func(changes ...string) string {
		text := "- {name: a, version: b, size: 1Gi, user: u, sources: [{arch: amd64, url: 'https://h/x', checksum: '" +
			sum + "'}]}\n"
		return strings.NewReplacer(changes...).Replace(text)
	}
	if _, err := Parse([]byte(head + entry())); err != nil {
		t.Fatal(err)
	}
	const file = "'https://h/x', checksum: '" + sum + "'"
	const of = "'docker://h/x:1', containerPath: /disk/a, pullSecret: s"
	if c, err := Parse([]byte(head + entry(file, of))); err != nil {
		t.Error(err)
	} else if disk, ok := c.Images[0].Sources[0].ContainerDisk(); !ok || disk.Image != "h/x:1" ||
		disk.Path != "/disk/a" || disk.PullSecret != "s" {
		t.Errorf("%+v", disk)
	}
	for text, want := range map[string]string{
		head + entry("https://h/x", "docker://h/x"):               "sources[0].checksum: a container image is",
		head + entry(file, "'docker://H/X'"):                      `sources[0].url: containerDisk.image: "H/X"`,
		head + entry(file, "'docker://h/x', containerPath: a"):    `containerDisk.path: "a" is no absolute path`,
		head + entry("checksum:", "containerPath: /a, checksum:"): "containerPath and pullSecret are about a",
		"kind: Pod":                                      `apiVersion and kind are "" and "Pod": write cli.virtkit.io/v1 and ImageCatalogue`,
		head + entry("size: 1Gi", "sise: 1Gi"):           `unknown field "sise"`,
		head + entry("name: a", "name: A"):               `images[0]: name: "A" is no name`,
		head + entry("version: b", "version: ''"):        `images[0]: version: "" is no version`,
		head + entry("user: u", "user: ro:ot"):           `images[0]: user: "ro:ot" is no name of an account`,
		head + entry("size: 1Gi", "size: '-1'"):          `images[0]: size: "-1" is no size of a claim such as 5Gi`,
		head + entry("arch: amd64", "arch: x86_64"):      `images[0]: sources[0].arch: "x86_64" is not one of amd64`,
		head + entry("https://h/x", "ftp://h/x"):         `images[0]: sources[0].url: "ftp://h/x" has not https`,
		head + entry("https://h/x", "https://u:p@h/x"):   `images[0]: sources[0].url: "https://u:p@h/x" is no address`,
		head + entry(sum, "abc"):                         `images[0]: sources[0].checksum: "abc" is no SHA-256 or SHA-512`,
		head + entry("checksum: '"+sum+"'", "arch: x"):   `key "arch" already set`,
		head + entry(", checksum: '"+sum+"'", ""):        `images[0]: sources[0].checksum: none is given`,
		head + entry() + entry():                         `images[1]: a/b is there twice; remove one`,
		head + entry("user: u", "aliases: [b]"):          `images[0]: a/b is there twice; remove one`,
		head + entry("user: u", "aliases: ['../etc']"):   `images[0]: aliases: "../etc" is no version`,
		head + entry("user: u", "instancetype: '../x'"):  `images[0]: instancetype: "../x" is no name`,
		head + entry("user: u", "preference: 'a b'"):     `images[0]: preference: "a b" is no name`,
		head + "- {name: a, version: b, size: 1Gi}\n":    `images[0]: sources: a/b comes from nowhere`,
		head + entry("checksum: '"+sum, "checksums: 'x"): `images[0]: sources[0].checksums: "x" is no address with https`,
		head + entry("'https://h/x', checksum: '"+sum+"'", "'http://h/x', checksums: 'https://h/s'"): `images[0]: ` +
			`sources[0].url: "http://h/x" has not https; http needs a checksum in the catalogue`,
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v\nwant %s", text, err, want)
		}
	}
}

// What docs/cloud-images.md says is verified of the program's images is so.
func TestDocsOfSignatures(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/cloud-images.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	rows := regexp.MustCompile("(?m)^\\| (`[a-z`, ]+`) \\| ([^|]*) \\|")
	for _, row := range rows.FindAllStringSubmatch(string(page), -1) {
		for _, name := range strings.Split(row[1], ", ") {
			said[strings.Trim(name, "`")] = row[2]
		}
	}
	for _, image := range Builtin().Images {
		for _, source := range image.Sources {
			want := "the checksum in the file beside the image"
			switch {
			case source.Signature != nil:
				want = "the signature of the file of checksums"
			case source.Checksum != "":
				want = "the checksum in the catalogue itself"
			}
			if !strings.HasPrefix(said[image.Name], want) {
				t.Errorf("of %s it is said %q to be verified, and it is %s", image.Name, said[image.Name], want)
			}
		}
	}
	if head, err := os.ReadFile("images.yaml"); err != nil || !strings.Contains(string(head), "docs/cloud-images.md") {
		t.Errorf("the catalogue does not lead to its page: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(builtin)
	f.Add([]byte("apiVersion: cli.virtkit.io/v1\nkind: ImageCatalogue\nimages: [{}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		text, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(c.DeepCopyObject(), again.DeepCopyObject()); diff != "" && len(c.Images) > 0 {
			t.Error(diff)
		}
	})
}
