package exportcontroller

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run with -update to write it", err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is made; run with -update to accept it:\n%s", file, got)
	}
}

func render(t *testing.T, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestPod(t *testing.T) {
	export := exportOf(exports.KindVM, "vm")
	export.Labels = map[string]string{"app": "backup", "kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "uid"}
	export.Annotations = map[string]string{
		"team": "a", "k8s.v1.cni.cncf.io/networks": "net", "kubectl.kubernetes.io/last-applied-configuration": "{}",
		"container.apparmor.security.beta.kubernetes.io/exporter": "unconfined", "virtkit.io/x": "y",
	}
	volumes := []exports.Volume{
		{Name: "block", Claim: "e-block", Content: exports.Device},
		{Name: "root.0", Claim: "root.0", Content: exports.Disk},
		{Name: "share", Claim: "share", Content: exports.Files},
	}
	facts := Facts{
		Config: config.Config{NodeSelectors: map[string]string{"zone": "a"}}, Image: "virt-launcher:x",
		ImagePullPolicy: corev1.PullIfNotPresent,
		Identity:        "identity", Token: "token", Manifests: "manifests", Made: export.CreationTimestamp,
	}
	golden(t, "pod.yaml", render(t, Pod(export, volumes, facts)))
	golden(t, "service.yaml", render(t, Service(export)))

	facts.Manifests = ""
	pod := Pod(export, nil, facts)
	if text := render(t, pod); strings.Contains(text, "manifest") || strings.Contains(text, "serviceAccount") {
		t.Errorf("without manifests and volumes:\n%s", text)
	}
	// What a snapshot is restored to stays the same; others may write to a VM's disks while the pod is not there.
	for kind, stays := range map[string]bool{
		exports.KindVM: false, exports.KindClaim: false, exports.KindSnapshot: true,
	} {
		export := exportOf(kind, "x")
		export.UID = "one"
		args := strings.Join(Pod(export, nil, facts).Spec.Containers[0].Args, " ")
		if strings.Contains(args, "--tag=one") != stays || strings.Contains(args, "--tag") != stays {
			t.Errorf("%s: %s", kind, args)
		}
	}
}

func TestManifests(t *testing.T) {
	view := ofVM()
	view.VM.Labels = map[string]string{"app": "web"}
	view.VM.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "kept"}
	view.VM.UID, view.VM.ResourceVersion = "uid", "7"
	view.VM.Status.Ready = true
	claim := func(name string) v1.VolumeSource {
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = name
		return v1.VolumeSource{PersistentVolumeClaim: source}
	}
	view.VM.Spec = v1.VirtualMachineSpec{
		RunStrategy: new(v1.RunStrategyHalted),
		DataVolumeTemplates: []v1.DataVolumeTemplateSpec{{
			ObjectMeta: metav1.ObjectMeta{Name: "templated"},
			Spec: cdiv1.DataVolumeSpec{
				SourceRef: &cdiv1.DataVolumeSourceRef{Kind: "DataSource", Name: "fedora"},
				Storage:   &cdiv1.StorageSpec{},
			},
		}},
		Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{Volumes: []v1.Volume{
			{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "templated"}}},
			{Name: "data", VolumeSource: claim("disk")},
			{Name: "share", VolumeSource: claim("share")},
			{Name: "init", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#x"}}},
		}}},
	}
	for _, key := range reserved.Keys() { // are not exported
		metav1.SetMetaDataAnnotation(&view.VM.ObjectMeta, key, "x")
		metav1.SetMetaDataAnnotation(&view.VM.Spec.Template.ObjectMeta, key, "x")
	}
	view.Claims[0].Claim.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "pv",
		StorageClassName: new("local"),
	}
	view.Claims = append(view.Claims, claimOf("templated", corev1.ClaimBound), claimOf("share", corev1.ClaimBound))
	view.Claims[2].Content = exports.Files
	before := view.VM.DeepCopy()
	asJSON, asYAML, err := Manifests(view, "PEM")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "manifests.yaml", string(asYAML))
	var list struct {
		Kind  string
		Items []map[string]any
	}
	if err := json.Unmarshal(asJSON, &list); err != nil {
		t.Fatal(err)
	}
	var documents strings.Builder
	for _, item := range list.Items {
		documents.WriteString(render(t, item) + "---\n")
	}
	if list.Kind != "List" || documents.String() != string(asYAML) {
		t.Errorf("JSON and YAML differ:\n%s", asJSON)
	}
	if render(t, before) != render(t, view.VM) {
		t.Error("the VM of the cache was changed")
	}
	view.VM.Annotations["long"] = strings.Repeat("x", maxManifests)
	if _, _, err := Manifests(view, "PEM"); err == nil || !strings.Contains(err.Error(), "too many for a Secret") {
		t.Errorf("long manifests: %v", err)
	}
}

// issued is a certificate's Secret, and what the Service says of it.
func issued(t *testing.T, export *v1beta1.VirtualMachineExport, suffix string) (*corev1.Secret, *identity) {
	t.Helper()
	made, err := issue(export, suffix, now)
	if err != nil {
		t.Fatal(err)
	}
	service := Service(export)
	service.Annotations = map[string]string{identityAnnotation: made.Annotation}
	return made.Secret, identityOf(service)
}

// The certificate is that of the Service, from an authority of its own, and valid as long as the export.
func TestIdentity(t *testing.T) {
	export := exportOf(exports.KindClaim, "disk")
	secret, identity := issued(t, export, "abcde")
	if secret.Name != "virt-export-e-abcde" || identity.Secret != secret.Name ||
		!metav1.IsControlledBy(secret, export) {
		t.Errorf("%+v, %+v", secret.ObjectMeta, identity)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(identity.Certificate)) {
		t.Fatal("no certificate")
	}
	for _, name := range []string{"virt-export-e.ns.svc", "virt-export-e.ns.svc.cluster.local", "virt-export-e.ns"} {
		options := x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: exports.Expiration(export)}
		if _, err := leaf.Verify(options); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	late := x509.VerifyOptions{Roots: roots, CurrentTime: exports.Expiration(export).Add(2 * slack)}
	if _, err := leaf.Verify(late); err == nil {
		t.Error("it is valid long after the export")
	}
	_, other := issued(t, export, "fghij")
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(other.Certificate))
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err == nil {
		t.Error("an authority has signed twice")
	}
}

// Another export of the same source serves the same OVA: its files have the time of the source.
func TestTimeOfTheSource(t *testing.T) {
	made := func(v View, source *metav1.ObjectMeta, export int64) string {
		v = served(v)
		source.CreationTimestamp = metav1.Unix(1_600_000_000, 0)
		v.Export.CreationTimestamp, v.Export.Status = metav1.Unix(export, 0), &v1beta1.VirtualMachineExportStatus{
			TokenSecretRef: new("token"),
		}
		step := Step{Status: v.Export.Status}
		v.planPod(&step, &identity{"certificates", "PEM"})
		if step.CreatePod == nil {
			t.Fatal(step.Failed)
		}
		for _, arg := range step.CreatePod.Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "--created=") {
				return arg
			}
		}
		return ""
	}
	for _, export := range []int64{1_700_000_000, 1_800_000_000} {
		vm, snapshot := ofVM(), ofSnapshot()
		for kind, got := range map[string]string{
			"VM":       made(vm, &vm.VM.ObjectMeta, export),
			"snapshot": made(snapshot, &snapshot.Snapshot.ObjectMeta, export),
		} {
			if got != "--created=2020-09-13T12:26:40Z" {
				t.Errorf("%s: %s", kind, got)
			}
		}
	}
}
