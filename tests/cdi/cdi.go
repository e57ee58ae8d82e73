// Package cdi stands in for CDI, the Containerized Data Importer, in tests: its definitions, without their schemas, and
// what it does with a DataVolume, a step at a time. The steps are CDI's own: a DataVolume gets a claim of its name,
// which it owns, and a phase.
package cdi

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/env"
)

//go:embed definitions.yaml
var definitions []byte

//go:embed uploads.yaml
var uploads []byte

func parse(definitions []byte) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var out []*apiextensionsv1.CustomResourceDefinition
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(definitions), 4096)
	for {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		err := decoder.Decode(definition)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read CDI's definitions: %w", err)
		}
		out = append(out, definition)
	}
}

// Install makes CDI's definitions and waits until they are served. c must know CustomResourceDefinitions.
func Install(ctx context.Context, c client.Client) error { return install(ctx, c, definitions) }

// InstallUploads makes the definition of CDI's upload API, beside those of Install.
func InstallUploads(ctx context.Context, c client.Client) error { return install(ctx, c, uploads) }

func install(ctx context.Context, c client.Client, definitions []byte) error {
	wanted, err := parse(definitions)
	if err != nil {
		return err
	}
	for _, definition := range wanted {
		err := env.Eventually(ctx, func(ctx context.Context) (bool, error) {
			err := c.Create(ctx, definition.DeepCopy())
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return false, err
			}
			var there apiextensionsv1.CustomResourceDefinition
			if err := c.Get(ctx, client.ObjectKeyFromObject(definition), &there); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			served := slices.ContainsFunc(there.Status.Conditions,
				func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
					return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
				})
			return served && there.DeletionTimestamp == nil, nil
		})
		if err != nil {
			return fmt.Errorf("definition %s: %w", definition.Name, err)
		}
	}
	return nil
}

// Uninstall takes the definitions of Install away, and waits until they are gone.
func Uninstall(ctx context.Context, c client.Client) error { return uninstall(ctx, c, definitions) }

// UninstallUploads takes the definition of InstallUploads away, and waits until it is gone.
func UninstallUploads(ctx context.Context, c client.Client) error { return uninstall(ctx, c, uploads) }

func uninstall(ctx context.Context, c client.Client, definitions []byte) error {
	wanted, err := parse(definitions)
	if err != nil {
		return err
	}
	for _, definition := range wanted {
		err := env.Eventually(ctx, func(ctx context.Context) (bool, error) {
			err := c.Delete(ctx, definition)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("definition %s: %w", definition.Name, err)
		}
	}
	return nil
}

// Claim makes the DataVolume's claim, as large as it asks for.
func Claim(ctx context.Context, c client.Client, dv *cdiv1.DataVolume) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: dv.Name, Namespace: dv.Namespace,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume")),
			},
		},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}},
	}
	switch {
	case dv.Spec.Storage != nil:
		claim.Spec.Resources = dv.Spec.Storage.Resources
	case dv.Spec.PVC != nil:
		claim.Spec.Resources = dv.Spec.PVC.Resources
	}
	if err := c.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("make the claim of DataVolume %s: %w", dv.Name, err)
	}
	return claim, nil
}

// SetPhase says how far a DataVolume is, with the conditions that go with it.
func SetPhase(
	ctx context.Context, c client.Client, dv *cdiv1.DataVolume, phase cdiv1.DataVolumePhase,
	conditions ...cdiv1.DataVolumeCondition,
) error {
	before := dv.DeepCopy()
	dv.Status.Phase, dv.Status.Conditions = phase, conditions
	if err := c.Status().Patch(ctx, dv, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write status of DataVolume %s: %w", dv.Name, err)
	}
	return nil
}
