package imageuploadcmd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	claimPath  = "/api/v1/namespaces/team-a/persistentvolumeclaims/disk"
	claimsPath = "/api/v1/namespaces/team-a/persistentvolumeclaims"
	uploadPath = "/apis/subresources.kubevirt.io/v1/namespaces/team-a/persistentvolumeclaims/disk/upload"
)

// server is an API server on which an upload to claim disk has a state, whatever is asked for.
type server struct {
	*clienttest.API
	t     *testing.T
	state uploads.State

	mu       sync.Mutex
	made     []map[string]any
	requests []uploads.Request
}

func newServer(t *testing.T, state uploads.State) *server {
	t.Helper()
	s := &server{API: clienttest.New(t), t: t, state: state}
	s.Put(uploadPath, http.HandlerFunc(s.upload))
	s.Put(claimsPath, http.HandlerFunc(s.claims))
	const classes = "/apis/storage.k8s.io/v1/storageclasses"
	fast := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}
	s.Put(classes, &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{fast}})
	s.Put(classes+"/fast", &fast)
	return s
}

// withClaim puts claim disk on the server, to which an upload has begun.
func (s *server) withClaim() *server {
	return s.claimed(map[string]string{uploads.AnnotationState: "{}"})
}

func (s *server) claimed(annotations map[string]string) *server {
	s.Put(claimPath, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "disk", Annotations: annotations},
	})
	return s
}

func (s *server) upload(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPut {
		var request uploads.Request
		s.check(json.NewDecoder(r.Body).Decode(&request))
		s.requests = append(s.requests, request)
	}
	w.Header().Set("Content-Type", "application/json")
	s.check(json.NewEncoder(w).Encode(s.state))
}

func (s *server) claims(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	s.check(err)
	var claim map[string]any
	s.check(json.Unmarshal(body, &claim))
	s.made = append(s.made, claim)
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(body)
	s.check(err)
}

func (s *server) check(err error) {
	if err != nil {
		s.t.Error(err)
	}
}

// run runs `virtctl image-upload` in a context whose namespace is team-a;
// its clock goes on by 1.5 s at each look.
func (s *server) run(args ...string) (stdout, stderr string, err error) {
	s.t.Helper()
	return run(s.t, append(args, "--kubeconfig", s.Kubeconfig("team-a"))...)
}

func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := &cli.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	now := time.Unix(0, 0)
	f.Now = func() time.Time {
		now = now.Add(1500 * time.Millisecond)
		return now
	}
	cmd := NewCmdImageUpload(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	f.IO.Flush()
	return out.String(), errOut.String(), err
}

// image writes a raw image of that many bytes.
func image(t *testing.T, name string, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUsage has what no cluster is asked for: the kubeconfig is not there.
func TestUsage(t *testing.T) {
	disk, empty := image(t, "disk.raw", 1<<20), image(t, "empty.raw", 0)
	for args, want := range map[string]string{
		"vm disk --image-path=a": `"vm": an image is uploaded to a claim or a DataVolume; write pvc NAME or dv NAME`,
		"pvc disk":               "which image? Name its file with --image-path",
		"dv disk":                "which image? Name its file with --image-path",
		"":                       "image-upload needs pvc or dv, and a name, got 0 of 2 arguments",
		"pvc --pvc-name=disk":    "image-upload takes no arguments, got",
		"pvc disk --image-path=a --archive-path=b": "--image-path and --archive-path exclude each other; remove one",
		"dv disk --image-path=a --via=native": "a DataVolume needs CDI, through which --via=native does not go; " +
			"leave --via out",
		"pvc disk --archive-path=a --via=native": "--archive-path needs CDI, through which --via=native does not go; " +
			"leave --via out",
		"pvc disk --image-path=a --via=proxy": `--via: "proxy" is not one of auto, cdi, native`,
		"pvc disk --image-path=a --via=cdi --format=raw": "--format is for an upload through the API server; CDI " +
			"finds it out; leave --format out",
		"dv disk --cancel": "--cancel ends an upload through the API server; one through CDI ends with its " +
			"command",
		"pvc disk --image-path=a --cancel": "--cancel ends an upload and sends nothing; leave --image-path out",
		"pvc disk --image-path=a --no-create --size=1Gi": "--size is for a claim that is made; leave out " +
			"--size or --no-create",
		"pvc disk --image-path=a --volume-mode=char": `--volume-mode: "char" is not one of filesystem, block`,
		"pvc disk --image-path=a --access-mode=All": `--access-mode: "All" is not one of ReadWriteOnce, ReadWriteMany, ` +
			"ReadOnlyMany, ReadWriteOncePod",
		"pvc disk --image-path=a --format=vdi": `--format: "vdi" is not one of raw, qcow2, vmdk, vhd, vhdx`,
		"pvc disk --image-path=a --default-instancetype-kind=X": "--default-instancetype-kind is of an instance " +
			"type; name it with --default-instancetype",
		"pvc disk --image-path=a --default-preference-kind=X": "--default-preference-kind is of a preference; " +
			"name it with --default-preference",
		"pvc disk --image-path=a --size=big":  `--size: "big" is not a size; write one such as 10Gi`,
		"pvc disk --image-path=a --size=0":    `--size: "0" is not a size; write one such as 10Gi`,
		"pvc disk --image-path=a --size=-1Gi": `--size: "-1Gi" is not a size; write one such as 10Gi`,
		"pvc disk --image-path=a -o table":    `unknown output format "table"`,
	} {
		_, _, err := run(t, append(strings.Fields(args), "--kubeconfig", "absent")...)
		if err == nil || !strings.HasPrefix(err.Error(), want) || cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%s: %v, exit code %d", args, err, cli.ExitCode(err))
		}
	}
	s := newServer(t, uploads.State{})
	for path, want := range map[string]string{
		filepath.Dir(disk): filepath.Dir(disk) + " is not a regular file; name one with an image",
		disk + ".gone":     disk + ".gone: there is no such file here",
		"":                 "which image? Name its file with --image-path",
	} {
		_, _, err := s.run("pvc", "disk", "--image-path", path)
		if err == nil || err.Error() != want || cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("%q: %v, exit code %d", path, err, cli.ExitCode(err))
		}
	}
	if _, _, err := s.run("pvc", "disk", "--image-path", empty); err == nil ||
		err.Error() != empty+": the image is empty" {
		t.Errorf("an empty image: %v", err)
	}
	if len(s.Asked("")) > 0 {
		t.Errorf("the cluster was asked %v", s.Asked(""))
	}
}

