package backup

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	snapshotsPath = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/ns/virtualmachinesnapshots"
	exportsPath   = exports.Path + "/namespaces/ns/virtualmachineexports"
)

// running has a VM that runs, with claims, exports and snapshots that are taken by taken.
func running(t *testing.T, taken http.HandlerFunc) *target {
	t.Helper()
	c := newTarget(t)
	vm := exampleVM()
	vm.Namespace = "ns"
	c.Put(machinesPath+"/demo", vm)
	c.Put("/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/demo", &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"},
		Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running},
	})
	for _, name := range []string{"demo-root", "data", "lost"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}
		c.Put(claimsPath+"/"+name, claim)
	}
	echo := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			c.answer(w, http.StatusOK, map[string]any{"items": []any{}})
			return
		}
		object := map[string]any{}
		c.decode(r, &object)
		meta := object["metadata"].(map[string]any)
		kind, _ := object["kind"].(string)
		c.note(&c.created, kind)
		if kind == "VirtualMachineSnapshot" {
			owner := meta["ownerReferences"].([]any)[0].(map[string]any)
			if owner["kind"] != exports.Kind || owner["uid"] != "uid" || meta["labels"] == nil {
				t.Errorf("the snapshot would stay when this program is killed: %v", meta)
			}
		}
		meta["uid"] = "uid"
		c.answer(w, http.StatusCreated, object)
	}
	gone := func(kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				c.note(&c.deleted, kind)
			}
			c.answer(w, http.StatusOK, map[string]any{"kind": kind})
		}
	}
	c.Put(exportsPath, http.HandlerFunc(echo))
	c.Put(exportsPath+"/backup-demo", gone(exports.Kind))
	c.Put("/api/v1/namespaces/ns/secrets", http.HandlerFunc(echo))
	c.Put(snapshotsPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Query().Get("labelSelector") == "" {
			taken(w, r)
			return
		}
		echo(w, r)
	}))
	c.Put(snapshotsPath+"/backup-demo", gone(exports.KindSnapshot))
	return c
}

func (c *target) export(ctx context.Context) error {
	_, err := Export(ctx, c.Client(), &memory{}, ExportOptions{
		Namespace: "ns", Kind: exports.KindVM, Name: "demo", Temporary: "backup-demo", Lifetime: time.Hour,
		Taking: time.Minute, Readiness: time.Minute, Now: time.Unix(1e9, 0), Report: func(string) {},
		Show: func(string, int64, int64) {}, Note: func(text string) { c.note(&c.notes, text) },
	})
	return err
}

// failed is a list with a snapshot that has failed.
func failed(w http.ResponseWriter, _ *http.Request) {
	list := &snapshotv1beta1.VirtualMachineSnapshotList{Items: []snapshotv1beta1.VirtualMachineSnapshot{{
		TypeMeta: metav1.TypeMeta{
			APIVersion: snapshotv1beta1.SchemeGroupVersion.String(), Kind: exports.KindSnapshot,
		},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "backup-demo", UID: "uid"},
		Status:     &snapshotv1beta1.VirtualMachineSnapshotStatus{Phase: snapshotv1beta1.Failed},
	}}}
	list.APIVersion, list.Kind = snapshotv1beta1.SchemeGroupVersion.String(), "VirtualMachineSnapshotList"
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // a client that has gone
}

// What an export of a VM that runs has made is deleted when it fails, and when the user ends it.
func TestExportFails(t *testing.T) {
	c := running(t, failed)
	err := c.export(t.Context())
	if err == nil || !strings.Contains(err.Error(), "snapshot ns/backup-demo failed") {
		t.Errorf("%v", err)
	}
	const made, deleted = "VirtualMachineExport Secret VirtualMachineSnapshot",
		"VirtualMachineExport VirtualMachineSnapshot"
	if got := strings.Join(c.created, " "); got != made || strings.Join(c.deleted, " ") != deleted {
		t.Errorf("made %s, deleted %v", got, c.deleted)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c = running(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if err := c.export(ctx); !errors.Is(err, context.Canceled) || strings.Join(c.deleted, " ") != deleted {
		t.Errorf("interrupted: deleted %v, %v", c.deleted, err)
	}
}

// A VM that starts is waited for, and when it does not come up, its user hears what to do.
func TestExportWaitsForTheGuest(t *testing.T) {
	c := running(t, failed)
	looks := 0
	c.Put("/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/demo",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"}}
			vmi.Status.Phase = v1.Scheduling
			if looks++; looks > 2 {
				vmi.Status.Phase = v1.Running
			}
			c.answer(w, http.StatusOK, vmi)
		}))
	if err := c.export(t.Context()); err == nil || !strings.Contains(err.Error(), "snapshot ns/backup-demo failed") {
		t.Errorf("%v", err)
	}
	want := []string{"VM ns/demo is Starting; the export waits until it runs or is stopped"}
	if !slices.Equal(c.notes, want) {
		t.Errorf("it says %q", c.notes)
	}
	looks = -1000
	o := ExportOptions{Namespace: "ns", Kind: exports.KindVM, Name: "demo"}
	_, err := o.settled(t.Context(), c.Client())
	if !errors.Is(err, action.ErrTimeout) || !strings.Contains(err.Error(), "`virtctl why demo -n ns` says what") {
		t.Errorf("%v", err)
	}
}

