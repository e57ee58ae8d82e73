package cdi

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Offering is how a claim is offered as the DataSource of its name.
type Offering struct {
	// Labels are given to the DataSource.
	Labels map[string]string
	// Owned has the DataSource deleted with the claim. One that stands for the claim and has another owner, or none, is
	// somebody else's, and left.
	Owned bool
	// Replace turns a DataSource that stands for something else to the claim.
	Replace bool
}

// TakenError is a DataSource of the claim's name that stands for something else.
type TakenError struct{ Namespace, Name string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("DataSource %s/%s is there already, and stands for something else", e.Namespace, e.Name)
}

// Offer makes the DataSource of a claim, or brings the one that is there up to date. It reports whether something was
// written. Error: *TakenError.
func Offer(ctx context.Context, api API, claim *corev1.PersistentVolumeClaim, o Offering) (bool, error) {
	var there cdiv1.DataSource
	err := api.Read(ctx, path(Group, claim.Namespace, DataSources, claim.Name), nil, &there)
	switch {
	case apierrors.IsNotFound(err):
		return true, makeSource(ctx, api, claim, o)
	case err != nil:
		return false, fmt.Errorf("read DataSource %s/%s: %w", claim.Namespace, claim.Name, err)
	case !standsFor(&there, claim) && !o.Replace:
		return false, &TakenError{claim.Namespace, claim.Name}
	case standsFor(&there, claim) && (!lacks(&there, claim, o) || o.Owned && !ownedBy(&there, claim.Name)):
		return false, nil
	}
	metadata := map[string]any{}
	if len(o.Labels) > 0 {
		metadata["labels"] = o.Labels
	}
	if o.Owned {
		metadata["ownerReferences"] = owners(claim)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"spec": map[string]any{"source": map[string]any{
			"pvc": source(claim), "snapshot": nil, "dataSource": nil,
		}},
	})
	if err != nil {
		return false, err
	}
	if _, err := api.MergeObject(ctx, Group, claim.Namespace, DataSources, claim.Name, "", patch, false); err != nil {
		return false, fmt.Errorf("change DataSource %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return true, nil
}

func makeSource(ctx context.Context, api API, claim *corev1.PersistentVolumeClaim, o Offering) error {
	metadata := map[string]any{"name": claim.Name, "namespace": claim.Namespace}
	if len(o.Labels) > 0 {
		metadata["labels"] = values(o.Labels)
	}
	if o.Owned {
		metadata["ownerReferences"] = owners(claim)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cdiv1.SchemeGroupVersion.String(), "kind": "DataSource", "metadata": metadata,
		"spec": map[string]any{"source": map[string]any{"pvc": source(claim)}},
	}}
	_, err := api.CreateObject(ctx, Group, claim.Namespace, DataSources, object, false)
	if err != nil {
		return fmt.Errorf("make DataSource %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

func source(claim *corev1.PersistentVolumeClaim) map[string]any {
	return map[string]any{"namespace": claim.Namespace, "name": claim.Name}
}

// owners returns the references by which the API server deletes an object with the claim.
func owners(claim *corev1.PersistentVolumeClaim) []any {
	return []any{map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.Name, "uid": string(claim.UID),
	}}
}

// values returns labels as an object without a type has them.
func values(of map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range of {
		out[key] = value
	}
	return out
}

// standsFor reports whether a DataSource names the claim.
func standsFor(d *cdiv1.DataSource, claim *corev1.PersistentVolumeClaim) bool {
	of := d.Spec.Source.PVC
	return of != nil && of.Name == claim.Name && (of.Namespace == claim.Namespace || of.Namespace == "")
}

// ownedBy reports whether a DataSource goes with a claim of that name, and with nothing else; the claim may have been
// made anew.
func ownedBy(d *cdiv1.DataSource, claim string) bool {
	return len(d.OwnerReferences) == 1 && d.OwnerReferences[0].Kind == "PersistentVolumeClaim" &&
		d.OwnerReferences[0].Name == claim
}

// lacks reports whether a DataSource has not all that it should.
func lacks(d *cdiv1.DataSource, claim *corev1.PersistentVolumeClaim, o Offering) bool {
	for key, value := range o.Labels {
		if d.Labels[key] != value {
			return true
		}
	}
	if !o.Owned {
		return false
	}
	for _, owner := range d.OwnerReferences {
		if owner.UID == claim.UID {
			return false
		}
	}
	return true
}
