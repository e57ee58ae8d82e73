package certificates

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// injectWebhooks sets the bundle in every webhook of a configuration. One that does not exist is
// no error: it is watched, and gets its bundle when it comes.
func (r *Rotator) injectWebhooks(
	ctx context.Context, resource schema.GroupVersionResource, name string, bundle []byte,
) error {
	return r.inject(ctx, resource, name, func(object *unstructured.Unstructured) ([]operation, error) {
		webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return nil, err
		}
		encoded := base64.StdEncoding.EncodeToString(bundle)
		var out []operation
		for i := range webhooks {
			webhook, ok := webhooks[i].(map[string]any)
			if !ok {
				return nil, fmt.Errorf("webhooks[%d] is not an object", i)
			}
			if current, _, _ := unstructured.NestedString(webhook, "clientConfig", "caBundle"); current != encoded {
				out = append(out, operation{"add", "/webhooks/" + strconv.Itoa(i) + "/clientConfig/caBundle", encoded})
			}
		}
		return out, nil
	})
}

func (r *Rotator) injectAPIServices(ctx context.Context, bundle []byte) error {
	var errs []error
	for _, name := range r.APIServices {
		errs = append(errs,
			r.inject(ctx, apiServices, name, func(object *unstructured.Unstructured) ([]operation, error) {
				encoded := base64.StdEncoding.EncodeToString(bundle)
				if current, _, _ := unstructured.NestedString(object.Object, "spec", "caBundle"); current == encoded {
					return nil, nil
				}
				return []operation{{"add", "/spec/caBundle", encoded}}, nil
			}))
	}
	return errors.Join(errs...)
}

// inject applies what plan finds to be missing, if nobody else has written the object meanwhile.
func (r *Rotator) inject(ctx context.Context, resource schema.GroupVersionResource, name string,
	plan func(*unstructured.Unstructured) ([]operation, error),
) error {
	api := r.Dynamic.Resource(resource)
	object, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", describe(resource, name), err)
	}
	operations, err := plan(object)
	if err != nil {
		return fmt.Errorf("read %s: %w", describe(resource, name), err)
	}
	if len(operations) == 0 {
		return nil
	}
	operations = append([]operation{{"test", "/metadata/resourceVersion", object.GetResourceVersion()}}, operations...)
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := api.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the authorities to trust in %s: %w", describe(resource, name), err)
	}
	return nil
}
