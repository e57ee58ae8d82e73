package script

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// serveObserving answers what events, logs, why and evacuate read: events, pods, no classes of storage, the pods of
// virtkit to nobody, and of each instance a log of two lines, of which the last has no end.
func (c *cluster) serveObserving(mux *http.ServeMux, subresources string) {
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/events", func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		list := corev1.EventList{}
		for _, o := range c.objects[resourceEvents] {
			if e := o.(*corev1.Event); e.Namespace == r.PathValue("ns") {
				list.Items = append(list.Items, *e)
			}
		}
		answer(w, http.StatusOK, list)
	})
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/pods", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("ns") == names.Namespace {
			refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil))
			return
		}
		answer(w, http.StatusOK, c.pods(r.PathValue("ns")))
	})
	var readings uint64
	mux.HandleFunc("GET "+subresources+"namespaces/{ns}/stats", func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		readings++ // each a second and half a second of a processor after the one before
		list := stats.List{}
		for key := range c.objects[resourceVMIs] {
			if ns, name, _ := strings.Cut(key, "/"); ns == r.PathValue("ns") {
				list.Items = append(list.Items, stats.Guest{
					Namespace: ns, Name: name, Node: "node1", VCPUs: 1, CPUTime: readings * 500e6,
					Time: time.Unix(int64(readings), 0),
				})
			}
		}
		answer(w, http.StatusOK, list)
	})
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, c.pods(""))
	})
	mux.HandleFunc("PATCH /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		c.note(r, body)
		answer(w, http.StatusOK, corev1.Node{})
	})
	mux.HandleFunc("GET /apis/storage.k8s.io/v1/storageclasses", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, storagev1.StorageClassList{})
	})
	mux.HandleFunc("GET "+subresources+"namespaces/{ns}/virtualmachineinstances/{name}/log",
		func(w http.ResponseWriter, r *http.Request) {
			name := r.PathValue("name")
			if c.find(resourceVMIs, r.PathValue("ns"), name) == nil {
				refuse(w, apierrors.NewNotFound(group(resourceVMIs), name))
				return
			}
			fmt.Fprintf(w, "%s boots\n%s login: ", name, name)
		})
}

// pods returns the pods of a namespace, or of all with "".
func (c *cluster) pods(ns string) corev1.PodList {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list corev1.PodList
	for _, o := range c.objects[resourcePods] {
		if pod := o.(*corev1.Pod); ns == "" || pod.Namespace == ns {
			list.Items = append(list.Items, *pod)
		}
	}
	return list
}
