package exportcontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func exportOf(kind, name string) *v1beta1.VirtualMachineExport {
	group := map[string]string{exports.KindVM: "kubevirt.io", exports.KindSnapshot: "snapshot.kubevirt.io"}[kind]
	return &v1beta1.VirtualMachineExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "e", UID: "12345678-export",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
		},
		Spec: v1beta1.VirtualMachineExportSpec{
			Source: corev1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: name},
		},
	}
}

func claimOf(name string, phase corev1.PersistentVolumeClaimPhase) Claim {
	return Claim{
		Volume: exports.Volume{Name: name, Claim: name, Content: exports.Disk},
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: phase},
		},
	}
}

func bound() Claim { return claimOf("disk", corev1.ClaimBound) }

func testVM() *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"},
		Spec:       v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}},
	}
}

// ofVM is the view of an export of a VM with one claim, of which nothing is there yet.
func ofVM() View {
	return View{
		Export: exportOf(exports.KindVM, "vm"), Now: now, Claims: []Claim{bound()},
		VM: testVM(),
	}
}

// served is the view with a Service that has its identity.
func served(v View) View {
	v.Service = Service(v.Export)
	text, err := (&identity{"certificates", "PEM"}).encode()
	if err != nil {
		panic(err)
	}
	v.Service.Annotations = map[string]string{identityAnnotation: text}
	return v
}

func withPod(v View, phase corev1.PodPhase, ready bool, change func(*corev1.Pod)) View {
	v = served(v)
	v.Pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "virt-export-e", OwnerReferences: []metav1.OwnerReference{owner(v.Export)},
		},
		Status: corev1.PodStatus{Phase: phase},
	}
	if ready {
		v.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if change != nil {
		change(v.Pod)
	}
	return v
}

func changed(v View, change func(*View)) View {
	change(&v)
	return v
}

func ofClaim() View {
	return View{Export: exportOf(exports.KindClaim, "disk"), Now: now, Claims: []Claim{bound()}}
}

// ofSnapshot is the view of an export of a snapshot with one volume, which is not restored yet.
func ofSnapshot() View {
	size := resource.MustParse("2Gi")
	return View{
		Export: exportOf(exports.KindSnapshot, "snap"), Now: now, Served: true,
		VM: testVM(),
		Snapshot: &snapshotv1beta1.VirtualMachineSnapshot{
			Status: &snapshotv1beta1.VirtualMachineSnapshotStatus{ReadyToUse: new(true)},
		},
		Content: &snapshotv1beta1.VirtualMachineSnapshotContent{},
		Claims: []Claim{{
			Volume: exports.Volume{Name: "disk", Claim: "e-disk", Content: exports.Disk}, Restorable: true,
			RestoreSize: &size,
			Backup: &snapshotv1beta1.VolumeBackup{
				VolumeName: "root", VolumeSnapshotName: new("vs"),
				PersistentVolumeClaim: snapshotv1beta1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{
						Name: "disk", Labels: map[string]string{"persistent-state-for": "vm"},
					},
					Spec: corev1.PersistentVolumeClaimSpec{
						StorageClassName: new("csi"), VolumeName: "pv",
						AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
						Resources: corev1.VolumeResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
						},
					},
				},
			},
		}},
	}
}

func restoredTo(phase corev1.PersistentVolumeClaimPhase, ours bool) View {
	v := ofSnapshot()
	claim := claimOf("e-disk", phase).Claim
	if ours {
		claim.OwnerReferences = []metav1.OwnerReference{owner(v.Export)}
	}
	v.Claims[0].Claim = claim
	return v
}

