package script

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// serveExports keeps exports, none of which gets ready.
func (c *cluster) serveExports(mux *http.ServeMux) {
	const path = exports.Path + "/namespaces/{ns}/" + exports.Resource
	resource := schema.GroupResource{Group: v1beta1.SchemeGroupVersion.Group, Resource: exports.Resource}
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		export := &v1beta1.VirtualMachineExport{}
		if err := json.NewDecoder(r.Body).Decode(export); err != nil {
			refuse(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		export.Status = &v1beta1.VirtualMachineExportStatus{
			Phase: v1beta1.Pending,
			Conditions: []v1beta1.Condition{{
				Type: v1beta1.ConditionReady, Status: corev1.ConditionFalse, Reason: exports.ReasonInUse,
				Message: "Virtual Machine default/demo is running",
			}},
		}
		c.note(r, nil)
		c.put1(exports.Resource, export)
		answer(w, http.StatusCreated, export)
	})
	one := func(method string, then func(http.ResponseWriter, *http.Request, string)) {
		mux.HandleFunc(method+" "+path+"/{name}", func(w http.ResponseWriter, r *http.Request) {
			name := r.PathValue("name")
			if c.find(exports.Resource, r.PathValue("ns"), name) == nil {
				refuse(w, apierrors.NewNotFound(resource, name))
				return
			}
			then(w, r, name)
		})
	}
	one(http.MethodGet, func(w http.ResponseWriter, r *http.Request, name string) {
		answer(w, http.StatusOK, c.find(exports.Resource, r.PathValue("ns"), name))
	})
	one(http.MethodDelete, func(w http.ResponseWriter, r *http.Request, name string) {
		c.note(r, nil)
		c.remove(exports.Resource, r.PathValue("ns")+"/"+name)
		answer(w, http.StatusOK, map[string]string{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	})
}
