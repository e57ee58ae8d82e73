package volumecmd

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
)

const (
	claimAt = "/api/v1/namespaces/team-a/persistentvolumeclaims/data"
	classAt = "/apis/storage.k8s.io/v1/storageclasses/fast"
)

// growing is a VM "demo" whose volume data is on the claim of that name, of a class that allows expansion.
type growing struct {
	vm    *v1.VirtualMachine
	vmi   *v1.VirtualMachineInstance
	claim *corev1.PersistentVolumeClaim
	class any
	// others are the other VMs of the namespace.
	others []v1.VirtualMachine
	// grows: the storage can.
	grows bool
}

func newGrowing() *growing {
	class, can := "fast", true
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	g := &growing{
		vm: vm("data"), vmi: vmi("data"), grows: true,
		claim: &corev1.PersistentVolumeClaim{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: size("2Gi")},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size("2Gi")},
		},
		class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, AllowVolumeExpansion: &can},
	}
	g.vmi.Status.Phase = v1.Running
	g.vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", Target: "vdb", Size: 4 << 30,
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data", Capacity: size("4Gi")},
	}}
	return g
}

// run runs the verb, and returns the patches of the claim that the server was asked for. The storage grows at once.
func (g *growing) run(t *testing.T, args ...string) (out, errOut string, patches []string, err error) {
	t.Helper()
	api := clienttest.New(t)
	instances := &v1.VirtualMachineInstanceList{}
	if g.vm != nil {
		api.Put(group+"virtualmachines/demo", g.vm)
		g.others = append(g.others, *g.vm)
	}
	if g.vmi != nil {
		api.Put(group+"virtualmachineinstances/demo", g.vmi)
		instances.Items = append(instances.Items, *g.vmi)
	}
	if g.class != nil {
		api.Put(classAt, g.class)
	}
	api.Put(group+"virtualmachines", &v1.VirtualMachineList{Items: g.others})
	api.Put(group+"virtualmachineinstances", instances)
	if g.claim != nil {
		api.Put(claimAt, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				patches = append(patches, r.URL.Query().Get("dryRun")+string(body))
				var patch corev1.PersistentVolumeClaim
				if err := json.Unmarshal(body, &patch); err != nil {
					t.Error(err)
				}
				g.claim.Spec.Resources.Requests = patch.Spec.Resources.Requests
				if g.grows {
					g.claim.Status.Capacity = patch.Spec.Resources.Requests
				}
			}
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(g.claim); err != nil {
				t.Error(err)
			}
		}))
	}
	out, errOut, err = clitest.Command{New: NewCmdResize, Kubeconfig: api.Kubeconfig("team-a")}.Run(t, args...)
	return out, errOut, patches, err
}

