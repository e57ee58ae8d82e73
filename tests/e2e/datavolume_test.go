//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/tests/cdi"
	"github.com/virtkit/virtkit/tests/instance"
)

// A guest boots from a disk that is imported for it, by a stand-in for CDI that waits for the claim's first pod; and a
// VM may not have what another namespace does not give it.
func TestDataVolume(t *testing.T) {
	t.Parallel()
	c := theCluster
	if err := cdi.Install(t.Context(), c.Client); err != nil {
		t.Fatal(err)
	}
	ns := c.namespace(t, "restricted")
	ctx, cancel := context.WithCancel(t.Context())
	importer := cdi.Importer{Client: c.Client, Namespace: ns, Tools: instance.Launcher()}
	done := make(chan error, 1)
	go func() { done <- importer.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	c.virtctl(t, nil, "-n", ns, "create", "vm", "--name", "imported", "--memory", "128Mi",
		"--termination-grace-period", "10",
		"--volume-import", "type:registry,url:docker://"+instance.TinyDisk()+",size:256Mi,name:system", "--apply")
	g := &guest{cluster: c, ns: ns, name: "imported"}
	g.waitPhase(t, bootTime, v1.Running)
	g.waitLogin(t)

	vmi := g.vmi(t)
	ready := false
	for _, condition := range vmi.Status.Conditions {
		ready = ready ||
			condition.Type == v1.VirtualMachineInstanceDataVolumesReady && condition.Status == corev1.ConditionTrue
	}
	if !ready {
		t.Errorf("no condition DataVolumesReady in %+v", vmi.Status.Conditions)
	}
	if shown := c.virtctl(t, nil, "-n", ns, "describe", "imported"); !strings.Contains(shown, "dataVolume system") {
		t.Errorf("describe says:\n%s", shown)
	}
	if pods := g.pods(t); len(pods) != 1 {
		t.Errorf("%d pods, want the launcher's alone", len(pods))
	}

	// One that is made while the guest runs is plugged in as what it is, once it is filled.
	late := &cdiv1.DataVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "late"},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{
				Registry: &cdiv1.DataVolumeSourceRegistry{URL: ptr("docker://" + instance.TinyDisk())},
			},
			Storage: &cdiv1.StorageSpec{
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("256Mi")},
				},
			},
		},
	}
	if err := c.Client.Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	c.virtctl(t, nil, "-n", ns, "addvolume", "imported", "--volume-name=late", "--wait", "--timeout=120s")
	if at := slices.IndexFunc(g.vmi(t).Spec.Volumes, func(v v1.Volume) bool {
		return v.DataVolume != nil && v.DataVolume.Name == "late"
	}); at < 0 {
		t.Errorf("the instance has no DataVolume late: %+v", g.vmi(t).Spec.Volumes)
	}
	con := g.shell(t, "")
	eventually(t, 30*time.Second, "the guest sees the DataVolume", func() string {
		if con.run(t, "echo "+scsiDisk("late")) == "" {
			return "no such disk"
		}
		return ""
	})
	expectText(t, con, "dd if="+scsiDisk("late")+" bs=1 skip=510 count=2 2>/dev/null | hexdump -e '2/1 \"%02x\"'",
		"55aa")
	c.virtctl(t, nil, "-n", ns, "removevolume", "imported", "--volume-name=late", "--wait", "--timeout=120s")

	golden := &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace(t, "restricted"), Name: "golden"},
		Spec: cdiv1.DataSourceSpec{
			Source: cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "golden"}},
		},
	}
	if err := c.Client.Create(t.Context(), golden); err != nil {
		t.Fatal(err)
	}
	c.virtctl(t, nil, "-n", ns, "create", "vm", "--name", "thief", "--memory", "128Mi",
		"--volume-import", "type:ds,src:"+golden.Namespace+"/golden,size:256Mi,name:stolen", "--apply")
	thief := &guest{cluster: c, ns: ns, name: "thief"}
	eventually(t, 30*time.Second, "the VM that clones says what it may not", func() string {
		for _, condition := range thief.vm(t).Status.Conditions {
			if condition.Type == v1.VirtualMachineFailure && condition.Reason == "UnauthorizedDataVolumeCreate" {
				return ""
			}
		}
		return "no such condition"
	})
}
