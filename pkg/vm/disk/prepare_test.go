package disk

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// podDirs are a pod's directories below a temporary one.
func podDirs(t *testing.T) Dirs {
	t.Helper()
	root := t.TempDir()
	d := Dirs{
		Disks: filepath.Join(root, "disks"), ContainerDisks: filepath.Join(root, "containers"),
		Claims: filepath.Join(root, "claims"), BlockDevices: filepath.Join(root, "block"),
		Secrets: filepath.Join(root, "secrets"), Credentials: filepath.Join(root, "credentials"),
	}
	for _, dir := range []string{
		d.Disks, d.ContainerDisks + "/vol/disk", d.Claims + "/vol", d.BlockDevices, d.Secrets + "/vol",
		d.Secrets + "/vol-networkdata", d.Credentials + "/keys",
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// recorder stands in for qemu-img: it writes down the calls and makes the file.
type recorder struct{ calls []string }

func (r *recorder) run(_ context.Context, name string, args ...string) error {
	r.calls = append(r.calls, name+" "+strings.Join(args, " "))
	return os.WriteFile(args[len(args)-2], []byte("made"), 0o600)
}

func TestPrepareContainerDisk(t *testing.T) {
	dirs := podDirs(t)
	image := dirs.ContainerDisks + "/vol/disk/tiny.qcow2"
	write(t, image, qcow2(3, 40<<20, nil))
	var r recorder
	got, err := Prepare(t.Context(), vmiWith(asDisk, containerDisk), dirs, r.run)
	if err != nil {
		t.Fatal(err)
	}
	overlay := dirs.Disks + "/vol.qcow2"
	want := "qemu-img create -q -f qcow2 -u -b " + image + " -F qcow2 " + overlay + " 41943040"
	if len(r.calls) != 1 || r.calls[0] != want {
		t.Errorf("ran %q, want %q", r.calls, want)
	}
	if got["vol"].Path != overlay || got["vol"].Backing.Path != image {
		t.Errorf("%+v", got)
	}
}

// TestPrepareWithQEMU lets the real qemu-img make the images, where it is installed.
func TestPrepareWithQEMU(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not installed")
	}
	run := func(ctx context.Context, name string, args ...string) error {
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	}
	dirs := podDirs(t)
	image := dirs.ContainerDisks + "/vol/disk/tiny.qcow2"
	if err := run(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", image, "40M"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time over the first
		got, err := Prepare(t.Context(), vmiWith(asDisk, containerDisk), dirs, run)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(got["vol"].Path)
		if err != nil {
			t.Fatal(err)
		}
		// Our own overlay is what ReadHeader refuses in a container disk.
		if _, err := ReadHeader(f, 1<<20); err == nil || !strings.Contains(err.Error(), "backing file") {
			t.Errorf("%v", err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContainerDiskPaths(t *testing.T) {
	for _, tc := range []struct {
		name  string
		path  string
		files []string
		want  string // the image, or the error when it begins with !
	}{
		{"only file", "", []string{"disk/a.img"}, "disk/a.img"},
		{"named", "/images/b.img", []string{"disk/a.img", "images/b.img"}, "images/b.img"},
		{"two files", "", []string{"disk/a.img", "disk/b.img"}, "!has 2 files in /disk"},
		{"no file", "", nil, "!has 0 files"},
		{"missing", "/nope", nil, "!has no file /nope"},
		{"climbs out", "/../../secret", nil, "!has no file /secret"},
		{"directory", "/disk", nil, "!not a regular file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dirs := podDirs(t)
			for _, f := range tc.files {
				path := filepath.Join(dirs.ContainerDisks, "vol", f)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				write(t, path, make([]byte, 512))
			}
			src := v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "img", Path: tc.path}}
			facts, err := inspect(vmiWith(asDisk, src), dirs)
			if bad, ok := strings.CutPrefix(tc.want, "!"); ok {
				if err == nil || !strings.Contains(err.Error(), bad) || !errors.Is(err, ErrInvalid) {
					t.Errorf("got %v, want %q", err, bad)
				}
				return
			}
			if err != nil || facts["vol"].Path != filepath.Join(dirs.ContainerDisks, "vol", tc.want) {
				t.Errorf("got %+v, %v", facts, err)
			}
		})
	}
}

func TestContainerDiskLinksAreNotFollowed(t *testing.T) {
	dirs := podDirs(t)
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, make([]byte, 512))
	if err := os.Symlink(secret, dirs.ContainerDisks+"/vol/disk/a.img"); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect(vmiWith(asDisk, containerDisk), dirs); err == nil ||
		!strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

func TestContainerDiskNotMounted(t *testing.T) {
	dirs := podDirs(t)
	if err := os.RemoveAll(dirs.ContainerDisks); err != nil {
		t.Fatal(err)
	}
	_, err := Prepare(t.Context(), vmiWith(asDisk, containerDisk), dirs, nil)
	if !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want one that is worth trying again", err)
	}
}

func TestPrepareClaim(t *testing.T) {
	dirs := podDirs(t)
	vmi := withClaimInfo(vmiWith(asDisk, claimSource(false)), v1.PersistentVolumeClaimInfo{Capacity: storage("64Mi")})
	got, err := Prepare(t.Context(), vmi, dirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	image := dirs.Claims + "/vol/disk.img"
	info, err := os.Stat(image)
	if err != nil || info.Size() != 64<<20 || got["vol"].Path != image {
		t.Fatalf("%v, %v, %+v", info, err, got)
	}
	// Nothing else is left in the claim, and what the guest wrote stays.
	entries, err := os.ReadDir(dirs.Claims + "/vol")
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	write(t, image, []byte("the guest's"))
	if _, err := Prepare(t.Context(), vmi, dirs, nil); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(image); err != nil || string(b) != "the guest's" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestCreateRawLosesTheRace(t *testing.T) {
	image := filepath.Join(t.TempDir(), "disk.img")
	write(t, image, []byte("first"))
	if err := createRaw(image, 1<<20); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(image))
	if b, readErr := os.ReadFile(image); err != nil || readErr != nil || string(b) != "first" || len(entries) != 1 {
		t.Errorf("%q, %v, %v", b, entries, err)
	}
}

func TestClaimOddities(t *testing.T) {
	dirs := podDirs(t)
	vmi := vmiWith(asDisk, claimSource(false))
	write(t, dirs.Claims+"/vol/disk.img", nil)
	if _, err := inspect(vmi, dirs); err == nil || !strings.Contains(err.Error(), "disk.img is empty") {
		t.Errorf("empty image: %v", err)
	}
	if err := os.Remove(dirs.Claims + "/vol/disk.img"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", dirs.Claims+"/vol/disk.img"); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect(vmi, dirs); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("link: %v", err)
	}
	if err := os.RemoveAll(dirs.Claims + "/vol"); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect(vmi, dirs); err == nil || !strings.Contains(err.Error(), "claim pvc is not mounted") {
		t.Errorf("not mounted: %v", err)
	}
	write(t, dirs.BlockDevices+"/vol", []byte("x"))
	if _, err := inspect(vmi, dirs); err == nil || !strings.Contains(err.Error(), "is not a device") {
		t.Errorf("file as device: %v", err)
	}
}

func TestCloudInitSecrets(t *testing.T) {
	dirs := podDirs(t)
	src := v1.CloudInitNoCloudSource{
		UserDataSecretRef:    &corev1.LocalObjectReference{Name: "user"},
		NetworkDataSecretRef: &corev1.LocalObjectReference{Name: "net"},
	}
	vmi := vmiWith(asDisk, v1.VolumeSource{CloudInitNoCloud: &src})
	if _, err := inspect(vmi, dirs); err == nil || !strings.Contains(err.Error(), "secret user has no key userdata") {
		t.Errorf("no key: %v", err)
	}
	write(t, dirs.Secrets+"/vol/userData", []byte("u"))
	write(t, dirs.Secrets+"/vol-networkdata/networkdata", []byte("n"))
	facts, err := inspect(vmi, dirs)
	if err != nil || string(facts["vol"].UserData) != "u" || string(facts["vol"].NetworkData) != "n" {
		t.Errorf("%+v, %v", facts, err)
	}
	got, err := Prepare(t.Context(), vmi, dirs, nil)
	if err != nil || got["vol"].Path != dirs.Disks+"/vol.iso" {
		t.Errorf("%+v, %v", got, err)
	}
	drive := v1.CloudInitConfigDriveSource(src)
	facts, err = inspect(vmiWith(asDisk, v1.VolumeSource{CloudInitConfigDrive: &drive}), dirs)
	if err != nil || string(facts["vol"].UserData) != "u" || string(facts["vol"].NetworkData) != "n" {
		t.Errorf("config drive: %+v, %v", facts, err)
	}
}

func TestCloudInitKeys(t *testing.T) {
	dirs := podDirs(t)
	vmi := vmiWith(asDisk, cloudInit)
	vmi.Spec.AccessCredentials = []v1.AccessCredential{{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
		Source: v1.SSHPublicKeyAccessCredentialSource{Secret: &v1.AccessCredentialSecretSource{SecretName: "keys"}},
		PropagationMethod: v1.SSHPublicKeyAccessCredentialPropagationMethod{
			NoCloud: &v1.NoCloudSSHPublicKeyAccessCredentialPropagation{},
		},
	}}}
	write(t, dirs.Credentials+"/keys/b", []byte("ssh-ed25519 BBBB\r\n\n# no key\nssh-rsa AAAA\n"))
	write(t, dirs.Credentials+"/keys/a", []byte("ssh-rsa AAAA"))
	write(t, dirs.Credentials+"/keys/..data", []byte("the kubelet's own"))
	facts, err := inspect(vmi, dirs)
	if err != nil || !slices.Equal(facts["vol"].PublicKeys, []string{"ssh-rsa AAAA", "ssh-ed25519 BBBB"}) {
		t.Errorf("%q, %v", facts["vol"].PublicKeys, err)
	}
	drive := vmiWith(asDisk, v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "x"}})
	drive.Spec.AccessCredentials = vmi.Spec.AccessCredentials
	if facts, err := inspect(drive, dirs); err != nil || len(facts["vol"].PublicKeys) != 0 {
		t.Errorf("a config drive has NoCloud's keys: %q, %v", facts["vol"].PublicKeys, err)
	}
	drive.Spec.AccessCredentials = []v1.AccessCredential{*vmi.Spec.AccessCredentials[0].DeepCopy()}
	drive.Spec.AccessCredentials[0].SSHPublicKey.PropagationMethod = v1.SSHPublicKeyAccessCredentialPropagationMethod{
		ConfigDrive: &v1.ConfigDriveSSHPublicKeyAccessCredentialPropagation{},
	}
	if facts, err := inspect(drive, dirs); err != nil || len(facts["vol"].PublicKeys) != 2 {
		t.Errorf("config drive: %q, %v", facts["vol"].PublicKeys, err)
	}
	write(t, dirs.Credentials+"/keys/c", []byte(strings.Repeat("x", maxPublicKey+1)))
	if _, err := inspect(vmi, dirs); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "xxx") {
		t.Errorf("a huge key: %v", err)
	}
	vmi.Spec.AccessCredentials[0].SSHPublicKey.Source.Secret.SecretName = "other"
	if _, err := inspect(vmi, dirs); err == nil || !strings.Contains(err.Error(), "accessCredentials: secret other") {
		t.Errorf("no secret: %v", err)
	}
}
