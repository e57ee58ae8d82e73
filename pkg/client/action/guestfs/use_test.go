package guestfs

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	pods   = "/api/v1/namespaces/ns/pods"
	disk   = "/api/v1/namespaces/ns/persistentvolumeclaims/disk"
	vms    = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines"
	vmis   = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances"
	nodes  = "/api/v1/nodes"
	images = "/apis/subresources.kubevirt.io/v1/guestfs"
)

// volumes are those of a machine with claim disk.
var volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{
	PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
	},
}}}

func machine(name string, strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: v1.VirtualMachineSpec{RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{
			Spec: v1.VirtualMachineInstanceSpec{Volumes: volumes},
		}},
	}
}

func instance(name string, phase v1.VirtualMachineInstancePhase, owner string) v1.VirtualMachineInstance {
	vmi := v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       v1.VirtualMachineInstanceSpec{Volumes: volumes},
		Status:     v1.VirtualMachineInstanceStatus{Phase: phase},
	}
	if owner != "" {
		vmi.OwnerReferences = []metav1.OwnerReference{
			{Kind: "VirtualMachine", Name: owner, UID: types.UID(owner), Controller: new(true)},
		}
	}
	return vmi
}

func podWith(name, claim string, phase corev1.PodPhase) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "pod-uid"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// A claim is refused while a guest or a pod has it, or a VM may start with it by itself; a stopped VM's is what it is
// for.
func TestClaim(t *testing.T) {
	asked := machine("web", v1.RunStrategyManual)
	asked.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StartRequest}}
	begun := machine("web", v1.RunStrategyRerunOnFailure)
	begun.Status.RunStrategy = v1.RunStrategyRerunOnFailure
	failing := machine("web", v1.RunStrategyRerunOnFailure)
	failing.Status = *asked.Status.DeepCopy()
	left := podWith(PodName("disk"), "disk", corev1.PodSucceeded)
	left.Labels = map[string]string{names.LabelComponent: names.VirtGuestfs}
	stopping := begun.DeepCopy()
	stopping.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StopRequest}}
	for name, tc := range map[string]struct {
		vms  []v1.VirtualMachine
		vmis []v1.VirtualMachineInstance
		pods []corev1.Pod
		want string
	}{
		"nobody has it": {},
		"a stopped VM":  {vms: []v1.VirtualMachine{*machine("web", v1.RunStrategyHalted)}},
		"a VM that has ended": {
			vms:  []v1.VirtualMachine{*begun},
			vmis: []v1.VirtualMachineInstance{instance("web", v1.Succeeded, "web")},
		},
		"a VM that has failed": {vms: []v1.VirtualMachine{*failing}, want: "VM web"},
		"a VM that has failed right now": {
			vms:  []v1.VirtualMachine{*begun},
			vmis: []v1.VirtualMachineInstance{instance("web", v1.Failed, "web")}, want: "VM web",
		},
		"a VM that has failed while it is stopped": {
			vms:  []v1.VirtualMachine{*stopping},
			vmis: []v1.VirtualMachineInstance{instance("web", v1.Failed, "web")},
		},
		"a VM that is about to start once": {
			vms: []v1.VirtualMachine{*machine("web", v1.RunStrategyOnce)}, want: "VM web, which runs or is about to",
		},
		"a VM that is about to start, and again when it fails": {
			vms: []v1.VirtualMachine{*machine("web", v1.RunStrategyRerunOnFailure)}, want: "VM web",
		},
		"a VM that starts": {
			vms: []v1.VirtualMachine{*machine("web", v1.RunStrategyAlways)}, want: "VM web, which runs or is about to",
		},
		"a VM that is asked to": {vms: []v1.VirtualMachine{*asked}, want: "VM web"},
		"a VM that runs": {
			vms:  []v1.VirtualMachine{*machine("web", v1.RunStrategyManual)},
			vmis: []v1.VirtualMachineInstance{instance("web", v1.Running, "web")}, want: "VM web",
		},
		"a VMI":                {vmis: []v1.VirtualMachineInstance{instance("one", v1.Running, "")}, want: "vmi/one"},
		"a pod":                {pods: []corev1.Pod{podWith("backup", "disk", corev1.PodRunning)}, want: "pod/backup"},
		"a pod that waits":     {pods: []corev1.Pod{podWith("backup", "disk", corev1.PodPending)}, want: "pod/backup"},
		"a pod that has ended": {pods: []corev1.Pod{podWith("backup", "disk", corev1.PodFailed)}},
		"a pod of another":     {pods: []corev1.Pod{podWith("backup", "other", corev1.PodRunning)}},
		"another session": {
			pods: []corev1.Pod{podWith(PodName("disk"), "disk", corev1.PodRunning)}, want: "another session",
		},
		"what a session has left":    {pods: []corev1.Pod{left}},
		"another's pod of that name": {pods: []corev1.Pod{podWith(PodName("disk"), "disk", corev1.PodSucceeded)}},
	} {
		api := clienttest.New(t)
		api.Put(disk, claimOf("disk", corev1.PersistentVolumeFilesystem))
		api.Put(vms, v1.VirtualMachineList{Items: tc.vms})
		api.Put(vmis, v1.VirtualMachineInstanceList{Items: tc.vmis})
		api.Put(pods, corev1.PodList{Items: tc.pods})
		claim, err := Claim(t.Context(), api.Client(), "ns", "disk")
		var used *InUseError
		switch {
		case tc.want == "" && (err != nil || claim.Name != "disk"):
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (!errors.As(err, &used) || !strings.Contains(err.Error(), "PVC ns/disk is used by ") ||
			!strings.Contains(err.Error(), tc.want)):
			t.Errorf("%s: %v; want %q", name, err, tc.want)
		}
		deleted := 0
		for _, r := range api.Asked("/pods/" + PodName("disk")) {
			if r.Method == http.MethodDelete {
				deleted++
			}
		}
		if want := strings.HasPrefix(name, "what a session"); (deleted == 1) != want {
			t.Errorf("%s: %d pods are deleted", name, deleted)
		}
	}
}