// TestResize has what is requested, what is said, and what is refused, each in one sentence.
func TestResize(t *testing.T) {
	const grows = "volume data of demo: claim data grows from 2Gi to 4Gi\n"
	const asked = `{"spec":{"resources":{"requests":{"storage":"4Gi"}}}}`
	spec := func(g *growing) *v1.Volume { return &g.vm.Spec.Template.Spec.Volumes[0] }
	stopped := func(g *growing) { g.vmi = nil }
	source := func(source v1.VolumeSource) func(*growing) {
		return func(g *growing) { g.vmi = nil; spec(g).VolumeSource = source }
	}
	has := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	for name, tc := range map[string]struct {
		args    string
		change  func(*growing)
		out     string // all of stdout
		errs    string // a part of stderr, or of the error
		patches string
		code    int
	}{
		"running": {
			args: "demo data 4Gi", out: grows, patches: asked,
		},
		"stopped": {
			args: "demo data 4Gi", change: stopped, patches: asked,
			out: grows,
		},
		"of the instance": {
			args: "vmi/demo data 4Gi", change: func(g *growing) { g.vm = nil }, patches: asked,
			out: grows,
		},
		"waited for": {
			args: "demo data 4Gi --wait", patches: asked,
			out: grows + "volume data of demo: the guest's disk has 4Gi\n",
		},
		"waited for, stopped": {
			args: "demo data 4Gi --wait", change: stopped, patches: asked,
			out: grows + "volume data of demo: claim data has 4Gi\n",
		},
		"waited for, at the next start": {
			args: "demo data 4Gi --wait", patches: asked,
			change: func(g *growing) {
				g.vmi, g.grows = nil, false
				g.claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
					{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue},
				}
			},
			out: grows +
				"volume data of demo: the storage has 4Gi, and the disk grows when demo starts\n",
		},
		"waited for, behind an earlier one": {
			args: "demo data 4Gi --wait", patches: asked, code: 1,
			change: func(g *growing) {
				g.vmi, g.grows = nil, false
				g.claim.Status.AllocatedResources = has("3Gi")
				g.claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
					{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue},
				}
			},
			out: grows,
			errs: "was to grow to 3Gi before, which its node does when a guest starts with it; the storage goes on " +
				"to 4Gi",
		},
		"waited for, in vain": {
			args: "demo data 4Gi --wait --timeout=200ms", patches: asked, code: cli.ExitTimeout,
			change: func(g *growing) {
				g.grows = false
				g.claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
					Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue,
					Message: "the pool is full",
				}}
			},
			out:  grows,
			errs: "timed out: claim data grows from 2Gi to 4Gi: the storage cannot yet: the pool is full",
		},
		"waited for, the guest": {
			args: "demo data 4Gi --wait --timeout=50ms", patches: asked, code: cli.ExitTimeout,
			change: func(g *growing) {
				g.vmi.Status.VolumeStatus[0].Size = 2 << 30
				g.vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{
					{Type: expansion.Condition, Status: corev1.ConditionTrue, Message: "no room on the node"},
				}
			},
			out: grows, errs: "no room on the node",
		},
		"it has it": {args: "demo data 2Gi", out: "volume data of demo: claim data has 2Gi\n"},
		"under way": {
			args: "demo data 4Gi", out: "volume data of demo: claim data is growing from 2Gi to 4Gi already\n",
			change: func(g *growing) { g.claim.Spec.Resources.Requests = has("4Gi") },
		},
		"less of what is under way": {
			args: "demo data 4Gi", out: grows, patches: asked,
			change: func(g *growing) { g.claim.Spec.Resources.Requests = has("8Gi") },
		},
		"nothing of what is under way": {
			args: "demo data 2Gi", code: 1,
			errs:   "is to grow from 2Gi to 8Gi, which Kubernetes takes back only down to",
			change: func(g *growing) { g.claim.Spec.Resources.Requests = has("8Gi") },
		},
		"JSON": {args: "demo data 4Gi -o jsonpath={.spec.resources.requests.storage}", out: "4Gi", patches: asked},
		"dry run": {
			args: "demo data 4Gi --dry-run=server", patches: "All" + asked,
			out: "volume data of demo: claim data grows from 2Gi to 4Gi (server dry run)\n",
		},
		"dry run here": {
			args: "demo data 4Gi --dry-run=client",
			out:  "volume data of demo: claim data grows from 2Gi to 4Gi (dry run)\n",
		},
		"shared": {
			args: "demo data 4Gi", out: grows, patches: asked,
			change: func(g *growing) {
				other := vm("data")
				other.Name = "twin"
				g.others = append(g.others, *other)
			},
			errs: "note: claim data is also a volume of twin, where it grows, too\n",
		},
		"of a template": {
			args: "demo data 4Gi", out: grows, patches: asked,
			change: func(g *growing) {
				source(v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}})(g)
				g.vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{
					{ObjectMeta: metav1.ObjectMeta{Name: "data"}},
				}
			},
			errs: "note: spec.dataVolumeTemplates of the VM keeps the size that data was made with\n",
		},
		"class not to be read": {
			args: "demo data 4Gi", out: grows, patches: asked,
			change: func(g *growing) { g.class = clienttest.Forbidden("storageclasses") },
		},

		"smaller":   {args: "demo data 1Gi", errs: "claim data has 2Gi, and no claim shrinks; 1Gi is less", code: 1},
		"no unit":   {args: "demo data 20", errs: "20 is less than 1Mi; a size has a unit", code: cli.ExitUsage},
		"no number": {args: "demo data big", errs: `"big" is not a size; write one such as 20Gi`, code: cli.ExitUsage},
		"no size":   {args: "demo data", errs: "needs the name of a VM, of a volume, and a size", code: cli.ExitUsage},
		"negative":  {args: "demo data -- -4Gi", errs: `"-4Gi" is not a size`, code: cli.ExitUsage},
		"wait and dry run": {
			args: "demo data 4Gi --wait --dry-run", errs: "--wait cannot be given with --dry-run", code: cli.ExitUsage,
		},
		"no such volume": {
			args: "demo other 4Gi", errs: `volume "other" not found in demo: those on claims are data`,
			code: cli.ExitNotFound,
		},
		"no such VM": {
			args: "demo data 4Gi", change: func(g *growing) { g.vm, g.vmi = nil, nil }, errs: `virtualmachines`,
			code: cli.ExitNotFound,
		},
		"no such claim": {
			args: "demo data 4Gi", change: func(g *growing) { g.claim = nil },
			errs: `claim data of volume data: persistentvolumeclaims "data" not found`, code: cli.ExitNotFound,
		},
		"no claim yet": {
			args: "demo data 4Gi", code: cli.ExitNotFound, errs: "DataVolume data has no claim yet",
			change: func(g *growing) {
				source(v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}})(g)
				g.claim = nil
			},
		},
		"late binding": {
			args: "demo data 4Gi", errs: "claim data is not bound: it has no storage yet", code: 1,
			change: func(g *growing) {
				g.claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
			},
		},
		"a class that does not": {
			args: "demo data 4Gi", errs: "is of StorageClass fast, which does not allow expansion", code: 1,
			change: func(g *growing) { g.class.(*storagev1.StorageClass).AllowVolumeExpansion = nil },
		},
		"a class that is gone": {
			args: "demo data 4Gi", errs: "is of StorageClass fast, which does not exist", code: 1,
			change: func(g *growing) { g.class = nil },
		},
		"no class": {
			args: "demo data 4Gi", errs: "claim data has no StorageClass", code: 1,
			change: func(g *growing) { g.claim.Spec.StorageClassName = nil },
		},
		"lost": {
			args: "demo data 4Gi", errs: "claim data has lost its storage", code: 1,
			change: func(g *growing) { g.claim.Status.Phase = corev1.ClaimLost },
		},
		"read only": {
			args: "demo data 4Gi", errs: "cannot be resized: the guest only reads it", code: 1,
			change: func(g *growing) { g.vmi = nil; spec(g).PersistentVolumeClaim.ReadOnly = true },
		},
		"container disk": {
			args: "demo data 4Gi", errs: "it is a container disk, whose size is its image's", code: 1,
			change: source(v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{}}),
		},
		"empty disk": {
			args: "demo data 4Gi", errs: "it is an empty disk; change its emptyDisk.capacity", code: 1,
			change: source(v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}),
		},
		"ephemeral": {
			args: "demo data 4Gi", errs: "it is ephemeral", code: 1,
			change: source(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}),
		},
		"image on the node": {
			args: "demo data 4Gi", errs: "it is an image on the node", code: 1,
			change: source(v1.VolumeSource{HostDisk: &v1.HostDisk{}}),
		},
		"cloud-init": {
			args: "demo data 4Gi", errs: "it is not on a claim", code: 1,
			change: source(v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{}}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrowing()
			if tc.change != nil {
				tc.change(g)
			}
			out, errOut, patches, err := g.run(t, strings.Fields(tc.args)...)
			if err != nil {
				errOut += err.Error()
			}
			if out != tc.out || strings.Join(patches, "") != tc.patches || cli.ExitCode(err) != tc.code ||
				!strings.Contains(errOut, tc.errs) || tc.errs == "" && errOut != "" {
				t.Errorf("stdout %q, stderr %q, code %d, patches %q", out, errOut, cli.ExitCode(err), patches)
			}
		})
	}
}