// The disks of a VM are its claims, also one for which it lists no disk; what else it has on claims is said.
func TestDisks(t *testing.T) {
	c := running(t, failed)
	vm := exampleVM()
	vm.Namespace = "ns"
	devices := &vm.Spec.Template.Spec.Domain.Devices
	devices.Disks = devices.Disks[:1]
	devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	disks, left, err := (&source{vm: vm}).disks(t.Context(), c.Client(), vm)
	if err != nil {
		t.Fatal(err)
	}
	var claims []string
	for i := range disks {
		claims = append(claims, disks[i].Volume+" "+disks[i].Claim+" "+disks[i].ClaimSize)
	}
	if got := strings.Join(claims, ", "); got != "root demo-root 64Mi, data data 64Mi, lost lost 64Mi" {
		t.Errorf("disks %s", got)
	}
	const want = "volume share, a file system on claim share; the persistent state of its TPM or EFI, which begins anew"
	if got := strings.Join(left, "; "); got != want {
		t.Errorf("left out: %s", got)
	}
	// Of a snapshot they are those that it has.
	backup := snapshotv1beta1.VolumeBackup{VolumeSnapshotName: new("x")}
	backup.PersistentVolumeClaim.Name = "data"
	content := &snapshotv1beta1.VirtualMachineSnapshotContent{}
	content.Spec.VolumeBackups = []snapshotv1beta1.VolumeBackup{backup}
	disks, left, err = (&source{vm: vm, content: content}).disks(t.Context(), c.Client(), vm)
	if err != nil || len(disks) != 1 || disks[0].Volume != "data" || len(left) != 4 {
		t.Errorf("of a snapshot %v without %v: %v", disks, left, err)
	}
}

// A claim that is plugged in until the next start only is in the file, as it is in the snapshot.
func TestPluggedIsExported(t *testing.T) {
	c := running(t, failed)
	volume := v1.Volume{Name: "more"}
	volume.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
	volume.PersistentVolumeClaim.ClaimName = "data"
	vmi := &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"},
		Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running},
	}
	vmi.Spec.Volumes = []v1.Volume{volume}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "more"}}
	c.Put("/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/demo", vmi)
	bare := exampleVM()
	bare.Namespace = "ns"
	bare.Spec.Template.Spec.Volumes, bare.Spec.Template.Spec.Domain.Devices.Disks = nil, nil
	c.Put(machinesPath+"/demo", bare)
	s, err := look(t.Context(), c.Client(), "ns", exports.KindVM, "demo")
	if err != nil {
		t.Fatal(err)
	}
	disks, left, err := s.disks(t.Context(), c.Client(), stored(s.vm))
	if err != nil || len(disks) != 1 || disks[0].Volume != "more" || disks[0].Claim != "data" || len(left) != 0 {
		t.Errorf("disks %+v, left out %v, %v", disks, left, err)
	}
}

// A snapshot that an export has left is said.
func TestLeftSnapshot(t *testing.T) {
	c := running(t, failed)
	c.Put(snapshotsPath, &snapshotv1beta1.VirtualMachineSnapshotList{
		Items: []snapshotv1beta1.VirtualMachineSnapshot{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "backup-demo-x"},
			Spec: snapshotv1beta1.VirtualMachineSnapshotSpec{
				Source: corev1.TypedLocalObjectReference{Kind: exports.KindVM, Name: "demo"},
			},
		}},
	})
	o := &ExportOptions{Namespace: "ns", Note: func(text string) { c.note(&c.notes, text) }}
	if err := o.noteLeft(t.Context(), c.Client(), "demo"); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(c.notes, "\n"); !strings.Contains(said, "`virtctl vmexport delete backup-demo-x -n ns`") {
		t.Errorf("it says %q", said)
	}
	if asked := c.Asked("/virtualmachinesnapshots"); len(asked) != 1 ||
		asked[0].URL.Query().Get("labelSelector") != LabelExport+"=demo" {
		t.Errorf("asked for %v", asked)
	}
}
