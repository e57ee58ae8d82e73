package written

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestLog(t *testing.T) {
	at := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", ResourceVersion: version}}
	}
	var log Log
	if log.Stale(at("5")) {
		t.Error("stale though nothing was written")
	}
	log.Note(at("10"))
	for range 2 {
		if !log.Stale(at("9")) {
			t.Error("9 is not older than 10")
		}
	}
	if log.Stale(at("10")) {
		t.Error("10 is older than 10")
	}
	if log.Stale(at("9")) {
		t.Error("the write was not forgotten")
	}
	log.Note(at("100"))
	if !log.Stale(at("20")) {
		t.Error("20 is not older than 100")
	}
	log.Forget(client.ObjectKeyFromObject(at("")))
	if log.Stale(at("20")) {
		t.Error("the object was not forgotten")
	}
	log.Note(at("11"))
	if log.Stale(at("strange")) {
		t.Error("a version that cannot be compared must not stop anything")
	}
}

func TestDeletions(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
	var deletions Deletions
	if deletions.Stale(pod) {
		t.Error("stale though nothing was deleted")
	}
	deletions.Note(pod)
	if !deletions.Stale(pod) {
		t.Error("not stale")
	}
	if deletions.Stale(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "two"}}) {
		t.Error("another object is stale")
	}
	pod.DeletionTimestamp = new(metav1.Now())
	if deletions.Stale(pod) {
		t.Error("stale though the deletion was seen")
	}
	pod.DeletionTimestamp = nil
	if deletions.Stale(pod) {
		t.Error("not forgotten")
	}
}

func TestReleases(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "one", ResourceVersion: "5"}}
	var releases Releases
	if releases.Stale(pod) {
		t.Error("stale though nothing was released")
	}
	releases.Note(pod)
	if !releases.Stale(pod) {
		t.Error("not stale")
	}
	for _, other := range []metav1.ObjectMeta{
		{Name: "a", UID: "one", ResourceVersion: "6"}, // Held by another finalizer.
		{Name: "a", UID: "two", ResourceVersion: "5"},
	} {
		if releases.Stale(&corev1.Pod{ObjectMeta: other}) {
			t.Errorf("%s/%s is stale", other.UID, other.ResourceVersion)
		}
	}
	releases.Forget(client.ObjectKeyFromObject(pod))
	if releases.Stale(pod) {
		t.Error("not forgotten")
	}
}
