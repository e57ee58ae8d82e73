// Package images knows cloud images: a catalogue of those that distributions publish, downloads that are verified by
// published checksums, and the claims of a cluster that have one. The catalogue in the program (images.yaml) is
// followed by the user's own.
package images

import (
	"cmp"
	_ "embed"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// Kind is the kind of a catalogue, of version action.ReportVersion.
const Kind = "ImageCatalogue"

//go:embed images.yaml
var builtin []byte

// Catalogue is a list of images that can be pulled.
type Catalogue struct {
	metav1.TypeMeta `json:",inline"`
	// Images are the images, of one name the newest version first.
	Images []Image `json:"images"`
}

// Image is an entry of a catalogue: an operating system's disk image, for one or more architectures.
type Image struct {
	// Name is what is installed, such as debian; a DNS label.
	Name string `json:"name"`
	// Version is the version of it, such as 13: lower-case letters, digits, dots and dashes.
	Version string `json:"version"`
	// Aliases are other names of the version, such as trixie.
	Aliases []string `json:"aliases,omitempty"`
	// Title is what people call it.
	Title string `json:"title,omitempty"`
	// User is the account that cloud-init makes by default.
	User string `json:"user,omitempty"`
	// Instancetype is the cluster-wide instance type of VMs that boot from it.
	Instancetype string `json:"instancetype,omitempty"`
	// Preference is the cluster-wide preference of VMs that boot from it.
	Preference string `json:"preference,omitempty"`
	// Size is the size of the claim that it is pulled to, such as 5Gi.
	Size string `json:"size"`
	// Sources are where it comes from, one for each architecture.
	Sources []Source `json:"sources"`
}

// Source is the file of an image, or a container image. Of a file Checksum or Checksums is set.
type Source struct {
	// Arch is the architecture, as Go and Kubernetes name it: amd64, arm64 or s390x.
	Arch string `json:"arch"`
	// URL is the address of the file; with https, or, if Checksum is set, with http. docker://IMAGE is a container
	// disk, which the cluster pulls.
	URL string `json:"url"`
	// ContainerPath is, of a container disk, the path of the disk in it; the only file below /disk when it is empty.
	ContainerPath string `json:"containerPath,omitempty"`
	// PullSecret is, of a container disk, the Secret of the claim's namespace by which it is pulled.
	PullSecret string `json:"pullSecret,omitempty"`
	// Checksum is the SHA-256 or SHA-512 checksum of the file, hexadecimal.
	Checksum string `json:"checksum,omitempty"`
	// Checksums is the address, with https, of a file that has the checksum.
	Checksums string `json:"checksums,omitempty"`
	// Signature, if Checksums is set, says how that file is signed; without it, it is as good as its address.
	Signature *Signature `json:"signature,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *Catalogue) DeepCopyObject() runtime.Object {
	out := *c
	out.Images = slices.Clone(c.Images)
	for i := range out.Images {
		out.Images[i].Aliases = slices.Clone(c.Images[i].Aliases)
		out.Images[i].Sources = slices.Clone(c.Images[i].Sources)
		for n := range out.Images[i].Sources {
			if s := &out.Images[i].Sources[n]; s.Signature != nil {
				s.Signature = new(*s.Signature)
			}
		}
	}
	return &out
}

// Ref returns the reference of an image: NAME/VERSION.
func (i *Image) Ref() string { return i.Name + "/" + i.Version }

// Builtin returns the catalogue of the program.
func Builtin() *Catalogue {
	c, err := Parse(builtin)
	if err != nil {
		panic("the program's own catalogue: " + err.Error()) // a test reads it
	}
	return c
}

// Empty returns a catalogue without images.
func Empty() *Catalogue {
	return &Catalogue{TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind}}
}

// Parse reads a catalogue and checks it whole. The error names the image and the field.
func Parse(data []byte) (*Catalogue, error) {
	c := &Catalogue{}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("it is no %s: %w", Kind, err)
	}
	if c.APIVersion != action.ReportVersion || c.Kind != Kind {
		return nil, fmt.Errorf("apiVersion and kind are %q and %q: write %s and %s", c.APIVersion, c.Kind,
			action.ReportVersion, Kind)
	}
	seen := map[string]bool{}
	for i := range c.Images {
		image := &c.Images[i]
		if err := image.Check(); err != nil {
			return nil, fmt.Errorf("images[%d]: %w", i, err)
		}
		for _, version := range append([]string{image.Version}, image.Aliases...) {
			ref := image.Name + "/" + version
			if seen[ref] {
				return nil, fmt.Errorf("images[%d]: %s is there twice; remove one", i, ref)
			}
			seen[ref] = true
		}
	}
	return c, nil
}

var (
	nameForm    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)
	versionForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?$`)
	userForm    = regexp.MustCompile(`^[a-z_][a-z0-9._-]{0,31}$`)
	objectForm  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
)