func TestNext(t *testing.T) {
	given := ofVM()
	given.Export.Spec.TokenSecretRef = new("mine")
	tampered := served(ofVM())
	tampered.Service.Annotations[identityAnnotation] = "{"
	foreign := served(ofVM())
	foreign.Service.OwnerReferences = nil
	unscheduled := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes"},
		}
	}
	for name, tc := range map[string]struct {
		view View
		// do is what the step does, phase, reason and message what the status says; more is another condition's.
		do, phase, reason, message, more string
	}{
		"over": {changed(ofVM(), func(v *View) { v.Now = now.Add(2 * time.Hour) }), "end", "", "", "", ""},
		"new":  {ofVM(), "token service identity", "Pending", "Initializing", "", "PVCReady=True PVCBound"},
		"a token that was given": {
			given, "service identity", "Pending", "Initializing", "", "PVCReady=True PVCBound",
		},
		"no identity": {
			changed(ofVM(), func(v *View) { v.Service = Service(v.Export) }),
			"token identity", "Pending", "Initializing", "", "",
		},
		"an identity that is none": {tampered, "token identity", "Pending", "Initializing", "", ""},
		"a Service of another":     {foreign, "token", "Pending", "Refused", "is there and not of this export", ""},
		"a Service that is going": {
			changed(served(ofVM()), func(v *View) { v.Service.DeletionTimestamp = &metav1.Time{} }), "token", "Pending",
			"Initializing", "being deleted", "",
		},
		"no pod": {served(ofVM()), "token pod", "Pending", "PodPending", "", ""},
		"pod is made": {
			withPod(ofVM(), corev1.PodPending, false, unscheduled), "token", "Pending", "PodPending", "0/2 nodes", "",
		},
		"pod runs":     {withPod(ofVM(), corev1.PodRunning, false, nil), "token", "Pending", "PodPending", "", ""},
		"pod is ready": {withPod(ofVM(), corev1.PodRunning, true, nil), "token links", "Ready", "PodReady", "", ""},
		"pod has ended": {
			withPod(ofVM(), corev1.PodSucceeded, false, nil), "token", "Terminated", "PodCompleted", "", "",
		},
		"pod was evicted": {
			withPod(ofVM(), corev1.PodFailed, false, func(p *corev1.Pod) { p.Status.Reason = "Evicted" }),
			"token delete", "Pending", "PodPending", "Evicted", "",
		},
		"pod is going": {
			withPod(ofVM(), corev1.PodRunning, true, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
			"token", "Pending", "PodPending", "ending", "",
		},
		"a pod of another": {
			withPod(ofVM(), corev1.PodRunning, true, func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }),
			"token", "Pending", "Refused", "is there and not of this export", "",
		},

		"no VM": {
			changed(ofVM(), func(v *View) { v.VM, v.Claims = nil, nil }), "", "Pending", "VMNotFound",
			"Virtual Machine ns/vm not found", "",
		},
		"a VM without claims": {
			changed(ofVM(), func(v *View) { v.Claims = nil }), "", "Skipped", "VMNoVolumes", "has no volumes", "",
		},
		"a VM that runs": {
			changed(ofVM(), func(v *View) { v.Running = true }), "", "Pending", "InUse",
			"Virtual Machine ns/vm is running", "",
		},
		"a VM that starts meanwhile": {
			changed(withPod(ofVM(), corev1.PodRunning, true, nil), func(v *View) { v.Running = true }),
			"delete", "Pending", "InUse", "Virtual Machine ns/vm is running", "",
		},
		"another's pod is left alone": {
			changed(withPod(ofVM(), corev1.PodRunning, true, func(p *corev1.Pod) { p.OwnerReferences = nil }),
				func(v *View) { v.Running = true }), "", "Pending", "InUse", "", "",
		},
		"a VM whose claim is not there": {
			changed(ofVM(), func(v *View) { v.Claims[0].Claim = nil }),
			"", "Pending", "VolumesNotPopulated", "is not there", "PVCReady=False PVCNotFound",
		},
		"a VM whose claim was never used": {
			changed(ofVM(), func(v *View) { v.Claims = []Claim{claimOf("disk", corev1.ClaimPending)} }), "", "Pending",
			"VolumesNotPopulated", "is not bound; where its StorageClass waits for a first consumer, start the VM once",
			"PVCReady=False PVCPending",
		},
		"a VM whose disk comes": {
			changed(ofVM(), func(v *View) { v.Claims[0].Unready = "an image is being uploaded" }), "", "Pending",
			"VolumesNotPopulated", "an image is being uploaded", "",
		},
		"a pod uses the VM's claim": {
			changed(ofVM(), func(v *View) { v.Claims[0].User = "shell" }), "", "Pending", "InUse",
			"PersistentVolumeClaim ns/disk is in use by pod shell", "",
		},

		"a claim": {ofClaim(), "token service identity", "Pending", "Initializing", "", "PVCReady=True PVCBound"},
		"a claim that is served": {
			withPod(ofClaim(), corev1.PodRunning, true, nil),
			"token links-without-manifests", "Ready", "PodReady", "", "",
		},
		"no claim": {
			changed(ofClaim(), func(v *View) { v.Claims[0].Claim = nil }), "", "Pending", "Initializing", "",
			"PVCReady=False PVCNotFound",
		},
		"a claim that is lost": {
			changed(ofClaim(), func(v *View) { v.Claims[0].Claim.Status.Phase = corev1.ClaimLost }), "", "Pending",
			"PVCPending", "is not bound", "PVCReady=False Unknown",
		},
		"a claim in use": {
			changed(withPod(ofClaim(), corev1.PodRunning, true, nil), func(v *View) { v.Claims[0].User = "p" }),
			"delete", "Pending", "InUse", "in use by pod p", "",
		},
		"a claim that goes": {
			changed(ofClaim(), func(v *View) { v.Claims[0].Claim.DeletionTimestamp = &metav1.Time{} }), "", "Pending",
			"PVCPending", "is being deleted", "",
		},

		"a snapshot": {
			ofSnapshot(),
			"token claims1 service identity", "Pending", "Initializing", "", "VolumesCreated=False NotAllPVCsReady",
		},
		"a snapshot that is being restored": {
			restoredTo(corev1.ClaimPending, true), "token service identity", "Pending", "Initializing", "",
			"VolumesCreated=False NotAllPVCsReady",
		},
		"a snapshot that is restored": {
			withPod(restoredTo(corev1.ClaimBound, true), corev1.PodRunning, true, nil),
			"token links", "Ready", "PodReady", "", "VolumesCreated=True AllPVCsReady",
		},
		"a claim of another": {
			restoredTo(corev1.ClaimBound, false),
			"", "Pending", "Initializing", "e-disk is there and not of this export",
			"VolumesCreated=False NotAllPVCsCreated",
		},
		"no snapshot": {
			changed(ofSnapshot(), func(v *View) { v.Snapshot, v.VM, v.Claims = nil, nil, nil }), "", "Pending",
			"VMSnapshotNotFound", "ns/snap not found", "VolumesCreated=False NoVolumeSnapshots",
		},
		"a snapshot that is not ready": {
			changed(ofSnapshot(), func(v *View) { v.Snapshot.Status.ReadyToUse = new(false) }), "", "Pending",
			"Initializing", "is not ready to use", "VolumesCreated=False NotAllPVCsCreated",
		},
		"a snapshot without volumes": {
			changed(ofSnapshot(), func(v *View) { v.Claims = nil }), "", "Skipped", "Initializing",
			"does not contain any volume snapshots", "VolumesCreated=False NoVolumeSnapshots",
		},
		"a volume's snapshot is gone": {
			changed(ofSnapshot(), func(v *View) { v.Claims[0].Restorable = false }), "", "Pending", "Initializing",
			"the VolumeSnapshot of volume root is not there", "VolumesCreated=False NotAllPVCsCreated",
		},
		"no VolumeSnapshots": {
			changed(ofSnapshot(), func(v *View) { v.Served = false }), "", "Pending", "Initializing",
			"the cluster has no VolumeSnapshots", "",
		},
		"what cannot be exported": {
			changed(ofVM(), func(v *View) { v.Export.Spec.Source.Kind = "Pod" }), "", "Skipped", "Unknown",
			"nothing that can be exported", "",
		},
	} {
		step := Next(tc.view)
		if got := doing(&step); got != tc.do {
			t.Errorf("%s: does %q, want %q", name, got, tc.do)
		}
		if tc.do == "end" {
			continue
		}
		status := step.Status
		ready := conditions.Find(status.Conditions, v1beta1.ConditionReady)
		if string(status.Phase) != tc.phase || ready.Reason != tc.reason ||
			!strings.Contains(ready.Message, tc.message) {
			t.Errorf("%s: %s, %s %q", name, status.Phase, ready.Reason, ready.Message)
		}
		if tc.more != "" && !says(status, tc.more) {
			t.Errorf("%s: %+v", name, status.Conditions)
		}
		if want := exports.Expiration(tc.view.Export); !status.TTLExpirationTime.Time.Equal(want) ||
			step.RequeueAfter <= 0 || step.RequeueAfter > want.Sub(tc.view.Now) {
			t.Errorf("%s: expires %s, is looked at again after %s", name, status.TTLExpirationTime, step.RequeueAfter)
		}
	}
}

