package virtapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	"kubevirt.io/api/instancetype/v1beta1"
	"kubevirt.io/api/migrations/v1alpha1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// maxReview bounds an AdmissionReview, bytes: it holds the object twice on an update.
const maxReview = 2*maxBody + 64<<10

// admission answers the API server's webhook calls. But for evictions it changes nothing anywhere, so dry runs need
// no care. defaults gives the configuration of the moment.
type admission struct {
	defaults func() surface.Defaults
	// referents reads a VM's instance type and preference.
	referents instancetype.Reader
	// instance reads a VirtualMachineInstance, which is to migrate.
	instance  func(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	evictions evictions
	// holders know who has which MAC and IP address; definition reads the NetworkAttachmentDefinition that says which
	// addresses a network keeps, nil for one that there is not.
	holders    *addressHolders
	definition func(ctx context.Context, namespace, name string) (*ipaddress.Definition, error)
	// authorize asks the cluster whether a user may do something.
	authorize func(ctx context.Context, review *authorizationv1.SubjectAccessReview) (
		*authorizationv1.SubjectAccessReview, error)
}

// paths returns the webhooks by path, as manifests/base/webhooks.yaml names them.
func (a *admission) paths() map[string]webhook {
	return map[string]webhook{
		"/mutate/virtualmachines":           known[v1.VirtualMachine](a.defaultMachine),
		"/mutate/virtualmachineinstances":   known[v1.VirtualMachineInstance](a.defaultInstance),
		"/mutate/virtualmachinesnapshots":   known[snapshotv1beta1.VirtualMachineSnapshot](a.defaultSnapshot),
		"/mutate/virtualmachineclones":      known[clonev1beta1.VirtualMachineClone](a.defaultClone),
		"/validate/virtualmachines":         known[v1.VirtualMachine](a.validateMachine),
		"/validate/virtualmachineinstances": known[v1.VirtualMachineInstance](a.validateInstance),
		"/validate/kubevirts":               known[v1.KubeVirt](a.validateKubeVirt),
		"/validate/instancetypes":           known[v1beta1.VirtualMachineInstancetype](a.validateInstancetype),
		"/validate/preferences":             known[v1beta1.VirtualMachinePreference](a.validatePreference),

		"/validate/virtualmachineinstancemigrations":  known[v1.VirtualMachineInstanceMigration](a.validateMigration),
		"/validate/migrationpolicies":                 known[v1alpha1.MigrationPolicy](a.validateMigrationPolicy),
		"/validate/evictions":                         a.evictions.admit,
		"/validate/virtualmachineinstancereplicasets": known[v1.VirtualMachineInstanceReplicaSet](a.validateReplicaSet),
		"/validate/virtualmachinepools":               known[poolv1beta1.VirtualMachinePool](a.validatePool),

		"/validate/virtualmachinesnapshots": known[snapshotv1beta1.VirtualMachineSnapshot](a.validateSnapshot),
		"/validate/virtualmachinerestores":  known[snapshotv1beta1.VirtualMachineRestore](a.validateRestore),
		"/validate/virtualmachineexports":   known[exportv1beta1.VirtualMachineExport](a.validateExport),
		"/validate/virtualmachineclones":    known[clonev1beta1.VirtualMachineClone](a.validateClone),
	}
}

// review turns a webhook into an HTTP handler.
func review(admit webhook) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		refuse := func(code int32, text string) {
			stream.WriteStatus(w, metav1.Status{
				Status: metav1.StatusFailure, Code: code,
				Reason: metav1.StatusReasonBadRequest, Message: text,
			})
		}
		if r.Method != http.MethodPost {
			refuse(http.StatusMethodNotAllowed, "admission reviews are posted")
			return
		}
		in := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(in); err != nil {
			refuse(http.StatusBadRequest, "cannot read the AdmissionReview: "+err.Error())
			return
		}
		if in.Request == nil || in.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") {
			refuse(http.StatusBadRequest, "the body is not an admission.k8s.io/v1 AdmissionReview with a request")
			return
		}
		response, err := admit(r.Context(), in.Request)
		if err != nil {
			code, reason := refusal(err)
			response = denied(code, reason, err.Error(), nil)
		}
		response.UID = in.Request.UID
		out := &admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: response}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the API server is gone: it has its own failure policy
	}
}

