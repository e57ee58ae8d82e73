package rename

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// Right is one that a rename needs in the namespace of the VM.
type Right struct{ Verb, Group, Resource string }

// NotAllowedError says which rights are missing for a rename: an error as the API server's for each.
type NotAllowedError struct {
	User, Namespace string
	Missing         []Right
}

// Errors returns the error for each right.
func (e *NotAllowedError) Errors() []error {
	out := make([]error, 0, len(e.Missing))
	for _, right := range e.Missing {
		err := apierrors.NewForbidden(schema.GroupResource{Group: right.Group, Resource: right.Resource}, "", nil)
		err.ErrStatus.Message = fmt.Sprintf("User %q cannot %s resource %q in API group %q in the namespace %q", e.User,
			right.Verb, right.Resource, right.Group, e.Namespace)
		out = append(out, err)
	}
	return out
}

func (e *NotAllowedError) Error() string {
	var texts []string
	for _, err := range e.Errors() {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, ", ")
}

// Is reports no error that wraps others.
func (*NotAllowedError) Is(error) bool { return false }

// group returns the name of an API's group, of the path "/apis/GROUP/VERSION"; empty for the core's.
func group(at string) string {
	dir := path.Dir(at)
	if dir == "/api" {
		return ""
	}
	return path.Base(dir)
}

// lack notes a right that is missing.
func (n *Renamer) lack(right Right) {
	if !slices.Contains(n.missing, right) {
		n.missing = append(n.missing, right)
	}
}

// notAllowed returns the error about the rights that are missing, nil where none is.
func (n *Renamer) notAllowed(ctx context.Context) error {
	if len(n.missing) == 0 {
		return nil
	}
	user, err := n.api.User(ctx)
	if err != nil {
		return fmt.Errorf("ask who you are: %w", err)
	}
	return &NotAllowedError{User: user, Namespace: n.request.Namespace, Missing: n.missing}
}

// served reports whether the cluster has the API at a path. Who may not ask finds it there.
func (n *Renamer) served(ctx context.Context, at string) (bool, error) {
	var list struct{}
	switch err := n.api.Read(ctx, at, nil, &list); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil && !apierrors.IsForbidden(err):
		return false, fmt.Errorf("ask whether the cluster has %s: %w", at, err)
	}
	return true, nil
}

const vmGroup = "/apis/kubevirt.io/v1"

// rights asks for all that a rename takes, so that it does not fail half way.
func (n *Renamer) rights(ctx context.Context, dependents []Dependent) error {
	for _, right := range []struct{ verb, name string }{
		{"create", ""}, {"patch", n.request.Name}, {"delete", n.request.Name}, {"patch", n.request.To},
	} {
		may, err := n.ask(ctx, right.verb, vmGroup, client.VMs, right.name)
		if err != nil {
			return err
		}
		if !may {
			n.lack(Right{right.verb, group(vmGroup), client.VMs})
		}
	}
	for _, d := range dependents {
		if d.Fixed && d.Resource.Data {
			n.lack(Right{"patch", group(d.Resource.Group), d.Resource.Name})
		}
	}
	return n.notAllowed(ctx)
}

// mayChange reports whether the user may change objects of a resource.
func (n *Renamer) mayChange(ctx context.Context, resource Resource) (bool, error) {
	if may, known := n.may[resource]; known {
		return may, nil
	}
	may, err := n.ask(ctx, "patch", resource.Group, resource.Name, "")
	if err != nil {
		return false, err
	}
	n.may[resource] = may
	return may, nil
}

// ask asks whether the user may do something; at is the path of the API.
func (n *Renamer) ask(ctx context.Context, verb, at, resource, name string) (bool, error) {
	what := authorizationv1.ResourceAttributes{
		Namespace: n.request.Namespace, Verb: verb, Resource: resource, Name: name,
	}
	if what.Group = group(at); what.Group != "" {
		what.Version = path.Base(at)
	}
	may, err := n.api.May(ctx, what)
	if err != nil {
		return false, fmt.Errorf("ask whether you may %s %s: %w", verb, resource, err)
	}
	return may, nil
}