// doing says what a step does in words.
func doing(step *Step) string {
	var out []string
	add := func(do bool, word string) {
		if do {
			out = append(out, word)
		}
	}
	add(step.DeleteExport, "end")
	add(step.CreateToken != nil, "token")
	add(len(step.CreateClaims) == 1, "claims1")
	add(step.CreateService != nil, "service")
	add(step.CreateIdentity, "identity")
	add(step.CreatePod != nil, "pod")
	add(step.DeletePod, "delete")
	if step.Status != nil && step.Status.Links != nil {
		add(step.Status.Links.Internal.Manifests != nil, "links")
		add(step.Status.Links.Internal.Manifests == nil, "links-without-manifests")
	}
	return strings.Join(out, " ")
}

// says reports whether a status has a condition, as "Type=Status Reason".
func says(status *v1beta1.VirtualMachineExportStatus, want string) bool {
	for _, c := range status.Conditions {
		if string(c.Type)+"="+string(c.Status)+" "+c.Reason == want {
			return true
		}
	}
	return false
}

// What a restored claim is like: as large as its snapshot, without the old one's labels, volume and node.
func TestRestored(t *testing.T) {
	v := ofSnapshot()
	claim := v.restored(&v.Claims[0])
	if claim.Name != "e-disk" || !metav1.IsControlledBy(claim, v.Export) || claim.Spec.VolumeName != "" ||
		len(claim.Labels) != 1 || claim.Spec.DataSource.Name != "vs" || *claim.Spec.StorageClassName != "csi" {
		t.Errorf("%+v", claim)
	}
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "2Gi" {
		t.Error(size.String())
	}
	v.Claims[0].RestoreSize = nil
	if size := v.restored(&v.Claims[0]).Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "1Gi" {
		t.Error(size.String())
	}
}

