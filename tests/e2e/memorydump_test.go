//go:build e2e

package e2e

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/tests/instance"
)

// The memory of a guest, with what it keeps there, is written to a claim that is made for it, twice; the guest goes on,
// and keeps nothing of it.
func TestMemoryDump(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "dumped", v1.RunStrategyAlways))
	g.waitLogin(t)
	con := g.shell(t, "")
	con.run(t, "A=find-; B=me-in-the-dump; export SECRET=$A$B")

	g.virtctl(t, nil, "-n", ns, "memory-dump", "get", g.name, "--claim-name=dump", "--create-claim", "--wait",
		"--timeout=120s")
	first := g.vm(t).Status.MemoryDumpRequest
	if first == nil || first.Phase != v1.MemoryDumpCompleted || first.StartTimestamp == nil ||
		first.EndTimestamp == nil || first.FileName == nil {
		t.Fatalf("%+v", first)
	}
	// The claim that was made has room for one dump: the next replaces it.
	fetched := filepath.Join(t.TempDir(), "dump.tar.gz")
	g.virtctl(t, nil, "-n", ns, "memory-dump", "get", g.name, "--output="+fetched, "--timeout=120s")
	second := g.vm(t).Status.MemoryDumpRequest
	if second == nil || second.FileName == nil || *second.FileName == *first.FileName {
		t.Fatalf("%+v after %+v", second, first)
	}
	checkDump(t, fetched, *second.FileName)
	g.virtctl(t, nil, "-n", ns, "memory-dump", "download", g.name, "--output="+fetched+"2")
	checkDump(t, fetched+"2", *second.FileName)
	if _, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, "memory-dump",
		"get", g.name, "--claim-name=other"); err == nil || !strings.Contains(stderr, "remove that one first") {
		t.Errorf("to another claim: %v %s", err, stderr)
	}
	g.virtctl(t, nil, "-n", ns, "memory-dump", "remove", g.name, "--wait", "--timeout=60s")
	vmi := g.vmi(t)
	for _, v := range vmi.Spec.Volumes {
		if v.MemoryDump != nil {
			t.Errorf("the instance has volume %s still", v.Name)
		}
	}
	g.waitAttachments(t, 0)
	con = g.again(t)
	expectText(t, con, "echo alive", "alive")

	look := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "look", Namespace: ns},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: ptr(int64(107)), RunAsNonRoot: ptr(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "look", Image: instance.Launcher(),
				VolumeMounts: []corev1.VolumeMount{{Name: "dump", MountPath: "/dump"}},
				Command: []string{
					"/usr/bin/busybox", "sh",
					"-c",
					`cd /dump; for f in *.memory.dump; do echo "$f $(head -c 4 $f | tr -cd A-Z) $(grep -c find-me-in-the-dump $f)"; done`,
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			Volumes: []corev1.Volume{
				{
					Name: "dump",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "dump"},
					},
				},
			},
		},
	}
	if err := c.Client.Create(t.Context(), look); err != nil {
		t.Fatal(err)
	}
	eventually(t, bootTime, "the claim was looked at", func() string {
		pod, err := c.Kube.CoreV1().Pods(ns).Get(t.Context(), "look", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return string(pod.Status.Phase)
		}
		return ""
	})
	said, err := c.Kube.CoreV1().Pods(ns).GetLogs("look", &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if file := *second.FileName; !strings.Contains(string(said), file+" ELF ") ||
		strings.Contains(string(said), file+" ELF 0") || strings.Contains(string(said), *first.FileName) {
		t.Errorf("not just dump %s of this guest, but\n%s", file, said)
	}
}

// checkDump reads an archive with one dump, an ELF core.
func checkDump(t *testing.T, path, name string) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(unzipped)
	var found []string
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		found = append(found, filepath.Base(header.Name))
		magic := make([]byte, 4)
		if _, err := io.ReadFull(files, magic); err != nil || string(magic) != "\x7fELF" {
			t.Errorf("%s begins with %q, %v", header.Name, magic, err)
		}
	}
	if !slices.Equal(found, []string{name}) {
		t.Errorf("%s has %v, want %s", path, found, name)
	}
}
