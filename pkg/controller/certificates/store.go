package certificates

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

// The keys of the CA's Secret besides tls.crt and tls.key: the authority that is trusted and will
// sign next.
const (
	nextCertKey       = "next.crt"
	nextPrivateKeyKey = "next.key"
)

// stored holds what the cluster has.
type stored struct {
	state   certs.State
	secrets map[string]*corev1.Secret // by name, nil where there is none
	bundle  *corev1.ConfigMap
}

// read gathers the state. What is missing or unreadable is left out, to be made anew; what of an
// old bundle is still readable stays trusted.
func (r *Rotator) read(ctx context.Context) (stored, error) {
	out := stored{
		state:   certs.State{Leaves: map[string]certs.Pair{}},
		secrets: map[string]*corev1.Secret{},
	}
	for _, name := range secretNames() {
		secret, err := r.Client.CoreV1().Secrets(r.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return stored{}, fmt.Errorf("get secret %s: %w", name, err)
		}
		out.secrets[name] = secret
		pair, err := certs.ParsePair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			r.Log.Info("replacing an unusable certificate", "secret", name, "reason", err.Error())
			continue
		}
		if name != names.CASecret {
			out.state.Leaves[name] = pair
			continue
		}
		out.state.Signer = &pair
		if next, err := certs.ParsePair(secret.Data[nextCertKey], secret.Data[nextPrivateKeyKey]); err == nil {
			out.state.Next = &next
		}
	}
	bundle, err := r.Client.CoreV1().ConfigMaps(r.Namespace).Get(ctx, names.CABundle, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return stored{}, fmt.Errorf("get config map %s: %w", names.CABundle, err)
	}
	if err == nil {
		out.bundle = bundle
		if trusted, err := certs.ParseBundle([]byte(bundle.Data[names.CABundleKey])); err == nil {
			out.state.Trusted = trusted
		}
	}
	return out, nil
}

func secretNames() []string {
	return append([]string{names.CASecret}, slices.Sorted(maps.Keys(leaves))...)
}

// write puts the state into the cluster, the authority first: no certificate may exist whose
// authority could be lost.
func (r *Rotator) write(ctx context.Context, old stored, state certs.State) error {
	authority, err := secretData(*state.Signer)
	if err != nil {
		return err
	}
	if state.Next != nil {
		key, err := state.Next.KeyPEM()
		if err != nil {
			return err
		}
		authority[nextCertKey], authority[nextPrivateKeyKey] = state.Next.CertificatePEM(), key
	}
	if err := r.writeSecret(ctx, names.CASecret, old.secrets[names.CASecret], authority); err != nil {
		return err
	}
	bundle := certs.EncodeBundle(state.Trusted)
	if err := r.writeBundle(ctx, old.bundle, string(bundle)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(state.Leaves)) {
		data, err := secretData(state.Leaves[name])
		if err != nil {
			return err
		}
		data[certs.CABundleKey] = bundle
		if err := r.writeSecret(ctx, name, old.secrets[name], data); err != nil {
			return err
		}
	}
	return nil
}

func secretData(pair certs.Pair) (map[string][]byte, error) {
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{corev1.TLSCertKey: pair.CertificatePEM(), corev1.TLSPrivateKeyKey: key}, nil
}

func (r *Rotator) writeSecret(ctx context.Context, name string, old *corev1.Secret, data map[string][]byte) error {
	api := r.Client.CoreV1().Secrets(r.Namespace)
	if old == nil {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.Namespace, Labels: labels()},
			Type:       corev1.SecretTypeTLS,
			Data:       data,
		}
		if _, err := api.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create secret %s: %w", name, err)
		}
		return nil
	}
	if maps.EqualFunc(old.Data, data, bytes.Equal) {
		return nil
	}
	changed := map[string]any{}
	for key := range old.Data {
		changed[key] = nil
	}
	for key, value := range data {
		changed[key] = value
	}
	patch, err := mergePatch(old.ResourceVersion, changed)
	if err != nil {
		return err
	}
	if _, err := api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write secret %s: %w", name, err)
	}
	return nil
}

func (r *Rotator) writeBundle(ctx context.Context, old *corev1.ConfigMap, bundle string) error {
	api := r.Client.CoreV1().ConfigMaps(r.Namespace)
	if old == nil {
		configMap := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: names.CABundle, Namespace: r.Namespace, Labels: labels()},
			Data:       map[string]string{names.CABundleKey: bundle},
		}
		if _, err := api.Create(ctx, configMap, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create config map %s: %w", names.CABundle, err)
		}
		return nil
	}
	if old.Data[names.CABundleKey] == bundle {
		return nil
	}
	patch, err := mergePatch(old.ResourceVersion, map[string]any{names.CABundleKey: bundle})
	if err != nil {
		return err
	}
	if _, err := api.Patch(ctx, names.CABundle, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write config map %s: %w", names.CABundle, err)
	}
	return nil
}

// mergePatch changes an object's data if nobody else has written it meanwhile.
func mergePatch(resourceVersion string, data map[string]any) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"data":     data,
	})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}
