package script

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"
)

// serveRename answers what rename asks besides VMs: whether VMs may be changed, and Services, of which one selects the
// guest of "demo".
func (c *cluster) serveRename(mux *http.ServeMux) {
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		func(w http.ResponseWriter, r *http.Request) {
			review := &authorizationv1.SelfSubjectAccessReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Spec.ResourceAttributes == nil {
				refuse(w, apierrors.NewBadRequest("no review"))
				return
			}
			what := review.Spec.ResourceAttributes
			if what.Resource != resourceVMs || !slices.Contains([]string{"create", "patch", "delete"}, what.Verb) {
				http.NotFound(w, r)
				return
			}
			review.Status.Allowed = what.Name != "locked"
			answer(w, http.StatusCreated, review)
		})
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/selfsubjectreviews",
		func(w http.ResponseWriter, _ *http.Request) {
			review := &authenticationv1.SelfSubjectReview{}
			review.Status.UserInfo.Username = "jane"
			answer(w, http.StatusCreated, review)
		})
	// There is no CDI, of which nobody has rights then.
	mux.HandleFunc("GET /apis/cdi.kubevirt.io/v1beta1/namespaces/{ns}/datavolumes",
		func(w http.ResponseWriter, _ *http.Request) {
			resource := schema.GroupResource{Group: "cdi.kubevirt.io", Resource: "datavolumes"}
			refuse(w, apierrors.NewForbidden(resource, "", errors.New("no role")))
		})
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/services", func(w http.ResponseWriter, _ *http.Request) {
		service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
		service.Spec.Selector = map[string]string{v1.VirtualMachineInstanceIDLabel: "demo"}
		answer(w, http.StatusOK, corev1.ServiceList{Items: []corev1.Service{service}})
	})
}
