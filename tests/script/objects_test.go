package script

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
)

// serveObjects answers expand and objectgraph, lists instance types, and takes any object that is created.
func (c *cluster) serveObjects(mux *http.ServeMux, subresources string) {
	mux.HandleFunc("GET "+subresources+"namespaces/{ns}/virtualmachines/{name}/expand-spec",
		func(w http.ResponseWriter, r *http.Request) {
			vm, ok := c.find(resourceVMs, r.PathValue("ns"), r.PathValue("name")).(*v1.VirtualMachine)
			if !ok {
				refuse(w, apierrors.NewNotFound(group(resourceVMs), r.PathValue("name")))
				return
			}
			answer(w, http.StatusOK, vm)
		})
	mux.HandleFunc("PUT "+subresources+"namespaces/{ns}/expand-vm-spec", func(w http.ResponseWriter, r *http.Request) {
		vm := &v1.VirtualMachine{}
		if err := json.NewDecoder(r.Body).Decode(vm); err != nil || vm.Kind != "VirtualMachine" {
			refuse(w,
				apierrors.NewBadRequest(fmt.Sprintf("Object is not a valid VirtualMachine: its kind is %q", vm.Kind)))
			return
		}
		vm.Spec.Instancetype = nil
		answer(w, http.StatusOK, vm)
	})
	for _, resource := range []string{resourceVMs, resourceVMIs} {
		mux.HandleFunc("GET "+subresources+"namespaces/{ns}/"+resource+"/{name}/objectgraph",
			func(w http.ResponseWriter, r *http.Request) {
				name := r.PathValue("name")
				if c.find(resource, r.PathValue("ns"), name) == nil {
					refuse(w, apierrors.NewNotFound(group(resource), name))
					return
				}
				body, err := io.ReadAll(r.Body)
				if err != nil {
					refuse(w, apierrors.NewBadRequest(err.Error()))
					return
				}
				c.note(r, body)
				node := v1.ObjectGraphNode{Labels: map[string]string{"kubevirt.io/dependency-type": "compute"}}
				node.ObjectReference.Kind, node.ObjectReference.Name = "VirtualMachine", name
				answer(w, http.StatusOK, node)
			})
	}
	created := func(w http.ResponseWriter, r *http.Request) {
		object := map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		c.note(r, nil)
		answer(w, http.StatusCreated, object)
	}
	const instancetypes = "/apis/instancetype.kubevirt.io/v1beta1/"
	mux.HandleFunc("POST /api/v1/namespaces/{ns}/services", created)
	mux.HandleFunc("POST "+instancetypes+"{resource}", created)
	mux.HandleFunc("POST "+instancetypes+"namespaces/{ns}/{resource}", created)
	names := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, metav1.PartialObjectMetadataList{
				Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: name}}},
			})
		}
	}
	mux.HandleFunc("GET "+instancetypes+"{resource}", names("wide"))
	mux.HandleFunc("GET "+instancetypes+"namespaces/{ns}/{resource}", names("own"))
	mux.HandleFunc("GET "+instancetypes+"{resource}/{name}", sizing)
	mux.HandleFunc("GET "+instancetypes+"namespaces/{ns}/{resource}/{name}", sizing)
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/persistentvolumeclaims", names("disk"))
	mux.HandleFunc("GET /api/v1/persistentvolumes", names("volume"))
	mux.HandleFunc("GET /api/v1/nodes", names("node1"))
	mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if !strings.HasPrefix(name, "node") {
			refuse(w, apierrors.NewNotFound(group("nodes"), name))
			return
		}
		answer(w, http.StatusOK, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
	c.serveConnections(mux)
}

// serveConnections answers what decides on a connection to a guest: a pod, the labels of a namespace, and
// NetworkPolicies, which the viewer may not read.
func (c *cluster) serveConnections(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		pod := c.find(resourcePods, r.PathValue("ns"), r.PathValue("name"))
		if pod == nil {
			refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: resourcePods}, r.PathValue("name")))
			return
		}
		answer(w, http.StatusOK, pod)
	})
	mux.HandleFunc("GET /api/v1/namespaces/{ns}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: r.PathValue("ns"), Labels: map[string]string{"team": "of-" + r.PathValue("ns")},
		}})
	})
	mux.HandleFunc("GET /apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
		func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.Header.Get("Authorization"), tokenViewer) {
				refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: resourcePolicies}, "", nil))
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			list := networkingv1.NetworkPolicyList{}
			for _, o := range c.objects[resourcePolicies] {
				if policy := o.(*networkingv1.NetworkPolicy); policy.Namespace == r.PathValue("ns") {
					list.Items = append(list.Items, *policy)
				}
			}
			answer(w, http.StatusOK, list)
		})
}

// sizing answers for an instance type or preference.
func sizing(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	switch name {
	case "wide", "own", "u1.small", "u1.large", "fedora":
		answer(w, http.StatusOK, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		return
	}
	resource := schema.GroupResource{Group: "instancetype.kubevirt.io", Resource: r.PathValue("resource")}
	refuse(w, apierrors.NewNotFound(resource, name))
}