func TestContentOf(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	uploaded := map[string]string{uploads.AnnotationState: uploads.Encode(uploads.State{Phase: uploads.Succeeded})}
	cdi := func(content string) map[string]string {
		return map[string]string{exports.AnnotationContentType: content}
	}
	for name, tc := range map[string]struct {
		mode         *corev1.PersistentVolumeMode
		annotations  map[string]string
		filled, disk bool
		want         exports.Content
	}{
		"block":                    {mode: &block, want: exports.Device},
		"block of CDI's archive":   {mode: &block, annotations: cdi("archive"), want: exports.Device},
		"a file system":            {want: exports.Files},
		"CDI's disk":               {annotations: cdi("kubevirt"), want: exports.Disk},
		"CDI's, not named":         {annotations: cdi(""), want: exports.Disk},
		"CDI's archive":            {annotations: cdi("archive"), filled: true, disk: true, want: exports.Files},
		"a DataVolume":             {filled: true, want: exports.Disk},
		"a VM's disk":              {disk: true, want: exports.Disk},
		"an image that was upload": {annotations: uploaded, want: exports.Disk},
	} {
		if got := contentOf(tc.mode, tc.annotations, tc.filled, tc.disk); got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	spec := &v1.VirtualMachineInstanceSpec{}
	volume := func(name, claim string) v1.Volume {
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = claim
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}
	}
	spec.Volumes = []v1.Volume{volume("root", "a"), volume("share", "b"), volume("more", "d")}
	spec.Domain.Devices.Disks = []v1.Disk{{Name: "root"}}
	spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "share", Virtiofs: &v1.FilesystemVirtiofs{}}}
	if !isDisk(spec, "a") || isDisk(spec, "b") || isDisk(spec, "c") || !isDisk(spec, "d") {
		t.Error("the VM's disks are a and d, which is not listed, its share b")
	}
}

