package client

import (
	"context"
	"encoding/json"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Evict asks for the eviction of a pod. A TooManyRequests error means: not now, and for a guest's pod mostly that the
// guest is moved instead. With dryRun the server does all but change anything.
func (c *Client) Evict(ctx context.Context, namespace, pod string, dryRun bool) error {
	eviction := &policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod},
	}
	if dryRun {
		eviction.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	}
	body, err := json.Marshal(eviction)
	if err != nil {
		return fmt.Errorf("encode the eviction: %w", err)
	}
	_, err = raw(c.vms.Post().AbsPath("/api/v1/namespaces", namespace, "pods", pod, "eviction").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		MaxRetries(0). // a 429 is an answer here, not a reason to ask again
		Body(body).Do(ctx))
	return err
}
