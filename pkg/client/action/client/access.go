package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Rules returns what the user may do in a namespace, as far as the authorizers can list it.
func (c *Client) Rules(ctx context.Context, namespace string) (*authorizationv1.SubjectRulesReviewStatus, error) {
	review := &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectRulesReview"
	if err := c.review(ctx, "selfsubjectrulesreviews", "what is allowed in "+namespace, review); err != nil {
		return nil, err
	}
	return &review.Status, nil
}

// May reports whether the user may do something with an object or, without a name, with all of its kind.
func (c *Client) May(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what},
	}
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectAccessReview"
	asked := fmt.Sprintf("whether %s of %s is allowed", what.Verb, what.Resource)
	if err := c.review(ctx, "selfsubjectaccessreviews", asked, review); err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// User returns the name that the cluster knows the user by.
func (c *Client) User(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	review.APIVersion, review.Kind = authenticationv1.SchemeGroupVersion.String(), "SelfSubjectReview"
	err := c.reviewOf(ctx, authenticationv1.SchemeGroupVersion, "selfsubjectreviews", "who the user is", review)
	return review.Status.UserInfo.Username, err
}

// review sends a review of what the user may do to the cluster, which fills in its status. asked says for errors what
// the review answers.
func (c *Client) review(ctx context.Context, resource, asked string, review any) error {
	return c.reviewOf(ctx, authorizationv1.SchemeGroupVersion, resource, asked, review)
}

// reviewOf does the same for a review of the given API group and version.
func (c *Client) reviewOf(ctx context.Context, api schema.GroupVersion, resource, asked string, review any) error {
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	data, err := raw(c.vms.Post().AbsPath("/apis", api.String(), resource).
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(ctx))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, review); err != nil {
		return fmt.Errorf("read %s: %w", asked, err)
	}
	return nil
}

// Cordon sets a node's spec.unschedulable to on.
func (c *Client) Cordon(ctx context.Context, node string, on bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, on)
	_, err := raw(c.vms.Patch(types.StrategicMergePatchType).AbsPath("/api/v1/nodes", node).
		SetHeader("Accept", "application/json").Body([]byte(patch)).Do(ctx))
	return err
}

// YAMLPath returns where an object of kubevirt.io/v1 is read.
func YAMLPath(resource, namespace, name string) string {
	return strings.Join([]string{"/apis/kubevirt.io/v1/namespaces", namespace, resource, name}, "/")
}
