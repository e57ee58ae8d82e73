package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rules is what the user may do in a namespace, as far as the authorizers can list it.
func (c *Client) Rules(ctx context.Context, namespace string) (*authorizationv1.SubjectRulesReviewStatus, error) {
	review := &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectRulesReview"
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	data, err := raw(c.vms.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(ctx))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, review); err != nil {
		return nil, fmt.Errorf("read what is allowed in %s: %w", namespace, err)
	}
	return &review.Status, nil
}

// May reports whether the user may do something with an object or, without a name, with all of its kind.
func (c *Client) May(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectAccessReview"
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	data, err := raw(c.vms.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(ctx))
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, review); err != nil {
		return false, fmt.Errorf("read whether %s of %s is allowed: %w", what.Verb, what.Resource, err)
	}
	return review.Status.Allowed, nil
}

// Cordon has the scheduler place nothing new on a node, or lets it.
func (c *Client) Cordon(ctx context.Context, node string, on bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, on)
	_, err := raw(c.vms.Patch(types.StrategicMergePatchType).AbsPath("/api/v1/nodes", node).
		SetHeader("Accept", "application/json").Body([]byte(patch)).Do(ctx))
	return err
}

// YAMLPath is where an object of kubevirt.io/v1 is read.
func YAMLPath(resource, namespace, name string) string {
	return strings.Join([]string{"/apis/kubevirt.io/v1/namespaces", namespace, resource, name}, "/")
}
