// Package export makes VirtualMachineExports and downloads what they serve: it waits until an export is ready, reaches
// its server by an external address or through the API server, and goes on where it was when the connection is cut.
package export

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// API is what is asked of the cluster; *client.Client.
type API interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
	CreateTyped(ctx context.Context, group, resource string, object, into metav1.Object, dryRun bool) error
	DeleteObject(ctx context.Context, group, namespace, resource, name string, opts metav1.DeleteOptions) error
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	CreateSecret(ctx context.Context, secret *corev1.Secret, dryRun bool) (*corev1.Secret, error)
	PodPort(ctx context.Context, namespace, pod string, port uint16) (net.Conn, error)
}

// ErrNoKind is a cluster without exports.
var ErrNoKind = errors.New("this cluster does not have exports of virtual machines; `virtctl install` brings them")

func errorOf(err error) error {
	if client.Unserved(err) {
		return ErrNoKind
	}
	return err
}

// Source is what is exported: one of the kinds of package exports, and a name.
type Source struct{ Kind, Name string }

// Request is an export that is to be made.
type Request struct {
	Namespace, Name     string
	Source              Source
	TTL                 time.Duration
	Labels, Annotations map[string]string
}

// Reference returns how the API refers to a source.
func (s Source) Reference() corev1.TypedLocalObjectReference {
	group := map[string]string{
		exports.KindVM: v1.GroupVersion.Group, exports.KindSnapshot: snapshotv1beta1.SchemeGroupVersion.Group,
	}[s.Kind]
	return corev1.TypedLocalObjectReference{APIGroup: &group, Kind: s.Kind, Name: s.Name}
}

// Look returns an error, an apierrors.IsNotFound, for a source that does not exist. One that the user may not read, or
// whose kind the cluster does not have, is virt-controller's to judge.
func (s Source) Look(ctx context.Context, api API, namespace string) error {
	group, resource := "/apis/"+v1.GroupVersion.String(), client.VMs
	switch s.Kind {
	case exports.KindSnapshot:
		group, resource = "/apis/"+snapshotv1beta1.SchemeGroupVersion.String(), client.Snapshots
	case exports.KindClaim:
		group, resource = "/api/v1", "persistentvolumeclaims"
	}
	path := group + "/namespaces/" + url.PathEscape(namespace) + "/" + resource + "/" + url.PathEscape(s.Name)
	err := api.Read(ctx, path, nil, &metav1.PartialObjectMetadata{})
	if err == nil || apierrors.IsForbidden(err) || client.Unserved(err) {
		return nil
	}
	return fmt.Errorf("look at what is to be exported: %w", err)
}

// New returns the export that a request asks for; it is not created yet. The Secret of its token is named as KubeVirt's
// client names it.
func New(r Request) *v1beta1.VirtualMachineExport {
	out := &v1beta1.VirtualMachineExport{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: exports.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name, Labels: r.Labels, Annotations: r.Annotations,
		},
		Spec: v1beta1.VirtualMachineExportSpec{
			Source: r.Source.Reference(), TokenSecretRef: new("secret-" + r.Name),
		},
	}
	if r.TTL > 0 {
		out.Spec.TTLDuration = &metav1.Duration{Duration: r.TTL}
	}
	return out
}

// Create makes an export, and the Secret of its token unless that is there. When the Secret cannot be made the export
// is deleted again. An error of an export that is there says so (apierrors.IsAlreadyExists).
func Create(
	ctx context.Context, api API, export *v1beta1.VirtualMachineExport, dryRun bool,
) (*v1beta1.VirtualMachineExport, error) {
	out := &v1beta1.VirtualMachineExport{}
	if err := api.CreateTyped(ctx, exports.Path, exports.Resource, export, out, dryRun); err != nil {
		return nil, fmt.Errorf("create VirtualMachineExport %s/%s: %w", export.Namespace, export.Name, errorOf(err))
	}
	owner := metav1.NewControllerRef(out, v1beta1.SchemeGroupVersion.WithKind(exports.Kind))
	owner.BlockOwnerDeletion = new(false) // that may need a right more
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: export.Namespace, Name: *export.Spec.TokenSecretRef,
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{names.ExportTokenKey: []byte(rand.Text())},
	}
	_, err := api.CreateSecret(ctx, secret, dryRun)
	for apierrors.IsAlreadyExists(err) && !dryRun && leaves(ctx, api, secret) && action.Sleep(ctx, poll) == nil {
		_, err = api.CreateSecret(ctx, secret, false)
	}
	if err == nil || apierrors.IsAlreadyExists(err) {
		return out, nil
	}
	err = fmt.Errorf("create Secret %s/%s for the export's token: %w", secret.Namespace, secret.Name, err)
	if !dryRun {
		err = errors.Join(err, Delete(ctx, api, out.Namespace, out.Name, out.UID, false))
	}
	return nil, err
}

// leaves reports whether a Secret of the name is that of an export before, with which it is deleted, or is gone by now.
func leaves(ctx context.Context, api API, wanted *corev1.Secret) bool {
	there, err := api.Secret(ctx, wanted.Namespace, wanted.Name)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	owner := metav1.GetControllerOf(there)
	return owner != nil && owner.Kind == exports.Kind && owner.UID != wanted.OwnerReferences[0].UID
}

