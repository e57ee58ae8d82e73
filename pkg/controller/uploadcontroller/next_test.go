package uploadcontroller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func claimOf(block bool) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid"}}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if block {
		claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	}
	return claim
}

func pod(phase corev1.PodPhase, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Status: corev1.PodStatus{Phase: phase}}
	if change != nil {
		change(p)
	}
	return p
}

func ended(phase corev1.PodPhase, code int32, reason, message string) *corev1.Pod {
	return pod(phase, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: names.ContainerCompute,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Reason: reason, Message: message,
			}},
		}}
	})
}

func TestNext(t *testing.T) {
	labels := map[string]string{"a": "b"}
	request := &uploads.Request{ID: "0123456789abcdef", Size: 5, Labels: labels, Since: now.Add(-time.Minute)}
	old := &uploads.Request{ID: request.ID, Size: 5, Labels: labels, Since: now.Add(-2 * time.Hour)}
	incomplete := &uploads.Request{ID: request.ID, Size: 5, Since: old.Since, Incomplete: true}
	cancelled := &uploads.Request{ID: request.ID, Size: 5, Labels: labels, Since: request.Since, Cancel: true}
	sum := strings.Repeat("a", 64)
	good := uploads.Encode(uploads.State{Phase: uploads.Succeeded, Received: 5, Size: 5, SHA256: sum})
	leaving := claimOf(false)
	leaving.DeletionTimestamp = &metav1.Time{}
	going := pod(corev1.PodRunning, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
	unscheduled := pod(corev1.PodPending, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes\nare available"},
		}
	})
	for name, test := range map[string]struct {
		view    View
		create  bool
		deletes int
		say     string
		end     uploads.Phase
		message string
		intact  bool
		again   bool // it was only interrupted
	}{
		"asked for": {view: View{Request: request}, create: true},
		"an older pod writes": {
			view: View{Request: request, Others: []*corev1.Pod{pod(corev1.PodRunning, nil)}}, deletes: 1,
		},
		"runs":          {view: View{Request: request, Pod: pod(corev1.PodRunning, nil)}},
		"runs for long": {view: View{Request: old, Pod: pod(corev1.PodRunning, nil)}},
		"starts":        {view: View{Request: request, Pod: pod(corev1.PodPending, nil)}},
		"has no node": {
			view: View{Request: request, Pod: unscheduled},
			say:  "the upload's pod waits for a node: 0/2 nodes are available",
		},
		"that was said": {
			view: View{
				Request: request, Pod: unscheduled,
				State: &uploads.State{Message: "the upload's pod waits for a node: 0/2 nodes are available"},
			},
		},
		"never started": {
			view: View{Request: old, Pod: unscheduled}, end: uploads.Failed, message: "0/2 nodes", intact: true,
		},
		"never started, after a part of another": {
			view: View{Request: incomplete, Pod: unscheduled}, end: uploads.Failed, message: "0/2 nodes",
		},
		"never made": {
			view: View{Request: old, State: &uploads.State{Message: "exceeded quota"}}, end: uploads.Failed,
			message: "exceeded quota", intact: true,
		},
		"done": {view: View{Request: request, Pod: ended(corev1.PodSucceeded, 0, "", good)}, end: uploads.Succeeded},
		"done, says who failed": {
			view: View{Request: request, Pod: ended(corev1.PodFailed, 1, "", good)}, end: uploads.Failed,
			message: "code 1",
		},
		"ended without a word": {
			view: View{Request: request, Pod: ended(corev1.PodSucceeded, 0, "", "")}, end: uploads.Failed,
			message: "code 0",
		},
		"done, without all bytes": {
			view: View{Request: request, Pod: ended(corev1.PodSucceeded, 0, "", strings.Replace(good, `"received":5`,
				`"received":4`, 1))}, end: uploads.Failed, message: "code 0",
		},
		"refused": {
			view: View{Request: request, Pod: ended(corev1.PodFailed, 1, "", uploads.Encode(uploads.State{
				Phase: uploads.Failed, Message: "backing file", Intact: true,
			}))}, end: uploads.Failed, message: "backing file", intact: true,
		},
		"out of memory": {
			view: View{Request: request, Pod: ended(corev1.PodFailed, 137, "OOMKilled", "")}, end: uploads.Failed,
			message: "more memory",
		},
		"killed": {
			view: View{Request: request, Pod: ended(corev1.PodFailed, 137, "Error", "")}, end: uploads.Failed,
			message: "code 137", again: true,
		},
		"evicted": {
			view: View{Request: request, Pod: pod(corev1.PodFailed, func(p *corev1.Pod) {
				p.Status.Reason, p.Status.Message = "Evicted", "the node was low on memory"
			})}, end: uploads.Failed, message: "(Evicted)", again: true,
		},
		"cancelled":          {view: View{Request: cancelled, Pod: pod(corev1.PodRunning, nil)}, deletes: 1},
		"cancelled and gone": {view: View{Request: cancelled}, end: uploads.Cancelled},
		"cancelled, goes":    {view: View{Request: cancelled, Pod: going}},
		"claim goes": {
			view: View{Request: request, Claim: leaving, Pod: pod(corev1.PodRunning, nil)}, deletes: 1,
		},
		"claim goes alone": {view: View{Request: request, Claim: leaving}, create: false},
		"no request any more": {
			view: View{State: &uploads.State{}, Others: []*corev1.Pod{pod(corev1.PodSucceeded, nil)}}, deletes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.view.Now = now
			if test.view.Claim == nil {
				test.view.Claim = claimOf(false)
			}
			step := Next(test.view)
			said, end, message, intact := "", uploads.Phase(""), "", false
			if step.Say != nil {
				said = step.Say.Message
			}
			if step.End != nil {
				end, message, intact = step.End.Phase, step.End.Message, step.End.Intact
				if step.End.Interrupted != test.again {
					t.Errorf("interrupted: %t", step.End.Interrupted)
				}
			}
			if (step.Create != nil) != test.create || len(step.Delete) != test.deletes || said != test.say ||
				end != test.end || !strings.Contains(message, test.message) || intact != test.intact {
				t.Errorf("create %v, delete %d, say %q, end %q %q intact %t", step.Create, len(step.Delete), said, end,
					message, intact)
			}
			if test.view.Request != nil && (len(step.Labels) > 0) != (end == uploads.Succeeded) {
				t.Errorf("labels %v", step.Labels)
			}
		})
	}
}

