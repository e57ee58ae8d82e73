package snapshot

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// inPlaceAPI has a snapshot with the claims old, claim, gone and that of the VM's state; all but gone are there, and VM
// demo has "claim" and the state.
func inPlaceAPI(t *testing.T) *clienttest.API {
	t.Helper()
	api := clienttest.New(t)
	s := snap(nil)
	s.UID, s.Status.VirtualMachineSnapshotContentName = "s-uid", new("content")
	s.Status.SnapshotVolumes.IncludedVolumes = []string{"disk", "logs", "extra", vmstate.Prefix + "-demo"}
	api.Put(snapshots+"/snap", s)
	content := &snapshotv1beta1.VirtualMachineSnapshotContent{}
	content.Spec.Source.VirtualMachine = &snapshotv1beta1.VirtualMachine{Spec: demo().Spec}
	const claims = "/api/v1/namespaces/default/persistentvolumeclaims"
	for volume, claim := range map[string]string{
		"disk": "old", "logs": "claim", "extra": "gone", vmstate.Prefix + "-demo": "state",
	} {
		meta := metav1.ObjectMeta{Namespace: "default", Name: claim}
		if claim == "state" {
			meta.Labels = map[string]string{vmstate.Prefix: "demo"}
		}
		content.Spec.VolumeBackups = append(content.Spec.VolumeBackups, snapshotv1beta1.VolumeBackup{
			VolumeName: volume, PersistentVolumeClaim: snapshotv1beta1.PersistentVolumeClaim{ObjectMeta: meta},
		})
		if claim != "gone" {
			api.Put(claims+"/"+claim, &corev1.PersistentVolumeClaim{ObjectMeta: meta})
		}
	}
	api.Put(strings.TrimSuffix(snapshots, "s")+"contents/content", content)
	vm := demo()
	vm.Spec.RunStrategy = new(v1.RunStrategyHalted)
	api.Put(machines+"demo", vm)
	api.Put(strings.TrimSuffix(machines, "/"), map[string]any{"items": []any{vm}})
	api.Put(strings.TrimSuffix(instances, "/"), map[string]any{"items": []any{}})
	api.Put("/api/v1/namespaces/default/pods", map[string]any{"items": []any{}})
	return api
}

var replaced = RestoreOptions{VolumePolicy: string(snapshotv1beta1.VolumeRestorePolicyInPlace)}

// The plan names the claims that the VM has now, and those that a restore in place deletes.
func TestLookInPlace(t *testing.T) {
	api := inPlaceAPI(t)
	plan, err := Look(t.Context(), api.Client(), "default", "snap", replaced)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(plan.InPlace.Deleted)
	if got := strings.Join(plan.InPlace.Deleted, " "); got != "claim old state" ||
		!slices.Equal(plan.InPlace.Foreign, []string{"old"}) || plan.InPlace.Trouble != "" {
		t.Errorf("%+v", plan.InPlace)
	}
	if got, want := plan.InClaims(), "disk (claim claim), logs (claim claim), extra (which it does not have now), "+
		vmstate.Prefix+"-demo"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := plan.InPlace.Says("demo"), "Deleted, and made anew under their names: claims claim, old, state; "+
		"VM demo does not have old now."; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, none := range []*InPlace{nil, {}} {
		if got := none.Says("demo"); got != "" {
			t.Errorf("of no claim it says %q", got)
		}
	}
	if plan, err := Look(t.Context(), api.Client(), "default", "snap", RestoreOptions{}); err != nil ||
		plan.InPlace != nil {
		t.Errorf("not in place: %+v, %v", plan, err)
	}
}

// A claim that others use is refused, and shown where nobody has chosen yet.
func TestLookInPlaceOfAnothersClaim(t *testing.T) {
	beta := demo()
	beta.Name, beta.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "beta", "old"
	beta.Spec.Template.Spec.Volumes = beta.Spec.Template.Spec.Volumes[:1]
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "backup"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
		},
	}}}}
	for want, change := range map[string]func(*clienttest.API){
		"PVC default/old is used by VM beta, and volumeRestorePolicy InPlace would": func(api *clienttest.API) {
			api.Put(strings.TrimSuffix(machines, "/"), map[string]any{"items": []any{demo(), beta}})
			api.Put("/api/v1/namespaces/default/pods", map[string]any{"items": []any{pod}})
		},
		"PVC default/claim is used by pod/backup, and": func(api *clienttest.API) {
			api.Put("/api/v1/namespaces/default/pods", map[string]any{"items": []any{pod}})
			api.Put(strings.TrimSuffix(machines, "/"), clienttest.Forbidden("virtualmachines"))
		},
	} {
		api := inPlaceAPI(t)
		change(api)
		if _, err := Look(t.Context(), api.Client(), "default", "snap", replaced); err == nil ||
			!strings.HasPrefix(err.Error(), "restore snapshot default/snap: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
		plan, err := LookInPlace(t.Context(), api.Client(), "default", "snap", replaced)
		if err != nil || !strings.HasPrefix(plan.InPlace.Trouble, want) {
			t.Errorf("%+v, %v, want %s", plan, err, want)
		}
	}
}

// Who may not read the content is told that claims are deleted; the server knows which.
func TestLookInPlaceWithoutContent(t *testing.T) {
	api := inPlaceAPI(t)
	api.Put(strings.TrimSuffix(snapshots, "s")+"contents/content", clienttest.Forbidden(contents))
	plan, err := Look(t.Context(), api.Client(), "default", "snap", replaced)
	if err != nil || plan.InPlace.Says("demo") != "Claims of the names in the snapshot are deleted, and made anew." {
		t.Errorf("%+v, %v", plan, err)
	}
}

// A snapshot that was taken anew under the name is not the one that somebody was asked about.
func TestLookAtAnotherSnapshot(t *testing.T) {
	api := inPlaceAPI(t)
	if _, err := Look(t.Context(), api.Client(), "default", "snap", RestoreOptions{SnapshotUID: "s-uid"}); err != nil {
		t.Error(err)
	}
	var changed *SnapshotChangedError
	_, err := Look(t.Context(), api.Client(), "default", "snap", RestoreOptions{SnapshotUID: "before"})
	if !errors.As(err, &changed) {
		t.Errorf("%v", err)
	}
}
