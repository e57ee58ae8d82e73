package controller

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/disruptioncontroller"
	"github.com/virtkit/virtkit/pkg/controller/evacuationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/migrationcontroller"
	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// TestNames holds the names of objects that a component finds again by making the name anew: after an upgrade it has to
// make the same ones.
func TestNames(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.UID = "demo", "uid"
	vmi.Status.Phase, vmi.Status.NodeName, vmi.Status.EvacuationNodeName = v1.Running, "node1", "node1"
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
		{Type: v1.VirtualMachineInstanceIsMigratable, Status: "True"},
	}
	evacuation := evacuationcontroller.Next(evacuationcontroller.View{
		VMI: vmi, Strategy: v1.EvictionStrategyLiveMigrate, Counts: migrations.Counts{},
		Limits: evacuationcontroller.Limits{Cluster: 1, PerNode: 1},
	}).Create
	if evacuation == nil {
		t.Fatal("no migration is made")
	}
	for got, want := range map[string]string{
		names.Shorten("a-name-that-is-too-long", 14):          "a-nam-p100rrdj",
		uploads.PodName("claim", "id"):                        names.UploadPodPrefix + "lcn51c6ii4",
		hotplug.TargetAttachment("m", []string{"b", "a"}):     names.HotplugPodPrefix + "h5j0h0ls6a",
		disruptioncontroller.Name(vmi):                        "kubevirt-disruption-budget-2uroh9oetj",
		evacuation.Name:                                       "kubevirt-evacuation-smsadlcbfl",
		migrationcontroller.UpdateName("a", "b"):              "kubevirt-workload-update-focfedph3c",
		vmicontroller.LauncherName("demo", "uid"):             "virt-launcher-demo-2uroh",
		vmicontroller.StateClaimName(vmi):                     "persistent-state-for-demo-2uroh",
		vmicontroller.MigrationStateClaimName(vmi, "migrate"): "persistent-state-for-demo-7f403",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