// TestClaim has what becomes of the claim: what is asked for, or why nothing is.
func TestClaim(t *testing.T) {
	disk := image(t, "disk.raw", 32<<20)
	const another = "claim team-a/disk is there already, and was not made for an upload, or has been used since: its " +
		"disk, which may be a VM's, would be replaced; choose another name, or give --no-create to say that you mean it"
	for name, test := range map[string]struct {
		args  string
		there bool
		// another says that a claim is there which no upload has made.
		another bool
		// made says that a claim is there which was made for an upload, of which there was nothing yet.
		made bool
		want string // the claim that is made, or the error
		code int
	}{
		"made": {
			args: "--size=1Gi --storage-class=fast",
			want: `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},` +
				`"storageClassName":"fast","volumeMode":"Filesystem"}`,
		},
		"made as a block device": {
			args: "--size=32Mi --volume-mode=Block --access-mode=ReadWriteMany",
			want: `{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"32Mi"}},"volumeMode":"Block"}`,
		},
		"made as a block device, said in KubeVirt's way": {
			args: "--size=32Mi --block-volume",
			want: `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"32Mi"}},"volumeMode":"Block"}`,
		},
		"there":           {there: true},
		"another's":       {another: true, want: another, code: 1},
		"another's, made": {args: "--size=1Gi", another: true, want: another, code: 1},
		"made before":     {args: "--size=1Gi", made: true},
		"another's, said": {args: "--no-create", another: true},
		"to be there":     {args: "--no-create", there: true},
		"there, not said": {args: "", want: "claim team-a/disk is not there; give --size to have it made", code: 2},
		"of no class": {
			args: "--size=1Gi --storage-class=fats", code: 3,
			want: `--storage-class: storageclasses "fats" not found; did you mean fast?`,
		},
		"there, whatever its class": {
			args: "--size=1Gi --storage-class=fats", there: true,
		},
		"too small": {
			args: "--size=16Mi", code: 2,
			want: "--size: the image's disk has 33554432 bytes, which do not fit into 16Mi; give --size=100Mi or more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, uploads.State{Phase: uploads.Succeeded})
			if test.there {
				s.withClaim()
			}
			if test.another {
				s.claimed(nil)
			}
			if test.made {
				s.claimed(map[string]string{uploads.AnnotationMade: uploads.MadeFor})
			}
			_, _, err := s.run(append([]string{"pvc", "disk", "--image-path", disk}, strings.Fields(test.args)...)...)
			if cli.ExitCode(err) != test.code || err != nil && err.Error() != test.want {
				t.Fatalf("%v, exit code %d", err, cli.ExitCode(err))
			}
			if err != nil || test.want == "" {
				if len(s.made) > 0 {
					t.Errorf("made %v", s.made)
				}
				return
			}
			if len(s.made) != 1 {
				t.Fatalf("made %v", s.made)
			}
			made := &unstructured.Unstructured{Object: s.made[0]}
			if !uploads.AskedFor(made.GetAnnotations()) {
				t.Errorf("another run would not know that the claim was made for an upload: %v", made)
			}
			if spec, err := json.Marshal(s.made[0]["spec"]); err != nil || string(spec) != test.want {
				t.Errorf("made %s, %v", spec, err)
			}
		})
	}
}

