package virtapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// A clone of what is in another namespace is carried out by virt-controller, with its own rights; so it is decided here
// whether who makes one may. What was decided on is written into the clone, and does not change: the namespace, and the
// UID of what is cloned. A clone without both is refused by virt-controller, too.

// crossing are the annotations that are decided on; what a clone keeps of its source is, too.
var crossing = []string{
	clones.NamespaceAnnotation, clones.UIDAnnotation, clones.KeepAnnotation, clones.SizeAnnotation,
}

func crossingField(key string) *field.Path { return field.NewPath("metadata", "annotations").Key(key) }

// defaultClone writes into a new clone the UID of its source, when that is in another namespace. validateClone decides
// whether the clone may be made, on what all others have made of it.
func (a *admission) defaultClone(
	ctx context.Context, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	clone, old, ok := readable[clonev1beta1.VirtualMachineClone](request)
	if !ok || old != nil || !clones.Crosses(clone) || clone.Spec.Source == nil ||
		len(validateSourceNamespace(clone, request.Namespace)) > 0 {
		return allowed(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	source, err := a.source(ctx, clone)
	if err != nil {
		return nil, err
	}
	if source.uid == "" {
		return allowed(), nil // validateClone says so to who may know
	}
	// The annotations are there, since one of them says where the source is.
	patch, err := json.Marshal([]map[string]string{{
		"op": "add", "path": "/metadata/annotations/" + strings.ReplaceAll(clones.UIDAnnotation, "/", "~1"),
		"value": string(source.uid),
	}})
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &kind}, nil
}

// cloned is the source of a clone: its UID, empty when it does not exist, and the VM's spec as far as it is known, or
// the claim of an image.
type cloned struct {
	uid   types.UID
	spec  v1.VirtualMachineSpec
	claim *corev1.PersistentVolumeClaim
}

// source reads what a clone names in the namespace that it names.
func (a *admission) source(ctx context.Context, clone *clonev1beta1.VirtualMachineClone) (cloned, error) {
	namespace, name := clones.SourceNamespace(clone), clone.Spec.Source.Name
	if clone.Spec.Source.Kind == kindMachine {
		vm := &v1.VirtualMachine{}
		err := a.read(ctx, namespace, name, vm)
		return cloned{uid: vm.UID, spec: vm.Spec}, err
	}
	if clones.OfImage(clone) {
		claim := &corev1.PersistentVolumeClaim{}
		err := a.read(ctx, namespace, name, claim)
		return cloned{uid: claim.UID, claim: claim}, err
	}
	snapshot := &snapshotv1beta1.VirtualMachineSnapshot{}
	if err := a.read(ctx, namespace, name, snapshot); err != nil {
		return cloned{}, err
	}
	out := cloned{uid: snapshot.UID}
	if snapshot.Status == nil || snapshot.Status.VirtualMachineSnapshotContentName == nil {
		return out, nil
	}
	var has snapshotv1beta1.VirtualMachineSnapshotContent
	err := a.read(ctx, namespace, *snapshot.Status.VirtualMachineSnapshotContentName, &has)
	if vm := has.Spec.Source.VirtualMachine; vm != nil {
		out.spec = vm.Spec
	}
	return out, err
}

// validateSourceNamespace checks the name of another namespace.
func validateSourceNamespace(clone *clonev1beta1.VirtualMachineClone, own string) (errs field.ErrorList) {
	at, namespace := crossingField(clones.NamespaceAnnotation), clones.SourceNamespace(clone)
	if problems := content.IsDNS1123Label(namespace); len(problems) > 0 {
		return field.ErrorList{field.Invalid(at, namespace, problems[0])}
	}
	if namespace == own {
		return field.ErrorList{field.Invalid(at, namespace, "is the clone's own namespace; leave the annotation out")}
	}
	return nil
}

// admitCrossing decides on a new clone that is right in itself: on one whose source is in another namespace, whether
// its user may clone from there, and whether the source is the one whose UID the clone has. nil lets it pass.
func (a *admission) admitCrossing(
	ctx context.Context, request *admissionv1.AdmissionRequest, clone *clonev1beta1.VirtualMachineClone,
) (*admissionv1.AdmissionResponse, string, error) {
	if !clones.Crosses(clone) {
		if uid, has := clone.Annotations[clones.UIDAnnotation]; has {
			return verdict(request.Kind.Kind, clone.Name, field.ErrorList{field.Invalid(
				crossingField(clones.UIDAnnotation), uid, "virt-api writes it, for a clone with the annotation "+
					clones.NamespaceAnnotation+"; leave it out")}), "", nil
		}
		return nil, "", nil
	}
	if errs := validateSourceNamespace(clone, request.Namespace); len(errs) > 0 {
		return verdict(request.Kind.Kind, clone.Name, errs), "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	namespace := clones.SourceNamespace(clone)
	may, err := a.mayClone(ctx, request, namespace)
	if err != nil {
		return nil, "", fmt.Errorf("ask whether user %q may clone from namespace %s: %w", request.UserInfo.Username,
			namespace, err)
	}
	if !may {
		return denied(http.StatusForbidden, metav1.StatusReasonForbidden,
			clones.Missing(request.UserInfo.Username, namespace), nil), "", nil
	}
	source, err := a.source(ctx, clone)
	if err != nil {
		return nil, "", err
	}
	kind, name := clone.Spec.Source.Kind, clone.Spec.Source.Name
	var errs field.ErrorList
	switch pinned := clone.Annotations[clones.UIDAnnotation]; {
	case source.uid == "":
		errs = field.ErrorList{field.Invalid(specField.Child("source", "name"), name,
			fmt.Sprintf("%s %s/%s does not exist", kind, namespace, name))}
	case pinned != string(source.uid):
		errs = field.ErrorList{field.Invalid(crossingField(clones.UIDAnnotation), pinned,
			fmt.Sprintf("is not the UID of %s %s/%s; leave the annotation out, virt-api writes it", kind, namespace,
				name))}
	case source.claim != nil:
		errs = validateImage(clone, source.claim)
	}
	if len(errs) > 0 {
		return verdict(request.Kind.Kind, clone.Name, errs), "", nil
	}
	return nil, clones.LeftText(&source.spec, request.Namespace), nil
}

// mayClone asks the cluster whether who sends a request may clone what is in a namespace.
func (a *admission) mayClone(
	ctx context.Context, request *admissionv1.AdmissionRequest, namespace string,
) (bool, error) {
	user, extra := request.UserInfo, map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := a.authorize(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "create", Group: clones.Group, Version: "*", Resource: clones.Resource,
			Subresource: clones.Subresource,
		},
	}})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}

// validateCrossingChange holds a clone to what was decided on.
func validateCrossingChange(
	clone, old *clonev1beta1.VirtualMachineClone, by surface.Actor,
) (errs field.ErrorList) {
	for _, key := range crossing {
		value, has := clone.Annotations[key]
		if before, had := old.Annotations[key]; has != had || value != before {
			errs = append(errs, field.Invalid(crossingField(key), value,
				"cannot be changed after creation; make another clone"))
		}
	}
	if !clones.Crosses(old) {
		return errs
	}
	if !equality.Semantic.DeepEqual(clone.Spec, old.Spec) {
		errs = append(errs, field.Forbidden(specField,
			"cannot be changed after creation for a source in another namespace; make another clone"))
	}
	if slices.Contains(old.Finalizers, clones.Finalizer) && !slices.Contains(clone.Finalizers, clones.Finalizer) &&
		!by.Component {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "finalizers"), "virt-controller takes "+
			clones.Finalizer+" away once nothing of the clone is left in other namespaces"))
	}
	return errs
}
