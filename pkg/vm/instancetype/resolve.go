package instancetype

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/instancetype"
	"kubevirt.io/api/instancetype/v1beta1"
)

// Reader reads one object into a value of its type: one of the four kinds of instancetype.kubevirt.io/v1beta1, a
// ControllerRevision, a PersistentVolumeClaim, or CDI's DataSource. namespace is empty for what has none. An object
// that is not there is a NotFound API error.
type Reader interface {
	Read(ctx context.Context, namespace, name string, into runtime.Object) error
}

// NotFoundError says that a VM refers to an object that is not there, or not to be used.
type NotFoundError struct {
	// Role says what the object is to the VM.
	Role Role
	// Field is the VM's field that refers to it.
	Field  *field.Path
	Detail string
	// Object is the API server's error for an instance type or preference that is not there; nil for all else.
	Object error
	// Absent says that the object may still come: nothing else is wrong.
	Absent bool
}

func (e *NotFoundError) Error() string { return e.Field.String() + ": " + e.Detail }

// List returns the error as admission reports it.
func (e *NotFoundError) List() field.ErrorList {
	err := field.NotFound(e.Field, nil)
	err.Detail = e.Detail
	return field.ErrorList{err}
}

// Resolve reads what vm refers to: the revision that the VM names or has recorded for it, else the present object. An
// object that cannot be used is a *NotFoundError, with what else was found if it is merely absent; AllAbsent has both
// when the instance type and the preference are. Other errors are the Reader's.
func Resolve(ctx context.Context, r Reader, vm *v1.VirtualMachine) (Resolved, error) {
	var out Resolved
	var absent error
	for _, m := range matchers(vm) {
		object, err := m.resolve(ctx, r, vm.Namespace)
		if Absent(err) != nil {
			absent = errors.Join(absent, err)
			continue
		}
		if err != nil {
			return Resolved{}, err
		}
		if m.role == Instancetype {
			out.Instancetype = object
		} else {
			out.Preference = object
		}
	}
	return out, absent
}

// Absent returns the part of err that says that an object is merely absent; nil for another error.
func Absent(err error) *NotFoundError {
	var missing *NotFoundError
	if errors.As(err, &missing) && missing.Absent {
		return missing
	}
	return nil
}

// AllAbsent returns the parts of Resolve's error about objects that are merely absent.
func AllAbsent(err error) []*NotFoundError {
	parts := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	}
	var out []*NotFoundError
	for _, part := range parts {
		if missing := Absent(part); missing != nil {
			out = append(out, missing)
		}
	}
	return out
}

func (m matcher) resolve(ctx context.Context, r Reader, namespace string) (*Object, error) {
	if m.name == "" {
		return nil, &NotFoundError{
			Role: m.role, Field: m.field.Child("name"),
			Detail: "is not set; name the " + string(m.role) + ", or a volume to infer it from with inferFromVolume",
		}
	}
	kind, err := KindOf(m.role, m.kind)
	if err != nil {
		return nil, &NotFoundError{Role: m.role, Field: m.field.Child("kind"), Detail: err.Error()}
	}
	object := &Object{Role: m.role, Kind: kind, Name: m.name, Revision: m.pinned(kind)}
	if object.Revision != "" {
		revision := &appsv1.ControllerRevision{}
		switch err := r.Read(ctx, namespace, object.Revision, revision); {
		case apierrors.IsNotFound(err) && m.revision == "":
			object.Revision = "" // somebody deleted what the status records; the object of now is recorded anew
		case apierrors.IsNotFound(err):
			return nil,
				&NotFoundError{
					Role:  m.role,
					Field: m.field.Child("revisionName"),
					Detail: fmt.Sprintf("there is no ControllerRevision %q in namespace %s; remove revisionName to "+
						"use the %s of now", m.revision, namespace, m.role),
					Absent: true,
				}
		case err != nil:
			return nil, fmt.Errorf("read ControllerRevision %s: %w", object.Revision, err)
		default:
			if err := object.fromRevision(revision); err != nil {
				return nil, &NotFoundError{
					Role: m.role, Field: m.field.Child("revisionName"), Detail: err.Error(),
				}
			}
			return object, nil
		}
	}
	object.object = newObject(kind)
	where := ""
	if namespaced(kind) {
		where = namespace
	}
	err = r.Read(ctx, where, m.name, object.object)
	if apierrors.IsNotFound(err) {
		in := ""
		if where != "" {
			in = " in namespace " + where
		}
		return nil, &NotFoundError{
			Role:   m.role,
			Field:  m.field.Child("name"),
			Detail: fmt.Sprintf("there is no %s %q%s; create it, or name another", kind, m.name, in),
			Object: apierrors.NewNotFound(schema.GroupResource{
				Group: api.GroupName, Resource: strings.ToLower(kind) + "s",
			}, m.name),
			Absent: true,
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind, m.name, err)
	}
	object.take()
	return object, nil
}

// pinned returns the revision to use: the one the user names, else what the status has recorded for this very object.
func (m matcher) pinned(kind string) string {
	if m.revision != "" {
		return m.revision
	}
	if s := m.status; s != nil && s.ControllerRevisionRef != nil && s.Name == m.name {
		if recorded, err := KindOf(m.role, s.Kind); err == nil && recorded == kind {
			return s.ControllerRevisionRef.Name
		}
	}
	return ""
}

func newObject(kind string) runtime.Object {
	switch kind {
	case "VirtualMachineInstancetype":
		return &v1beta1.VirtualMachineInstancetype{}
	case "VirtualMachineClusterInstancetype":
		return &v1beta1.VirtualMachineClusterInstancetype{}
	case "VirtualMachinePreference":
		return &v1beta1.VirtualMachinePreference{}
	default:
		return &v1beta1.VirtualMachineClusterPreference{}
	}
}

// take sets the spec from the object that was read.
func (o *Object) take() {
	switch object := o.object.(type) {
	case *v1beta1.VirtualMachineInstancetype:
		o.Instancetype = &object.Spec
	case *v1beta1.VirtualMachineClusterInstancetype:
		o.Instancetype = &object.Spec
	case *v1beta1.VirtualMachinePreference:
		o.Preference = &object.Spec
	case *v1beta1.VirtualMachineClusterPreference:
		o.Preference = &object.Spec
	}
}

// fromRevision reads the object out of a revision, which must have one of the right role.
func (o *Object) fromRevision(revision *appsv1.ControllerRevision) error {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(revision.Data.Raw, &meta); err != nil {
		return fmt.Errorf("ControllerRevision %q holds no object: %w", revision.Name, err)
	}
	// Of a matcher's kind the case and number do not matter; here it says how the data is read.
	if kind, err := KindOf(o.Role, meta.Kind); err != nil || kind != meta.Kind {
		return fmt.Errorf("ControllerRevision %q holds no %s", revision.Name, o.Role)
	}
	if want := v1beta1.SchemeGroupVersion.String(); meta.APIVersion != want {
		return fmt.Errorf("ControllerRevision %q holds an object of %q; only %s is understood", revision.Name,
			meta.APIVersion, want)
	}
	o.object = newObject(meta.Kind)
	if err := json.Unmarshal(revision.Data.Raw, o.object); err != nil {
		return fmt.Errorf("ControllerRevision %q holds no %s: %w", revision.Name, meta.Kind, err)
	}
	o.take()
	return nil
}