// TestRequest has what is asked of virt-api, and what is said at the end.
func TestRequest(t *testing.T) {
	state := uploads.State{
		Phase: uploads.Succeeded, Received: 1 << 20, Size: 1 << 20, Format: imageformat.Raw, SHA256: "ab",
		VirtualSize: 1 << 20, DiskSize: 2 << 20,
	}
	s := newServer(t, state).withClaim()
	disk := image(t, "disk.raw", 1<<20)
	out, errOut, err := s.run("pvc", "disk", "--image-path", disk, "--default-instancetype=u1.small",
		"--default-preference=fedora", "--default-preference-kind=VirtualMachinePreference",
		"--insecure", "--force-bind", "--uploadproxy-url=https://proxy")
	const said = "claim disk has the disk of disk.raw: 1048576 bytes (raw) were sent in 1.5s\n"
	if err != nil || errOut != "" || out != said {
		t.Errorf("%q, %q, %v", out, errOut, err)
	}
	// A raw file without its holes is sent as gzip: what was sent is not the file.
	packed := state
	packed.Received, packed.Compression = 4<<10, imageformat.Gzip
	out, _, err = newServer(t, packed).withClaim().run("pvc", "disk", "--image-path", disk)
	if err != nil || out != "claim disk has the disk of disk.raw: 4096 bytes (raw, gzip) were sent in 1.5s\n" {
		t.Errorf("%q, %v", out, err)
	}
	if len(s.requests) != 1 {
		t.Fatalf("requests %+v", s.requests)
	}
	got := s.requests[0]
	if got.Size != 1<<20 || got.Format != "" || got.Cancel || len(got.Labels) != 3 ||
		got.Labels[uploads.LabelInstancetype] != "u1.small" || got.Labels[uploads.LabelPreference] != "fedora" ||
		got.Labels[uploads.LabelPreferenceKind] != "VirtualMachinePreference" {
		t.Errorf("request %+v", got)
	}
	out, _, err = s.run("pvc", "disk", "--image-path", disk, "-o",
		"jsonpath={.metadata.name} {.bytes} {.sha256} {.diskSize} {.seconds}")
	if err != nil || out != "disk 1048576 ab 2097152 1.5" {
		t.Errorf("%q, %v", out, err)
	}
}

// An upload that failed in the cluster fails here, for the same reason.
func TestFailed(t *testing.T) {
	s := newServer(t, uploads.State{Phase: uploads.Failed, Message: "the image refers to /etc/shadow"}).withClaim()
	_, _, err := s.run("pvc", "disk", "--image-path", image(t, "disk.raw", 1<<20))
	if err == nil || err.Error() != "upload to claim team-a/disk: the image refers to /etc/shadow" ||
		cli.ExitCode(err) != cli.ExitFailure {
		t.Errorf("%v, exit code %d", err, cli.ExitCode(err))
	}
	// The pod does not come.
	s = newServer(t, uploads.State{Phase: uploads.Pending, Message: "no node has the claim's volume"}).withClaim()
	_, _, err = s.run("pvc", "disk", "--image-path", image(t, "disk.raw", 1<<20), "--wait-secs=0")
	if err == nil || cli.ExitCode(err) != cli.ExitTimeout ||
		!strings.HasSuffix(err.Error(), "no node has the claim's volume") {
		t.Errorf("%v, exit code %d", err, cli.ExitCode(err))
	}
}

func TestCancel(t *testing.T) {
	s := newServer(t, uploads.State{Phase: uploads.Receiving, ID: "1234"}).withClaim()
	out, _, err := s.run("pvc", "disk", "--cancel")
	if err != nil || out != "upload to claim disk is being cancelled\n" {
		t.Errorf("%q, %v", out, err)
	}
	if len(s.requests) != 1 || !s.requests[0].Cancel || s.requests[0].ID != "1234" {
		t.Errorf("requests %+v", s.requests)
	}
	s = newServer(t, uploads.State{Phase: uploads.Succeeded}).withClaim()
	if _, _, err = s.run("pvc", "disk", "--cancel"); err == nil || err.Error() !=
		"no image is being uploaded to claim team-a/disk: the last upload has ended (Succeeded)" {
		t.Errorf("%v", err)
	}
	if len(s.requests) > 0 {
		t.Errorf("requests %+v", s.requests)
	}
}

func TestFitting(t *testing.T) {
	for size, want := range map[int64]string{1: "65Mi", 16 << 20: "82Mi", 10 << 30: "11328Mi"} {
		if got := fitting(size); got != want {
			t.Errorf("%d: %s", size, got)
		}
	}
}

func TestComplete(t *testing.T) {
	s := newServer(t, uploads.State{})
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	cmd := NewCmdImageUpload(f)
	f.Flags.AddFlags(cmd.PersistentFlags())
	if err := cmd.ParseFlags([]string{"--kubeconfig", s.Kubeconfig("team-a")}); err != nil {
		t.Fatal(err)
	}
	cmd.SetContext(t.Context())
	for n, want := range map[int][]string{0: {"pvc", "dv"}, 2: nil} {
		if got, _ := cmd.ValidArgsFunction(cmd, make([]string, n), ""); !slices.Equal(got, want) {
			t.Errorf("argument %d: %q", n, got)
		}
	}
}
