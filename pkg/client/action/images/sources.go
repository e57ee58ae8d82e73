package images

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/cdi"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// PhaseNotReady is an image that is a DataSource, whose disk is not there.
const PhaseNotReady = "NotReady"

// Latest is the version of an image that is a DataSource and says none: DataSources are filled anew as time passes.
const Latest = "latest"

// dataSources returns the DataSources of a namespace, or of all when it is empty; none where there is no CDI, or where
// they may not be read.
func dataSources(ctx context.Context, r Reader, namespace string) ([]cdiv1.DataSource, error) {
	path := cdi.Group + "/" + cdi.DataSources
	if namespace != "" {
		path = cdi.Group + "/namespaces/" + namespace + "/" + cdi.DataSources
	}
	var list cdiv1.DataSourceList
	err := r.Read(ctx, path, nil, &list)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list DataSources: %w", err)
	}
	return list.Items, nil
}

// addSources adds to images on claims the DataSources that stand for them, and the images that are DataSources alone.
func (l *PulledList) addSources(sources []cdiv1.DataSource, claims []corev1.PersistentVolumeClaim) {
	onClaims := map[string]*Pulled{}
	for i := range l.Items {
		onClaims[l.Items[i].Namespace+"/"+l.Items[i].Name] = &l.Items[i]
	}
	var alone []Pulled
	for i := range sources {
		d := &sources[i]
		of := standsFor(d)
		namespace := d.Namespace
		if of != nil {
			namespace = cmp.Or(of.Namespace, d.Namespace)
		}
		if of != nil && namespace == d.Namespace {
			if p := onClaims[namespace+"/"+of.Name]; p != nil {
				if p.DataSource == "" || d.Name == p.Name {
					p.DataSource = d.Name
				}
				continue
			}
		}
		var claim *corev1.PersistentVolumeClaim
		for n := range claims {
			if of != nil && claims[n].Namespace == namespace && claims[n].Name == of.Name {
				claim = &claims[n]
			}
		}
		if p, ok := ofSource(d, claim); ok {
			alone = append(alone, p)
		}
	}
	l.Items = append(l.Items, alone...)
}

// standsFor returns the claim that a DataSource stands for; nil for none, as of a snapshot.
func standsFor(d *cdiv1.DataSource) *cdiv1.DataVolumeSourcePVC {
	if d.Spec.Source.DataSource != nil {
		return d.Status.Source.PVC // CDI has followed it
	}
	return d.Spec.Source.PVC
}

// ofSource returns the image that a DataSource is; false for one whose name no image can have. claim is the one that it
// stands for, nil when it is not known.
func ofSource(d *cdiv1.DataSource, claim *corev1.PersistentVolumeClaim) (Pulled, bool) {
	name, version := d.Labels[uploads.LabelImage], d.Labels[uploads.LabelImageVersion]
	if !nameForm.MatchString(name) || !versionForm.MatchString(version) {
		name, version = d.Name, Latest
	}
	if !nameForm.MatchString(name) {
		return Pulled{}, false
	}
	out := Pulled{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "PulledImage"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name, UID: d.UID, CreationTimestamp: d.CreationTimestamp,
		},
		Image: name + "/" + version, User: d.Labels[uploads.LabelImageUser], DataSource: d.Name,
		Instancetype: d.Labels[uploads.LabelInstancetype], Preference: d.Labels[uploads.LabelPreference],
		Phase: PhaseNotReady, Message: "CDI says nothing of it",
	}
	for i := range d.Status.Conditions {
		switch c := &d.Status.Conditions[i]; {
		case c.Type != cdiv1.DataSourceReady:
		case c.Status == corev1.ConditionTrue:
			out.Phase, out.Message = PhaseReady, ""
		default:
			out.Message = cmp.Or(c.Message, c.Reason, out.Message)
		}
	}
	if claim != nil {
		out.Size, out.StorageClass = sizeOf(claim), classOf(claim)
	}
	return out, true
}

func sizeOf(claim *corev1.PersistentVolumeClaim) string {
	size := claim.Status.Capacity[corev1.ResourceStorage]
	if size.IsZero() {
		size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return size.String()
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	if claim.Spec.StorageClassName == nil {
		return ""
	}
	return *claim.Spec.StorageClassName
}

// Offer offers the image on a claim as a DataSource, with which it goes, where the cluster has CDI. It returns the
// DataSource's name, empty where there is no CDI. Error: *cdi.TakenError, when there is another of that name.
func Offer(ctx context.Context, api cdi.API, namespace, name string) (string, error) {
	served, err := cdi.Serves(ctx, api, cdi.Group, cdi.DataSources)
	if err != nil || !served {
		return "", err
	}
	var claim corev1.PersistentVolumeClaim
	if err := api.Read(ctx, "/api/v1/namespaces/"+namespace+"/"+client.Claims+"/"+name, nil, &claim); err != nil {
		return "", fmt.Errorf("read claim %s/%s: %w", namespace, name, err)
	}
	labels := map[string]string{}
	for label, value := range claim.Labels {
		if uploads.IsDefault(label) || label == uploads.LabelImage || label == uploads.LabelImageVersion ||
			label == uploads.LabelImageUser {
			labels[label] = value
		}
	}
	if _, err := cdi.Offer(ctx, api, &claim, cdi.Offering{Labels: labels, Owned: true}); err != nil {
		return "", err
	}
	return claim.Name, nil
}