func TestClaimThatIsDeleted(t *testing.T) {
	api := clienttest.New(t)
	going := claimOf("disk", corev1.PersistentVolumeFilesystem)
	going.DeletionTimestamp = new(metav1.Now())
	api.Put(disk, going)
	_, err := Claim(t.Context(), api.Client(), "ns", "disk")
	if err == nil || !strings.Contains(err.Error(), "being deleted") {
		t.Error(err)
	}
}

func TestOffered(t *testing.T) {
	node := func(count string, unschedulable bool) corev1.Node {
		return corev1.Node{
			Spec: corev1.NodeSpec{Unschedulable: unschedulable},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				names.ResourceKVM: resource.MustParse(count),
			}},
		}
	}
	for name, tc := range map[string]struct {
		answer any
		want   bool
		fails  bool
	}{
		"a node does":    {corev1.NodeList{Items: []corev1.Node{{}, node("110", false)}}, true, false},
		"none has any":   {corev1.NodeList{Items: []corev1.Node{{}, node("0", false)}}, false, false},
		"it is cordoned": {corev1.NodeList{Items: []corev1.Node{node("110", true)}}, false, false},
		"nobody says":    {clienttest.Forbidden("nodes"), false, false},
		"it fails":       {http.HandlerFunc(fail), false, true},
	} {
		api := clienttest.New(t)
		api.Put(nodes, tc.answer)
		if got, err := Offered(t.Context(), api.Client()); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}

func fail(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

func TestImage(t *testing.T) {
	api := clienttest.New(t)
	if _, err := Image(t.Context(), api.Client()); !errors.Is(err, ErrNoImage) {
		t.Errorf("a server that does not say: %v", err)
	}
	api.Put(images, map[string]string{"registry": "", "gsImage": ""})
	if _, err := Image(t.Context(), api.Client()); !errors.Is(err, ErrNoImage) {
		t.Errorf("a server that has none: %v", err)
	}
	api.Put(images, map[string]string{"registry": "quay.io/kubevirt", "tag": "v1.8.0"})
	if got, err := Image(t.Context(), api.Client()); got != "quay.io/kubevirt/libguestfs-tools:v1.8.0" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	api.Put(images, clienttest.Forbidden("guestfs"))
	if _, err := Image(t.Context(), api.Client()); err == nil || errors.Is(err, ErrNoImage) {
		t.Errorf("a refusal: %v", err)
	}
}

// A claim to which an image is being uploaded is refused, and one that waits for an upload, or has a part of an image,
// has a remark.
func TestUploads(t *testing.T) {
	request := uploads.Encode(uploads.Request{ID: "0123456789abcdef", Size: 1})
	for name, tc := range map[string]struct {
		says            map[string]string
		refusal, remark string
	}{
		"no upload": {},
		"an image": {
			says: map[string]string{uploads.AnnotationState: uploads.Encode(uploads.State{Phase: uploads.Succeeded})},
		},
		"an upload": {
			says: map[string]string{uploads.AnnotationRequest: request},
			refusal: "an image is being uploaded to PVC ns/disk; wait, or end that with `virtctl image-upload pvc " +
				"disk -n ns --cancel`",
		},
		"an upload to come": {
			says:   map[string]string{uploads.AnnotationMade: uploads.MadeFor},
			remark: "PVC ns/disk was made for an upload, and nothing was uploaded to it",
		},
		"a part of an image": {
			says:   map[string]string{uploads.AnnotationState: uploads.Encode(uploads.State{Phase: uploads.Failed})},
			remark: `the upload of an image to PersistentVolumeClaim "disk" is incomplete`,
		},
	} {
		api := clienttest.New(t)
		there := claimOf("disk", corev1.PersistentVolumeFilesystem)
		there.Annotations = tc.says
		api.Put(disk, there)
		api.Put(vms, v1.VirtualMachineList{})
		api.Put(vmis, v1.VirtualMachineInstanceList{})
		api.Put(pods, corev1.PodList{})
		claim, err := Claim(t.Context(), api.Client(), "ns", "disk")
		if tc.refusal != "" {
			if err == nil || err.Error() != tc.refusal {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := Remark(claim); !strings.HasPrefix(got, tc.remark) || (got == "") != (tc.remark == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
