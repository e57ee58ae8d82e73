package virtapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const uploadID = "0123456789abcdef"

func TestMayUpload(t *testing.T) {
	request := uploads.Request{ID: uploadID, Size: 5}
	other := uploads.Request{ID: "fedcba9876543210", Size: 5}
	cancel := uploads.Request{ID: uploadID, Cancel: true}
	cancelled := request
	cancelled.Cancel = true
	asked := func(r uploads.Request) map[string]string {
		return map[string]string{uploads.AnnotationRequest: uploads.Encode(r)}
	}
	ended := func(phase uploads.Phase) map[string]string {
		return map[string]string{uploads.AnnotationState: uploads.Encode(uploads.State{Phase: phase})}
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		request     uploads.Request
		change      func(*corev1.PersistentVolumeClaim)
		asks        bool
		conflict    string
	}{
		"new":                  {request: request, asks: true},
		"goes on":              {annotations: asked(request), request: request},
		"another is under way": {annotations: asked(other), request: request, conflict: "another image is being"},
		"after a failure":      {annotations: ended(uploads.Failed), request: request, asks: true},
		"after a success":      {annotations: ended(uploads.Succeeded), request: request, conflict: "image already"},
		"the same, after a success": {annotations: map[string]string{
			uploads.AnnotationState: uploads.Encode(uploads.State{ID: uploadID, Phase: uploads.Succeeded}),
		}, request: request, conflict: "it has had this image since"},
		"cancel":                  {annotations: asked(request), request: cancel, asks: true},
		"cancel again":            {annotations: asked(cancelled), request: cancel},
		"cancel nothing":          {request: cancel, conflict: "is not being uploaded"},
		"cancel another":          {annotations: asked(other), request: cancel, conflict: "is not being uploaded"},
		"while that is cancelled": {annotations: asked(cancelled), request: request, conflict: "being cancelled"},
		"claim is deleted": {
			request: request, conflict: "being deleted",
			change: func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} },
		},
		"claim is lost": {
			request: request, conflict: "is lost",
			change: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost },
		},
		"claim of CDI's": {
			request: request, conflict: "DataVolume fills it",
			change: func(c *corev1.PersistentVolumeClaim) {
				c.OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Controller: new(true)}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Annotations: test.annotations},
			}
			if test.change != nil {
				test.change(claim)
			}
			wanted, err := mayUpload(claim, test.request)
			if (wanted != nil) != test.asks || apierrors.IsConflict(err) != (test.conflict != "") ||
				err != nil && !strings.Contains(err.Error(), test.conflict) {
				t.Errorf("%+v, %v", wanted, err)
			}
			if wanted != nil && (wanted.Cancel != test.request.Cancel ||
				wanted.Incomplete != (name == "after a failure")) {
				t.Errorf("%+v", wanted)
			}
		})
	}
}

func TestUnused(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid"}}
	user := func(phase corev1.PodPhase, owner ...metav1.OwnerReference) []corev1.Pod {
		return []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: owner},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
			}}}},
			Status: corev1.PodStatus{Phase: phase},
		}}
	}
	vmi := metav1.OwnerReference{Kind: "VirtualMachineInstance", Name: "vm", Controller: new(true)}
	own := *metav1.NewControllerRef(claim, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	for name, test := range map[string]struct {
		pods []corev1.Pod
		want string
	}{
		"nobody":   {},
		"a pod":    {user(corev1.PodRunning), "used by pod p;"},
		"has been": {user(corev1.PodSucceeded), ""},
		"a VM":     {user(corev1.PodPending, vmi), "used by VirtualMachineInstance vm;"},
		"its own":  {user(corev1.PodRunning, own), ""},
	} {
		err := unused(claim, test.pods)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	claim.Name = "p-scratch"
	pods := []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
			Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}},
		}}},
	}}
	if err := unused(claim, pods); err == nil || !strings.Contains(err.Error(), "used by pod p;") {
		t.Errorf("a pod's generic ephemeral volume: %v", err)
	}
}

// An upload is asked for by PUT, its state is read from the claim while no pod runs and from the pod's node when one
// does, and its bytes go there.
func TestUploadOverHTTP(t *testing.T) {
	var asked []string
	c := newCluster(t, nil, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		if strings.HasSuffix(r.URL.Path, "/data") {
			conn, err := stream.Accept(w, r, stream.Options{})
			if err == nil {
				_, _ = conn.Write([]byte("from the pod"))
				_ = conn.CloseWrite()
				_ = conn.Close()
			}
			return
		}
		_, _ = w.Write([]byte(uploads.Encode(uploads.State{Phase: uploads.Receiving, Received: 3, Size: 5})))
	})
	claims := c.core.CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "uid"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	do := func(method, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method,
			c.url+"/apis/subresources.kubevirt.io/v1/namespaces/default/persistentvolumeclaims/c/upload",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var text json.RawMessage
		_ = json.NewDecoder(response.Body).Decode(&text) // none, of some
		return response.StatusCode, string(text)
	}
	if code, text := do(http.MethodGet, ""); code != http.StatusNotFound {
		t.Errorf("no upload: %d %s", code, text)
	}
	if code, text := do(http.MethodPut, `{"id":"x"}`); code != http.StatusBadRequest || !strings.Contains(text, "id:") {
		t.Errorf("bad request: %d %s", code, text)
	}
	good := `{"id":"` + uploadID + `","size":5}`
	if code, text := do(http.MethodPut, good); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, text)
	}
	if code, text := do(http.MethodPut, `{"id":"fedcba9876543210","size":5}`); code != http.StatusConflict {
		t.Errorf("another: %d %s", code, text)
	}
	claim, err = claims.Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := uploads.RequestOf(claim.Annotations)
	if request == nil || request.Size != 5 || time.Since(request.Since) > time.Minute {
		t.Fatalf("%v", claim.Annotations)
	}
	if code, text := do(http.MethodGet, ""); code != http.StatusOK || !strings.Contains(text, `"phase": "Pending"`) {
		t.Errorf("no pod: %d %s", code, text)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: uploads.PodName("uid", uploadID), UID: "pod",
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(claim, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")),
			},
		},
		Spec: corev1.PodSpec{NodeName: testNode}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if _, err := c.core.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if code, text := do(http.MethodGet, ""); code != http.StatusOK || !strings.Contains(text, `"received": 3`) {
		t.Errorf("%d %s", code, text)
	}
	conn, err := c.dial("persistentvolumeclaims/c/upload", map[string][]string{"session": {"aa"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buffer := make([]byte, 100)
	if n, err := conn.Read(buffer); err != nil || string(buffer[:n]) != "from the pod" {
		t.Errorf("%q, %v", buffer[:n], err)
	}
	base := "/v1/namespaces/default/uploads/" + pod.Name
	if len(asked) != 2 || asked[0] != base+"/state?uid=pod" || asked[1] != base+"/data?session=aa&uid=pod" {
		t.Errorf("asked %v", asked)
	}
	if code, text := do(http.MethodPut, `{"id":"`+uploadID+`","cancel":true}`); code != http.StatusAccepted {
		t.Errorf("cancel: %d %s", code, text)
	}
}