var architectures = []string{"amd64", "arm64", "s390x"}

// Check returns what is wrong with an image; the error begins with the field.
func (i *Image) Check() error {
	if err := i.CheckLabels(); err != nil {
		return err
	}
	if len(i.Sources) == 0 {
		return fmt.Errorf("sources: %s comes from nowhere; name a url and a checksum", i.Ref())
	}
	for _, alias := range i.Aliases {
		if !versionForm.MatchString(alias) {
			return fmt.Errorf("aliases: %q is no version: it takes up to 32 lower-case letters, digits, . and -", alias)
		}
	}
	switch size, err := resource.ParseQuantity(i.Size); {
	case err != nil || size.Sign() <= 0:
		return fmt.Errorf("size: %q is no size of a claim such as 5Gi", i.Size)
	case sizing.NoUnit(size):
		return fmt.Errorf("size: %s is less than 1Mi; a size has a unit, such as 5Gi", i.Size)
	}
	arch := map[string]bool{}
	for n := range i.Sources {
		s := &i.Sources[n]
		if err := s.check(); err != nil {
			return fmt.Errorf("sources[%d].%w", n, err)
		}
		if arch[s.Arch] {
			return fmt.Errorf("sources[%d].arch: %s is there twice; remove one", n, s.Arch)
		}
		arch[s.Arch] = true
	}
	return nil
}

// CheckLabels returns what is wrong with what a claim with the image says of it; the error begins with the field.
func (i *Image) CheckLabels() error {
	switch {
	case !nameForm.MatchString(i.Name):
		return fmt.Errorf("name: %q is no name: it takes up to 32 lower-case letters, digits and -", i.Name)
	case !versionForm.MatchString(i.Version):
		return fmt.Errorf("version: %q is no version: it takes up to 32 lower-case letters, digits, . and -", i.Version)
	case i.User != "" && !userForm.MatchString(i.User):
		return fmt.Errorf("user: %q is no name of an account", i.User)
	case i.Instancetype != "" && !objectForm.MatchString(i.Instancetype):
		return fmt.Errorf("instancetype: %q is no name of an instance type", i.Instancetype)
	case i.Preference != "" && !objectForm.MatchString(i.Preference):
		return fmt.Errorf("preference: %q is no name of a preference", i.Preference)
	}
	return nil
}

// ContainerScheme is what the reference of a container image begins with; CDI's.
const ContainerScheme = "docker://"

// ContainerDisk returns the container image that a source is; false for a file.
func (s *Source) ContainerDisk() (disk uploads.ContainerDisk, ok bool) {
	image, ok := strings.CutPrefix(s.URL, ContainerScheme)
	if !ok {
		return disk, false
	}
	return uploads.ContainerDisk{Image: image, Path: s.ContainerPath, PullSecret: s.PullSecret}, true
}

func (s *Source) check() error {
	if !slices.Contains(architectures, s.Arch) {
		return fmt.Errorf("arch: %q is not one of %s", s.Arch, strings.Join(architectures, ", "))
	}
	if disk, ok := s.ContainerDisk(); ok {
		if s.Checksum != "" || s.Checksums != "" || s.Signature != nil {
			return fmt.Errorf("checksum: a container image is verified by its digest; write %sIMAGE@sha256:DIGEST, "+
				"and no checksum", ContainerScheme)
		}
		if err := disk.Check(); err != nil {
			return fmt.Errorf("url: %w", err)
		}
		return nil
	}
	address, err := url.Parse(s.URL)
	switch {
	case s.ContainerPath != "" || s.PullSecret != "":
		return fmt.Errorf("containerPath and pullSecret are about a container image; write its url as %sIMAGE",
			ContainerScheme)
	case err != nil || address.Host == "" || address.User != nil:
		return fmt.Errorf("url: %q is no address of a file", s.URL)
	case address.Scheme != "https" && (address.Scheme != "http" || s.Checksum == ""):
		return fmt.Errorf("url: %q has not https; http needs a checksum in the catalogue", s.URL)
	case s.Checksum == "" && s.Checksums == "":
		return fmt.Errorf("checksum: none is given; write it, or the address of a file that has it as checksums")
	case s.Checksum != "" && s.Checksums != "":
		return fmt.Errorf("checksum and checksums exclude each other; remove one")
	case s.Checksum != "":
		if _, err := ParseChecksum(s.Checksum); err != nil {
			return fmt.Errorf("checksum: %w", err)
		}
		if s.Signature != nil {
			return fmt.Errorf("signature: it signs a file of checksums, and the checksum is here; remove one")
		}
		return nil
	}
	if !secure(s.Checksums) {
		return fmt.Errorf("checksums: %q is no address with https", s.Checksums)
	}
	if s.Signature != nil {
		if err := s.Signature.check(); err != nil {
			return fmt.Errorf("signature.%w", err)
		}
	}
	return nil
}

