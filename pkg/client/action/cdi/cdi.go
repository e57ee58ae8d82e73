// Package cdi speaks with CDI, the Containerized Data Importer, where a cluster has it: it uploads an image by CDI's
// protocol, and offers a claim as a DataSource.
//
//	DataVolume or claim ──CDI──► upload pod ◄── CDI's upload proxy ◄──token, bytes── this package
//
// Serves (this file) says whether there is CDI. Upload (upload.go) makes the target, has the image sent (proxy.go,
// send.go), and waits for what CDI makes of it (wait.go). Offer (datasource.go) makes a DataSource. Annotations, phases
// and addresses are those of CDI's API and of KubeVirt's virtctl.
package cdi

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The groups of CDI's API, and the resources in them.
const (
	Group       = "/apis/cdi.kubevirt.io/v1beta1"
	UploadGroup = "/apis/upload.cdi.kubevirt.io/v1beta1"

	DataVolumes = "datavolumes"
	DataSources = "datasources"
	Tokens      = "uploadtokenrequests"
)

// Annotations of a claim that CDI reads or writes.
const (
	// AnnotationTarget has CDI prepare an upload to the claim, until it is removed or the claim has an image.
	AnnotationTarget       = "cdi.kubevirt.io/storage.upload.target"
	annotationContentType  = "cdi.kubevirt.io/storage.contentType"
	annotationPodPhase     = "cdi.kubevirt.io/storage.pod.phase"
	annotationPodReady     = "cdi.kubevirt.io/storage.pod.ready"
	annotationPodRestarts  = "cdi.kubevirt.io/storage.pod.restarts"
	annotationRunning      = "cdi.kubevirt.io/storage.condition.running.message"
	annotationBound        = "cdi.kubevirt.io/storage.condition.bound.message"
	annotationUsePopulator = "cdi.kubevirt.io/storage.usePopulator"
	annotationPrime        = "cdi.kubevirt.io/storage.populator.pvcPrime"
)

// Reader is what the package needs of a client to read.
type Reader interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// API is what the package needs of a client.
type API interface {
	Reader
	CreateObject(ctx context.Context, group, namespace, resource string, object *unstructured.Unstructured,
		dryRun bool) (*unstructured.Unstructured, error)
	MergeObject(ctx context.Context, group, namespace, resource, name, subresource string, patch []byte,
		dryRun bool) (*unstructured.Unstructured, error)
}

// Serves reports whether the cluster serves a resource of one of CDI's groups. What the user may not ask counts as not
// served.
func Serves(ctx context.Context, r Reader, group, resource string) (bool, error) {
	var list metav1.APIResourceList
	err := r.Read(ctx, group, nil, &list)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask whether the cluster has %s: %w", strings.TrimPrefix(group, "/apis/"), err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}

// path returns where an object of a namespace is.
func path(group, namespace, resource, name string) string {
	return group + "/namespaces/" + url.PathEscape(namespace) + "/" + resource + "/" + url.PathEscape(name)
}