// refusal returns the code and the reason with which an error refuses a request: BadRequest, which callers take for
// final, unless another try may succeed.
func refusal(err error) (code int32, reason metav1.StatusReason) {
	var closed closedError
	switch {
	case unanswered(err):
		return http.StatusInternalServerError, metav1.StatusReasonInternalError
	case errors.As(err, &closed):
		return http.StatusBadRequest, names.ReasonGateClosed
	}
	return http.StatusBadRequest, metav1.StatusReasonBadRequest
}

// unanswered reports an error that says nothing of the object: what had to be asked gave no answer, and another try may
// have one.
func unanswered(err error) bool {
	var network net.Error // of a connection; *url.Error is one
	return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

func allowed() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

func denied(
	code int32, reason metav1.StatusReason, message string, details *metav1.StatusDetails,
) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: details,
	}}
}

// verdict allows an object without errors.
func verdict(kind, name string, errs field.ErrorList) *admissionv1.AdmissionResponse {
	if len(errs) == 0 {
		return allowed()
	}
	details := &metav1.StatusDetails{Group: v1.GroupVersion.Group, Kind: kind, Name: name}
	for _, err := range errs {
		cause := metav1.StatusCause{Type: metav1.CauseType(err.Type), Field: err.Field, Message: surface.Detail(err)}
		if conflict := instancetype.Conflict(err); conflict != "" {
			cause.Type, cause.Message = metav1.CauseTypeFieldValueInvalid, conflict
		}
		details.Causes = append(details.Causes, cause)
	}
	return denied(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, surface.Message(errs), details)
}

// readable returns objects for the defaulting, which lets pass what does not fit the Go types: what follows refuses it,
// the API server's check of the schema, which names the field, or else the validating webhook.
func readable[T any](request *admissionv1.AdmissionRequest) (object, old *T, ok bool) {
	object, old, err := objects[T](request)
	return object, old, err == nil
}

// objects reads the new and, on an update, the old object of a request.
func objects[T any](request *admissionv1.AdmissionRequest) (object, old *T, err error) {
	object = new(T)
	if err := json.Unmarshal(request.Object.Raw, object); err != nil {
		return nil, nil, fmt.Errorf("the %s cannot be read: %w", request.Kind.Kind, err)
	}
	if len(request.OldObject.Raw) > 0 {
		old = new(T)
		if err := json.Unmarshal(request.OldObject.Raw, old); err != nil {
			return nil, nil, fmt.Errorf("the %s before the change cannot be read: %w", request.Kind.Kind, err)
		}
	}
	return object, old, nil
}

func (a *admission) defaultMachine(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	vm, old, ok := readable[v1.VirtualMachine](request)
	if !ok {
		return allowed(), nil
	}
	before := vm.DeepCopy()
	if vm.DeletionTimestamp == nil && !surface.Settled(vm, old) {
		defaults, err := a.refer(ctx, vm, a.defaults())
		var missing *instancetype.NotFoundError
		if errors.As(err, &missing) {
			return verdict(request.Kind.Kind, vm.Name, missing.List()), nil
		}
		if err != nil {
			return nil, err
		}
		surface.DefaultVirtualMachine(vm, old, defaults)
		if expands(vm, old, defaults.References) {
			if err := a.expand(ctx, vm); err != nil {
				return nil, err
			}
		}
	}
	return patched(request.Object.Raw, before, vm)
}

func (a *admission) defaultInstance(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	vmi, _, ok := readable[v1.VirtualMachineInstance](request)
	if !ok {
		return allowed(), nil
	}
	before := vmi.DeepCopy()
	if request.Operation == admissionv1.Create {
		surface.DefaultVirtualMachineInstance(vmi, a.defaults())
	}
	return patched(request.Object.Raw, before, vmi)
}

