package client

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimsPath is where the PersistentVolumeClaims of a namespace are.
func claimsPath(namespace string) []string {
	return []string{"/api/v1/namespaces", namespace, "persistentvolumeclaims"}
}

// ClaimExists returns no error when there is a PersistentVolumeClaim, else the API server's word on why not.
func (c *Client) ClaimExists(ctx context.Context, namespace, name string) error {
	_, err := c.vms.Get().AbsPath(append(claimsPath(namespace), name)...).
		SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").DoRaw(ctx)
	return err
}

// Claims lists the names of a namespace's PersistentVolumeClaims.
func (c *Client) Claims(ctx context.Context, namespace string) ([]string, error) {
	data, err := c.vms.Get().AbsPath(claimsPath(namespace)...).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read the list of claims: %w", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
