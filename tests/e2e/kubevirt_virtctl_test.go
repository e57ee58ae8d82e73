//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// theirs is KubeVirt's own virtctl, which it runs in a namespace.
type theirs struct{ program, kubeconfig string }

// newTheirs builds it, from a module of its own: it pins older Kubernetes libraries.
func newTheirs(t *testing.T, ns string) theirs {
	t.Helper()
	c, dir := theCluster, t.TempDir()
	v := theirs{filepath.Join(dir, "virtctl"), filepath.Join(dir, "kubeconfig")}
	if err := c.kubeconfig(v.kubeconfig, ns); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", v.program, "kubevirt.io/kubevirt/cmd/virtctl")
	build.Dir = filepath.Join(c.Root, "tests", "compat", "virtctl")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build KubeVirt's virtctl: %v\n%s", err, out)
	}
	return v
}

func (v theirs) run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), v.program, append([]string{"--kubeconfig", v.kubeconfig}, args...)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func (v theirs) must(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, err := v.run(t, args...)
	if err != nil {
		t.Fatalf("KubeVirt's virtctl %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

// otherVerbs are the verbs of KubeVirt's virtctl that ours has as something else, with the command that shows it.
var otherVerbs = map[string][]string{
	// The shell is an argument of completion, which has the same flags for each.
	"completion bash":       {"completion", "bash"},
	"completion fish":       {"completion", "fish"},
	"completion powershell": {"completion", "powershell"},
	"completion zsh":        {"completion", "zsh"},
}

// section is the lines of a help below one of the titles.
func section(help string, titles ...string) string {
	var out strings.Builder
	inside := false
	for line := range strings.Lines(help) {
		switch title := strings.TrimSpace(line); {
		case slices.Contains(titles, title):
			inside = true
		case title != "" && !strings.HasPrefix(line, " "):
			inside = false
		case inside:
			out.WriteString(line)
		}
	}
	return out.String()
}

// flagLine begins the lines of flags, of both programs; verbLine those of verbs.
var (
	flagLine = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([A-Za-z0-9-]+)`)
	verbLine = regexp.MustCompile(`(?m)^  ([a-z][a-z0-9-]*) `)
)

// flagsIn adds the flags of a list to those that there are, by name, with the letter that stands for each, if any.
func flagsIn(flags map[string]string, list string) map[string]string {
	for _, m := range flagLine.FindAllStringSubmatch(list, -1) {
		if _, has := flags[m[2]]; !has {
			flags[m[2]] = m[1]
		}
	}
	return flags
}

// ourFlags are the flags that our help of a verb lists, and that of the verbs below it: KubeVirt's vmexport and
// memory-dump take what is a verb of ours as an argument.
func ourFlags(t *testing.T, verb []string) (flags map[string]string, help string) {
	t.Helper()
	help = theCluster.virtctl(t, nil, append(slices.Clone(verb), "--help")...)
	flags = flagsIn(map[string]string{}, section(help, "Options:"))
	if len(verb) == 0 {
		return flags, help
	}
	for _, m := range verbLine.FindAllStringSubmatch(section(help, "Commands:"), -1) {
		below, _ := ourFlags(t, append(slices.Clone(verb), m[1]))
		for name, letter := range below {
			if _, has := flags[name]; !has {
				flags[name] = letter
			}
		}
	}
	return flags, help
}

// hasVerb checks that our virtctl has a verb of KubeVirt's, each flag of it, and each verb below it, as the helps of
// both list them. Neither lists flags that are hidden. Of no verb it is the whole program.
func hasVerb(t *testing.T, kubevirt theirs, verb []string) {
	t.Helper()
	theirHelp, more, err := kubevirt.run(t, append(slices.Clone(verb), "--help")...)
	if err != nil {
		t.Fatalf("KubeVirt's virtctl %v --help: %v\n%s", verb, err, more)
	}
	theirHelp += more
	name := strings.Join(verb, " ")
	if other := otherVerbs[name]; other != nil {
		if out := theCluster.virtctl(t, nil, other...); out == "" {
			t.Errorf("virtctl %v, which is ours of %s, prints nothing", other, name)
		}
		return
	}
	flags, help := ourFlags(t, verb)
	usage := regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(strings.TrimSpace("virtctl "+name)) + `( |$)`)
	if !usage.MatchString(section(help, "Usage:")) {
		t.Errorf("our virtctl has no verb %q; its help is\n%s", name, help)
		return
	}
	for flag, letter := range flagsIn(map[string]string{}, section(theirHelp, "Flags:")) {
		switch has, ok := flags[flag]; {
		case !ok:
			t.Errorf("virtctl %s has no flag --%s, which KubeVirt's has", name, flag)
		case letter != "" && letter != has:
			t.Errorf("virtctl %s has -%s for --%s, and KubeVirt's has -%s", name, has, flag, letter)
		}
	}
	verbs := verbLine.FindAllStringSubmatch(section(theirHelp, "Available Commands:"), -1)
	if len(verb) == 0 {
		if len(verbs) < 30 { // else its help is not understood
			t.Errorf("KubeVirt's virtctl lists %d verbs:\n%s", len(verbs), theirHelp)
		}
		globals := kubevirt.must(t, "options")
		wanted := flagsIn(map[string]string{}, globals)
		ours := flagsIn(map[string]string{}, theCluster.virtctl(t, nil, "options"))
		for flag, letter := range wanted {
			if has, ok := ours[flag]; !ok || letter != "" && letter != has {
				t.Errorf("our virtctl has no global flag --%s with the letter %q, as KubeVirt's", flag, letter)
			}
		}
		if len(wanted) < 15 {
			t.Errorf("KubeVirt's virtctl lists %d global flags:\n%s", len(wanted), globals)
		}
	}
	for _, m := range verbs {
		hasVerb(t, kubevirt, append(slices.Clone(verb), m[1]))
	}
}

// Our virtctl has every verb and flag that the help of KubeVirt's lists. KubeVirt's own makes an export of a stopped
// VM, downloads its disk compressed and raw and its manifests, and deletes it: byte for byte what was uploaded. Its
// image-upload speaks CDI's protocol, and ends with its time where no pod of CDI's comes; the claim that it has made
// takes an image by virtkit's.
func TestKubeVirtVirtctl(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	kubevirt := newTheirs(t, ns)
	t.Run("help", func(t *testing.T) { hasVerb(t, kubevirt, nil) })
	dir := t.TempDir()
	data := make([]byte, 40<<20)
	_, _ = rand.Read(data[8<<20 : 24<<20]) // never fails; the rest is zeros
	image := filepath.Join(dir, "disk.img")
	if err := os.WriteFile(image, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c.virtctl(t, nil, "-n", ns, "image-upload", "pvc", "disk", "--size=64Mi", "--image-path="+image,
		"--volume-mode=block", "--wait-secs=120")
	if err := c.Client.Create(t.Context(), newVM(ns, "vm", v1.RunStrategyHalted, withDisks("disk"))); err != nil {
		t.Fatal(err)
	}

	kubevirt.must(t, "vmexport", "create", "theirs", "--vm=vm", "--ttl=1h")
	raw, packed := filepath.Join(dir, "raw"), filepath.Join(dir, "packed")
	kubevirt.must(t, "vmexport", "download", "theirs", "--volume=disk", "--format=raw", "--output="+raw,
		"--port-forward", "--readiness-timeout=3m")
	kubevirt.must(t, "vmexport", "download", "theirs", "--volume=disk", "--output="+packed, "--port-forward",
		"--readiness-timeout=3m")
	check := func(what string, got []byte) {
		t.Helper()
		if len(got) < len(data) || !bytes.Equal(got[:len(data)], data) || len(bytes.Trim(got[len(data):], "\x00")) > 0 {
			t.Errorf("%s: %d bytes that are not the disk's", what, len(got))
		}
	}
	got, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	check("raw", got)
	file, err := os.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = io.ReadAll(unpacked); err != nil {
		t.Fatal(err)
	}
	check("compressed", got)
	manifests := kubevirt.must(t, "vmexport", "download", "theirs", "--manifest", "--include-secret", "--port-forward",
		"--readiness-timeout=3m")
	for _, want := range []string{"kind: VirtualMachine\n", "kind: DataVolume\n", "name: header-secret-theirs"} {
		if !strings.Contains(manifests, want) {
			t.Errorf("the manifests lack %q:\n%s", want, manifests)
		}
	}
	kubevirt.must(t, "vmexport", "delete", "theirs")
	if _, err := export.Get(t.Context(), c.api(t), ns, "theirs"); !apierrors.IsNotFound(err) {
		t.Errorf("the export is there still: %v", err)
	}

	out, errOut, err := kubevirt.run(t, "image-upload", "pvc", "late", "--size=512Mi", "--image-path="+tinyDisk,
		"--access-mode=ReadWriteOnce", "--wait-secs=4")
	said := out + errOut
	if err == nil || !strings.Contains(said, "Waiting for PVC late upload pod to be ready") ||
		!strings.Contains(said, "deadline") { // exceeded, or its client's limit of requests would exceed it
		t.Errorf("an upload without CDI did not end with its time: %v\n%s", err, said)
	}
	claim, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("KubeVirt's virtctl has made no claim: %v\n%s", err, said)
	}
	if uploads.AskedFor(claim.Annotations) || claim.Status.Phase == corev1.ClaimLost {
		t.Errorf("claim late: %v, %s", claim.Annotations, claim.Status.Phase)
	}
	c.virtctl(t, nil, "-n", ns, "image-upload", "pvc", "late", "--no-create", "--image-path="+tinyDisk,
		"--wait-secs=120")
	bootsFrom(t, ns, "late")
}