func (a *admission) validateMachine(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	vm, old, err := objects[v1.VirtualMachine](request)
	if err != nil {
		return nil, err
	}
	by := surface.ActorOf(request.UserInfo.Username)
	if errs, err := a.validateReserved(ctx, vm, old, by); err != nil || len(errs) > 0 {
		return verdict(request.Kind.Kind, vm.Name, errs), err
	}
	if errs, err := a.validateMACs(ctx, vm, old, by); err != nil || len(errs) > 0 {
		return verdict(request.Kind.Kind, vm.Name, errs), err
	}
	refused, unkept, err := a.validateIPs(ctx, vm, old, by)
	if err != nil || len(refused) > 0 {
		return verdict(request.Kind.Kind, vm.Name, refused), err
	}
	if surface.Settled(vm, old) {
		return allowed(), nil
	}
	if errs := slices.Concat(validateHeld(vm, old, by), validateResuming(vm, old, by),
		surface.ValidateTemplateRoom(vm, old)); len(errs) > 0 {
		return verdict(request.Kind.Kind, vm.Name, errs), nil
	}
	errs, warnings, err := a.validateReferring(ctx, vm)
	if err != nil {
		return nil, err
	}
	response := verdict(request.Kind.Kind, vm.Name, errs)
	response.Warnings = slices.Concat(warnings, surface.MachineWarnings(vm), unkept)
	return response, nil
}

func (a *admission) validateInstance(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	vmi, old, err := objects[v1.VirtualMachineInstance](request)
	if err != nil {
		return nil, err
	}
	by := surface.ActorOf(request.UserInfo.Username)
	if old != nil {
		return verdict(request.Kind.Kind, vmi.Name, surface.ValidateVirtualMachineInstanceUpdate(vmi, old, by)), nil
	}
	if errs, err := a.validateInstanceMACs(ctx, vmi, by); err != nil || len(errs) > 0 {
		return verdict(request.Kind.Kind, vmi.Name, errs), err
	}
	if errs, err := a.validateInstanceIPs(ctx, vmi, by); err != nil || len(errs) > 0 {
		return verdict(request.Kind.Kind, vmi.Name, errs), err
	}
	errs := surface.ValidateVirtualMachineInstance(vmi, by)
	errs = append(errs, a.defaults().Allowed.Validate(&vmi.Spec, field.NewPath("spec"))...)
	response := verdict(request.Kind.Kind, vmi.Name, errs)
	if !by.Component { // who made its VM has been warned
		response.Warnings = surface.Warnings("", vmi.Annotations, &vmi.Spec)
	}
	return response, nil
}

func (a *admission) validateKubeVirt(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	kv, old, err := objects[v1.KubeVirt](request)
	if err != nil {
		return nil, err
	}
	response := verdict(request.Kind.Kind, kv.Name, surface.ValidateKubeVirt(kv, old))
	response.Warnings = surface.KubeVirtWarnings(kv)
	return response, nil
}

func (a *admission) validateInstancetype(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	object, _, err := objects[v1beta1.VirtualMachineInstancetype](request) // the cluster's kind has the same fields
	if err != nil {
		return nil, err
	}
	return verdict(request.Kind.Kind, object.Name, instancetype.Validate(&object.Spec)), nil
}

func (a *admission) validatePreference(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	object, _, err := objects[v1beta1.VirtualMachinePreference](request)
	if err != nil {
		return nil, err
	}
	return verdict(request.Kind.Kind, object.Name, instancetype.ValidatePreference(&object.Spec)), nil
}

func (a *admission) validateMigration(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	migration, old, err := objects[v1.VirtualMachineInstanceMigration](request)
	if err != nil {
		return nil, err
	}
	errs := surface.ValidateVirtualMachineInstanceMigration(migration, old)
	// The components know the VMI.
	if by := surface.ActorOf(request.UserInfo.Username); old == nil && len(errs) == 0 && !by.Component && !by.API {
		ctx, cancel := context.WithTimeout(ctx, lookup)
		defer cancel()
		vmi, err := a.instance(ctx, request.Namespace, migration.Spec.VMIName)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		errs = surface.ValidateMigrationOf(vmi, migration)
	}
	return verdict(request.Kind.Kind, migration.Name, errs), nil
}

func (a *admission) validateMigrationPolicy(
	_ context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	policy, old, err := objects[v1alpha1.MigrationPolicy](request)
	if err != nil {
		return nil, err
	}
	return verdict(request.Kind.Kind, policy.Name, surface.ValidateMigrationPolicy(policy, old)), nil
}