// ParseChecksum reads a hexadecimal checksum of SHA-256 or SHA-512, by its length.
func ParseChecksum(text string) ([]byte, error) {
	sum, err := hex.DecodeString(strings.ToLower(text))
	if err != nil || len(sum) != 32 && len(sum) != 64 {
		return nil, fmt.Errorf("%q is no SHA-256 or SHA-512 checksum: 64 or 128 hexadecimal digits", cut(text))
	}
	return sum, nil
}

func cut(text string) string {
	const most = 140
	return text[:min(len(text), most)]
}

// Merge returns the images of several catalogues; one of a later catalogue replaces that of the same name and version.
// New ones of a later catalogue stand before older ones of their name.
func Merge(catalogues ...*Catalogue) *Catalogue {
	out := Empty()
	for _, c := range catalogues {
		var added []Image
		for _, image := range c.Images {
			at := slices.IndexFunc(out.Images, func(old Image) bool { return old.Ref() == image.Ref() })
			if at >= 0 {
				out.Images[at] = image
			} else {
				added = append(added, image)
			}
		}
		out.Images = append(added, out.Images...)
	}
	slices.SortStableFunc(out.Images, func(a, b Image) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// ParseRef splits NAME or NAME/VERSION.
func ParseRef(ref string) (name, version string, err error) {
	name, version, given := strings.Cut(ref, "/")
	if !nameForm.MatchString(name) || given && !versionForm.MatchString(version) {
		return "", "", fmt.Errorf("%q is no image; write NAME or NAME/VERSION, such as debian/13", cut(ref))
	}
	return name, version, nil
}

// NotFoundError is an image that no catalogue has.
type NotFoundError struct {
	Ref string
	// Versions are those that there are of the name; Names those that there are at all, when there are none of it.
	Versions, Names []string
}

// Unwrap returns action.ErrNotFound.
func (e *NotFoundError) Unwrap() error { return action.ErrNotFound }

func (e *NotFoundError) Error() string {
	if len(e.Versions) > 0 {
		return fmt.Sprintf("there is no image %s in the catalogue; there is %s", e.Ref, strings.Join(e.Versions, ", "))
	}
	return fmt.Sprintf("there is no image %s in the catalogue; there are images of %s", e.Ref,
		strings.Join(e.Names, ", "))
}

// Find returns the image of a reference: of NAME alone the newest version.
func (c *Catalogue) Find(ref string) (*Image, error) {
	name, version, err := ParseRef(ref)
	if err != nil {
		return nil, err
	}
	missing := &NotFoundError{Ref: ref}
	for i := range c.Images {
		image := &c.Images[i]
		if !slices.Contains(missing.Names, image.Name) {
			missing.Names = append(missing.Names, image.Name)
		}
		if image.Name != name {
			continue
		}
		if version == "" || image.Version == version || slices.Contains(image.Aliases, version) {
			return image, nil
		}
		missing.Versions = append(missing.Versions, image.Ref())
	}
	return nil, missing
}

// Source returns where the image comes from for an architecture.
func (i *Image) Source(arch string) (*Source, error) {
	var have []string
	for n := range i.Sources {
		if i.Sources[n].Arch == arch {
			return &i.Sources[n], nil
		}
		have = append(have, i.Sources[n].Arch)
	}
	return nil, fmt.Errorf("image %s is not there for architecture %s; it is for %s", i.Ref(), arch,
		strings.Join(have, ", "))
}
