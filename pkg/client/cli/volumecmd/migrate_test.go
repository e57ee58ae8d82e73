package volumecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

const claimsAt = "/api/v1/namespaces/team-a/persistentvolumeclaims"

// moving is a cluster with a VM "demo", whose guest has the disks root and data on claims of these names, of class old.
type moving struct {
	vm      *v1.VirtualMachine
	vmi     *v1.VirtualMachineInstance
	claims  map[string]*corev1.PersistentVolumeClaim
	profile *cdiv1.StorageProfile
	kv      *v1.KubeVirt
	// conflicts is how often the VM has changed when it is patched; refuse is the answer to a patch.
	conflicts int
	refuse    error
	// class is what the API has as class old; nil is one without annotations.
	class any
	// refuseClaim is the name of a claim that may not be made.
	refuseClaim string
	// moves: the guest uses its new claims at once; copies: its disks are copied, which does not end.
	moves, copies bool
	// cancel ends the command when the VM is patched.
	cancel context.CancelFunc

	made, deleted, patches []string
}

func newMoving() *moving {
	m := &moving{vm: vm(), vmi: vmi(), claims: map[string]*corev1.PersistentVolumeClaim{}, kv: &v1.KubeVirt{}}
	m.vm.UID, m.vm.ResourceVersion, m.vmi.UID, m.vmi.Status.Phase = "vm", "7", "vmi", v1.Running
	class := "old"
	for _, name := range []string{"root", "data"} {
		v := v1.Volume{Name: name}
		v.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{}
		v.PersistentVolumeClaim.ClaimName = name
		d := v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}}
		for _, spec := range []*v1.VirtualMachineInstanceSpec{&m.vm.Spec.Template.Spec, &m.vmi.Spec} {
			spec.Volumes = append(spec.Volumes, *v.DeepCopy())
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, *d.DeepCopy())
		}
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		m.claims[name] = &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name)},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: modes,
				Resources: corev1.VolumeResourceRequirements{Requests: size},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size},
		}
		m.vmi.Status.VolumeStatus = append(m.vmi.Status.VolumeStatus, v1.VolumeStatus{
			Name: name, Size: 1 << 30,
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
				ClaimName: name, AccessModes: modes, Capacity: size,
			},
		})
	}
	return m
}

// run runs the verb.
func (m *moving) run(t *testing.T, line string) (out, errOut string, err error) {
	t.Helper()
	api := clienttest.New(t)
	answer := func(w http.ResponseWriter, object any) {
		w.Header().Set("Content-Type", "application/json")
		if status, failed := object.(apierrors.APIStatus); failed {
			w.WriteHeader(int(status.Status().Code))
			object = status.Status()
		}
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}
	for _, class := range []string{"old", "fast"} {
		api.Put("/apis/storage.k8s.io/v1/storageclasses/"+class, &metav1.PartialObjectMetadata{})
	}
	if m.class != nil {
		api.Put("/apis/storage.k8s.io/v1/storageclasses/old", http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { answer(w, m.class) }))
	}
	api.Put("/apis/storage.k8s.io/v1/storageclasses", &metav1.PartialObjectMetadataList{
		Items: []metav1.PartialObjectMetadata{
			{ObjectMeta: metav1.ObjectMeta{Name: "old"}}, {ObjectMeta: metav1.ObjectMeta{Name: "fast"}},
		},
	})
	if m.profile != nil {
		api.Put("/apis/cdi.kubevirt.io/v1beta1/storageprofiles/fast", m.profile)
	}
	api.Put("/apis/kubevirt.io/v1/kubevirts", &v1.KubeVirtList{Items: []v1.KubeVirt{*m.kv}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	api.Put(group+"virtualmachines/demo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch {
			answer(w, m.vm)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if m.conflicts > 0 {
			m.conflicts--
			m.vm.ResourceVersion += "0"
			answer(w, apierrors.NewConflict(v1.Resource("virtualmachines"), "demo", fmt.Errorf("it has changed")))
			return
		}
		m.patches = append(m.patches, r.URL.Query().Get("dryRun")+string(body))
		if m.cancel != nil {
			cancel()
			<-r.Context().Done()
			return
		}
		if m.refuse != nil {
			answer(w, m.refuse)
			return
		}
		if m.moves || m.copies {
			m.patch(t, body)
		}
		answer(w, m.vm)
	}))
	api.Put(group+"virtualmachines", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, &v1.VirtualMachineList{Items: []v1.VirtualMachine{*m.vm}})
	}))
	instances := &v1.VirtualMachineInstanceList{}
	if m.vmi != nil {
		api.Put(group+"virtualmachineinstances/demo", m.vmi)
	}
	api.Put(group+"virtualmachineinstances", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		instances.Items = nil
		if m.vmi != nil {
			instances.Items = append(instances.Items, *m.vmi)
		}
		answer(w, instances)
	}))
	for name, claim := range m.claims {
		api.Put(claimsAt+"/"+name, claim)
	}
	removable := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		m.deleted = append(m.deleted, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]+string(body))
		answer(w, &metav1.Status{Status: metav1.StatusSuccess})
	})
	for _, name := range []string{"root-m1", "data-m1"} {
		api.Put(claimsAt+"/"+name, removable)
	}
	api.Put(claimsAt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			list := &metav1.PartialObjectMetadataList{}
			for name := range m.claims {
				item := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
				list.Items = append(list.Items, item)
			}
			answer(w, list)
			return
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := json.NewDecoder(r.Body).Decode(claim); err != nil {
			t.Error(err)
		}
		if claim.Name == m.refuseClaim {
			answer(w, apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), claim.Name,
				fmt.Errorf("exceeded quota")))
			return
		}
		claim.UID = types.UID("uid-" + claim.Name)
		m.made = append(m.made, fmt.Sprint(r.URL.Query().Get("dryRun"), claim.Name, " ",
			*claim.Spec.StorageClassName, " ", *claim.Spec.VolumeMode, " ", claim.Spec.AccessModes, " ",
			claim.Spec.Resources.Requests.Storage()))
		answer(w, claim)
	}))
	command := clitest.Command{New: NewCmdMigrate, Kubeconfig: api.Kubeconfig("team-a")}
	return command.RunContext(ctx, t, strings.Fields(line)...)
}

// patch gives the guest the claims that a patch names.
func (m *moving) patch(t *testing.T, body []byte) {
	t.Helper()
	var ops []struct {
		Path  string
		Value any
	}
	if err := json.Unmarshal(body, &ops); err != nil {
		t.Error(err)
	}
	for _, op := range ops {
		var at int
		if _, err := fmt.Sscanf(op.Path, "/spec/template/spec/volumes/%d/", &at); err != nil {
			continue
		}
		m.vm.Spec.Template.Spec.Volumes[at].PersistentVolumeClaim.ClaimName = op.Value.(string)
		m.vmi.Spec.Volumes[at].PersistentVolumeClaim.ClaimName = op.Value.(string)
		if m.copies {
			continue
		}
		m.vmi.Status.VolumeStatus[at].PersistentVolumeClaimInfo.ClaimName = op.Value.(string)
	}
}