// Delete deletes an export, and with it all that it has made, if it is the one with the UID; whichever it is when that
// is empty. What is not there is no error but apierrors.IsNotFound.
func Delete(ctx context.Context, api API, namespace, name string, uid types.UID, dryRun bool) error {
	options := metav1.DeleteOptions{}
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	// Also of a user who has ended the program meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := api.DeleteObject(ctx, exports.Path, namespace, exports.Resource, name, options); err != nil {
		return fmt.Errorf("delete VirtualMachineExport %s/%s: %w", namespace, name, errorOf(err))
	}
	return nil
}

// Get reads an export.
func Get(ctx context.Context, api API, namespace, name string) (*v1beta1.VirtualMachineExport, error) {
	out := &v1beta1.VirtualMachineExport{}
	path := exports.Path + "/namespaces/" + url.PathEscape(namespace) + "/" + exports.Resource + "/" +
		url.PathEscape(name)
	if err := api.Read(ctx, path, nil, out); err != nil {
		return nil, fmt.Errorf("read VirtualMachineExport %s/%s: %w", namespace, name, errorOf(err))
	}
	return out, nil
}

// unreadError is that the API server did not answer for what a download needs of it, the way to the export's server
// among it.
type unreadError struct{ error }

func (u *unreadError) Unwrap() error { return u.error }

// poll is how often an export is looked at.
const poll = 500 * time.Millisecond

// patience is how long virt-controller may take to look at an export before that is worth a word.
const patience = 3 * time.Second

// Wait waits until an export is ready, and reports what it waits for. When the time is over it fails with that, an
// action.ErrTimeout. An API server that has answered once may be away for DefaultPatience, which does not count.
func Wait(
	ctx context.Context, api API, namespace, name string, limit time.Duration, report func(string),
) (*v1beta1.VirtualMachineExport, error) {
	begin := time.Now()
	end := begin.Add(limit)
	var answered, lost time.Time // when it last answered, and since when it does not
	away := outage.Follow(ctx)
	defer away.End()
	for {
		away.Asks()
		export, err := Get(ctx, api, namespace, name)
		if err != nil && client.Passing(err) && time.Since(answered) < DefaultPatience {
			if lost.IsZero() {
				lost = time.Now()
			}
			away.Lost(ctx, err)
			if err := action.Sleep(ctx, poll); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, &unreadError{err}
		}
		away.Answered()
		if answered = time.Now(); !lost.IsZero() {
			end, lost = end.Add(answered.Sub(lost)), time.Time{}
		}
		ready, why := readiness(export)
		switch {
		case ready:
			return export, nil
		case export.DeletionTimestamp != nil:
			return nil, fmt.Errorf("VirtualMachineExport %s/%s is being deleted", namespace, name)
		case export.Status != nil &&
			(export.Status.Phase == v1beta1.Skipped || export.Status.Phase == v1beta1.Terminated):
			return nil, fmt.Errorf("VirtualMachineExport %s/%s is %s: %s", namespace, name,
				strings.ToLower(string(export.Status.Phase)), why)
		case time.Now().After(end):
			return nil, fmt.Errorf("%w waiting %s for VirtualMachineExport %s/%s to be ready: %s", action.ErrTimeout,
				limit, namespace, name, why)
		}
		if export.Status != nil || time.Since(begin) > patience {
			report(why)
		}
		if err := action.Sleep(ctx, poll); err != nil {
			return nil, err
		}
	}
}

// readiness reports whether an export is ready, and why not, in its own words.
func readiness(export *v1beta1.VirtualMachineExport) (ready bool, why string) {
	status := export.Status
	if status == nil {
		return false, "virt-controller has not looked at it yet; does it run?"
	}
	if status.Phase == v1beta1.Ready && status.Links != nil &&
		(status.Links.Internal != nil || status.Links.External != nil) {
		return true, ""
	}
	condition := conditions.Find(status.Conditions, v1beta1.ConditionReady)
	if condition == nil {
		return false, string(status.Phase)
	}
	why = condition.Message
	for _, of := range []v1beta1.ConditionType{v1beta1.ConditionVolumesCreated, v1beta1.ConditionPVC} {
		other := conditions.Find(status.Conditions, of)
		if why == "" && other != nil && other.Status != corev1.ConditionTrue {
			why = other.Message
		}
	}
	switch {
	case why == "" && condition.Reason == exports.ReasonPodPending:
		return false, "its pod starts"
	case why == "":
		return false, condition.Reason
	}
	if condition.Reason == exports.ReasonInUse {
		why += "; stop it, or export a snapshot"
	}
	return false, why
}

// Token reads the token of an export from its Secret.
func Token(ctx context.Context, api API, export *v1beta1.VirtualMachineExport) (string, error) {
	ref := export.Status.TokenSecretRef
	if ref == nil || *ref == "" {
		return "", fmt.Errorf("VirtualMachineExport %s/%s names no Secret with its token", export.Namespace,
			export.Name)
	}
	secret, err := api.Secret(ctx, export.Namespace, *ref)
	if err != nil {
		return "", &unreadError{fmt.Errorf("read the token in Secret %s/%s: %w", export.Namespace, *ref, err)}
	}
	token := secret.Data[names.ExportTokenKey]
	if len(token) == 0 {
		return "", fmt.Errorf("Secret %s/%s has no %s", export.Namespace, *ref, names.ExportTokenKey)
	}
	return string(token), nil
}
