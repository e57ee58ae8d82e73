package script

import (
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// serveMigrations takes migrations that are made as objects. One with disks copies those on claims to new ones, and its
// guest is on node2 in the end.
func (c *cluster) serveMigrations(mux *http.ServeMux, kubevirt string) {
	mux.HandleFunc("POST "+kubevirt+"namespaces/{ns}/"+resourceMigrations,
		func(w http.ResponseWriter, r *http.Request) {
			m := &v1.VirtualMachineInstanceMigration{}
			if err := json.NewDecoder(r.Body).Decode(m); err != nil {
				refuse(w, apierrors.NewBadRequest(err.Error()))
				return
			}
			m.Namespace = r.PathValue("ns")
			vmi, ok := c.find(resourceVMIs, m.Namespace, m.Spec.VMIName).(*v1.VirtualMachineInstance)
			if !ok {
				refuse(w, apierrors.NewNotFound(group(resourceVMIs), m.Spec.VMIName))
				return
			}
			m.Name, m.GenerateName = m.GenerateName+m.Spec.VMIName, ""
			var copied []volumemigration.Copied
			for i := range vmi.Spec.Volumes {
				if v := &vmi.Spec.Volumes[i]; claims.Name(v) != "" {
					copied = append(copied, volumemigration.Copied{
						Volume: v.Name, From: claims.Name(v), To: claims.Name(v) + "-m1",
					})
				}
			}
			text, err := json.Marshal(copied)
			if err != nil {
				refuse(w, apierrors.NewInternalError(err))
				return
			}
			body, err := json.Marshal(map[string]any{"annotations": m.Annotations, "spec": m.Spec})
			if err != nil {
				refuse(w, apierrors.NewInternalError(err))
				return
			}
			c.note(r, body)
			answered := m.DeepCopy()
			if r.URL.Query().Get("dryRun") == "" {
				m.Annotations[volumemigration.CopiedAnnotation] = string(text)
				c.move(m)
			}
			answer(w, http.StatusCreated, answered)
		})
}

// migrate is the server's half of the subresource that makes a migration.
func (c *cluster) migrate(vm *v1.VirtualMachine, dryRun bool) {
	if dryRun {
		return
	}
	c.move(&v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: "kubevirt-migrate-vm-" + vm.Name},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: vm.Name},
	})
}

// move has a migration go well, that of a machine named "pinned" fail, and those of machines named "slow", "late", and
// "copying" not end.
func (c *cluster) move(m *v1.VirtualMachineInstanceMigration) {
	m.Status.Phase = v1.MigrationPending
	c.put1(resourceMigrations, m)
	c.work.Go(func() {
		phases := []v1.VirtualMachineInstanceMigrationPhase{
			v1.MigrationScheduling, v1.MigrationRunning, v1.MigrationSucceeded,
		}
		switch m.Spec.VMIName {
		case "slow", "late", "copying":
			phases = phases[:2]
		case "pinned":
			phases[2] = v1.MigrationFailed
		}
		for _, phase := range phases {
			m = m.DeepCopy()
			m.Status.Phase = phase
			m.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourceNode: "node1", TargetNode: "node2"}
			if phase == v1.MigrationFailed {
				m.Status.MigrationState.FailureReason = "no node fits"
			}
			if vmi, ok := c.find(resourceVMIs, m.Namespace, m.Spec.VMIName).(*v1.VirtualMachineInstance); ok &&
				phase == v1.MigrationSucceeded && volumemigration.WithDisks(m) {
				vmi = vmi.DeepCopy()
				vmi.Status.NodeName, vmi.Labels[v1.NodeNameLabel] = "node2", "node2"
				c.put1(resourceVMIs, vmi)
			}
			c.put1(resourceMigrations, m)
		}
	})
}

// cancelled has the guest of a machine named "late" move all the same.
func (c *cluster) cancelled(m *v1.VirtualMachineInstanceMigration) {
	vmi, ok := c.find(resourceVMIs, m.Namespace, m.Spec.VMIName).(*v1.VirtualMachineInstance)
	if !ok || m.Spec.VMIName != "late" {
		return
	}
	vmi = vmi.DeepCopy()
	vmi.Status.NodeName = "node2"
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: m.UID, TargetNode: "node2", Completed: true, AbortRequested: true,
		AbortStatus: v1.MigrationAbortFailed,
	}
	c.put1(resourceVMIs, vmi)
}