func TestUses(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{secretVolume("x", "disk"), {
		VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
		},
	}}}}
	if !uses(pod, "disk") || uses(pod, "other") {
		t.Error("the pod uses disk")
	}
	other := pod.DeepCopy()
	other.OwnerReferences = []metav1.OwnerReference{owner(exportOf(exports.KindClaim, "disk"))}
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	if uses(other, "disk") || uses(ended, "disk") {
		t.Error("a pod that has ended, or of another export, is in the way")
	}
}

// A certificate from outside that is too large is said in the condition, and in one event; the link is there without.
func TestExternalTooLarge(t *testing.T) {
	v := withPod(ofVM(), corev1.PodRunning, true, nil)
	v.Entrance = &Entrance{Host: "vms.example.com", Trouble: "too large"}
	step := Next(v)
	ready := conditions.Find(step.Status.Conditions, v1beta1.ConditionReady)
	if link := step.Status.Links.External; link == nil || link.Cert != "" || ready.Message != "too large" ||
		ready.Status != corev1.ConditionTrue || len(step.Events) != 1 || step.Events[0].Reason != eventCertificate {
		t.Errorf("%+v, %+v, %+v", link, ready, step.Events)
	}
	v.Export.Status = step.Status
	if again := Next(v); len(again.Events) > 0 {
		t.Errorf("it is said again: %+v", again.Events)
	}
	// Nor is it while nobody knows for a moment what leads there, and after that.
	settled := v.Entrance
	v.Entrance, v.Unsettled = nil, true
	step = Next(v)
	ready = conditions.Find(step.Status.Conditions, v1beta1.ConditionReady)
	if ready.Message != "too large" || ready.Status != corev1.ConditionTrue || len(step.Events) > 0 {
		t.Errorf("unsettled: %+v, %+v", ready, step.Events)
	}
	v.Export.Status, v.Entrance, v.Unsettled = step.Status, settled, false
	if again := Next(v); len(again.Events) > 0 {
		t.Errorf("it is said again after that: %+v", again.Events)
	}
	v.Entrance.Trouble = ""
	if ready := conditions.Find(Next(v).Status.Conditions, v1beta1.ConditionReady); ready.Message != "" {
		t.Errorf("it is still said: %+v", ready)
	}
}

// The link from outside is there while something leads to exports, and says what the proxy takes.
func TestExternal(t *testing.T) {
	v := withPod(ofVM(), corev1.PodRunning, true, nil)
	if links := Next(v).Status.Links; links.External != nil || links.Internal == nil {
		t.Errorf("nothing leads there: %+v", links)
	}
	v.Entrance = &Entrance{Host: "vms.example.com", Certificate: "OUTSIDE"}
	// A pod from before external links serves volumes there, and no manifests.
	if link := Next(v).Status.Links.External; link == nil || len(link.Volumes) != 1 || len(link.Manifests) != 0 {
		t.Errorf("a pod from before: %+v", link)
	}
	v.Pod.Spec = Pod(v.Export, nil, Facts{}).Spec
	step := Next(v)
	const at = "https://vms.example.com/api/export.kubevirt.io/v1beta1/namespaces/ns/virtualmachineexports/e"
	link := step.Status.Links.External
	if link == nil || link.Cert != "OUTSIDE" || link.Volumes[0].Formats[0].Url != at+"/volumes/disk/disk.img" ||
		link.Manifests[0].Url != at+"/external/manifests/all" || step.RequeueAfter != watchful {
		t.Errorf("%+v, again after %s", link, step.RequeueAfter)
	}
	if link := Next(v).Status.Links.Internal; link.Cert != "PEM" ||
		strings.Contains(link.Manifests[0].Url, "external") {
		t.Errorf("inside: %+v", link)
	}
	// It stays while nobody knows what leads there.
	v.Export.Status, v.Entrance, v.Unsettled = step.Status, nil, true
	if step := Next(v); step.Status.Links.External == nil || step.Status.Links.External.Cert != "OUTSIDE" ||
		step.Status.Phase != v1beta1.Ready || step.RequeueAfter != frame.CatchUp {
		t.Errorf("unsettled: %+v, again after %s", step.Status.Links, step.RequeueAfter)
	}
	v.Unsettled = false
	// It goes with what led there, also when the status has had it.
	if links := Next(v).Status.Links; links.External != nil {
		t.Errorf("it stays: %+v", links.External)
	}
}