// How large a container image's disk is, its pod alone knows.
func TestSizeOfContainerDisk(t *testing.T) {
	request := &uploads.Request{
		ID: "0123456789abcdef", ContainerDisk: &uploads.ContainerDisk{Image: "a"}, Since: now.Add(-time.Minute),
	}
	good := uploads.Encode(uploads.State{
		Phase: uploads.Succeeded, Received: 7, Size: 7, SHA256: strings.Repeat("a", 64),
	})
	step := Next(View{
		Claim: claimOf(false), Request: request, Pod: ended(corev1.PodSucceeded, 0, "", good), Now: now,
	})
	if step.End == nil || step.End.Size != 7 || uploads.ParseState([]byte(uploads.Encode(step.End))) == nil {
		t.Errorf("%+v", step.End)
	}
}

// The pod of a container image has it mounted, read-only, pulled by the Secret of the request.
func TestPodOfContainerDisk(t *testing.T) {
	p := Pod(claimOf(false), &uploads.Request{ID: "0123456789abcdef", ContainerDisk: &uploads.ContainerDisk{
		Image: "example.com/disk:1", Path: "/boot.img", PullSecret: "mine",
	}}, Facts{Image: "launcher"})
	c := p.Spec.Containers[0]
	if args := strings.Join(c.Args, " "); !strings.HasSuffix(args,
		"--image-directory=/upload-image --image=example.com/disk:1 --image-path=/boot.img") {
		t.Error(args)
	}
	volume, mount := p.Spec.Volumes[len(p.Spec.Volumes)-1], c.VolumeMounts[len(c.VolumeMounts)-1]
	if volume.Image == nil || volume.Image.Reference != "example.com/disk:1" || mount.Name != volume.Name ||
		!mount.ReadOnly || len(p.Spec.ImagePullSecrets) != 1 || p.Spec.ImagePullSecrets[0].Name != "mine" {
		t.Errorf("%+v, %+v, %v", volume, mount, p.Spec.ImagePullSecrets)
	}
}

// The pod passes Pod Security restricted, has no token, and limits; a device has scratch for what is converted.
func TestPod(t *testing.T) {
	request := &uploads.Request{ID: "0123456789abcdef", Size: 5}
	for _, block := range []bool{false, true} {
		p := Pod(claimOf(block), request, Facts{Image: "launcher"})
		c := p.Spec.Containers[0]
		if *p.Spec.AutomountServiceAccountToken || !*p.Spec.SecurityContext.RunAsNonRoot ||
			*p.Spec.SecurityContext.RunAsUser != names.User || !*c.SecurityContext.ReadOnlyRootFilesystem ||
			*c.SecurityContext.AllowPrivilegeEscalation || len(c.SecurityContext.Capabilities.Add) > 0 ||
			c.Resources.Limits.Memory().IsZero() || c.Resources.Limits.Cpu().IsZero() || len(c.Ports) > 0 ||
			p.Labels[names.LabelComponent] != names.VirtUpload || !strings.HasPrefix(p.Name, names.UploadPodPrefix) ||
			!metav1.IsControlledBy(p, claimOf(block)) {
			t.Errorf("%+v", p)
		}
		args := strings.Join(c.Args, " ")
		want := "--id=0123456789abcdef --size=5 --capacity=1073741824 --directory=/upload --overhead=0.06"
		if block {
			want = "--id=0123456789abcdef --size=5 --capacity=1073741824 --device=/dev/virtkit-upload"
		}
		if args != want || (len(c.VolumeDevices) > 0) != block || (len(p.Spec.Volumes) == 3) != block {
			t.Errorf("%s; volumes %v", args, p.Spec.Volumes)
		}
	}
}
