package list

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func TestSortBy(t *testing.T) {
	old := vm("b", "old", v1.VirtualMachineStatusStopped)
	old.CreationTimestamp = metav1.NewTime(born.AddDate(-1, 0, 0))
	unknown := vm("a", "unknown", v1.VirtualMachineStatusStarting)
	unknown.CreationTimestamp = metav1.Time{}
	vms := []v1.VirtualMachine{old, unknown, vm("c", "web", v1.VirtualMachineStatusRunning)}
	vmis := []v1.VirtualMachineInstance{instance("c", "web", true)}
	for key, want := range map[string]string{
		"name": "old unknown web", "namespace": "unknown old web", "status": "web unknown old",
		"ready": "unknown old web",
		"node":  "unknown old web", "ip": "unknown old web", "Age": "old web unknown", "cpu": "unknown old web",
		"memory": "unknown old web", "RUN STRATEGY": "unknown old web", "guest-os": "unknown old web",
		".metadata.creationTimestamp": "unknown old web", "{.status.printableStatus}": "web unknown old",
	} {
		rows := Rows(VMs, vms, vmis)
		sorter, err := SortBy(key)
		if err == nil {
			err = sorter(rows)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v; want %s", key, got, err, want)
		}
	}
}
