package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"kubevirt.io/api/instancetype"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// sizings is where instance types and preferences are served.
const sizings = "/apis/" + instancetype.GroupName + "/v1beta1"

// Referent is an instance type or a preference that a command names.
type Referent struct {
	// Field is "instancetype" or "preference".
	Field string
	// Kind is "virtualmachine" or "virtualmachinecluster" with the field after it, in any case; empty is the cluster's.
	Kind, Name string
}

// CheckReferent returns an error if there is no such instance type or preference, with the names that may have been
// meant: the server would only warn, since objects may be applied in any order, and the VM would not start. What the
// user may not read, or the cluster does not have, is left to the server.
func (f *Factory) CheckReferent(ctx context.Context, c *client.Client, namespace string, r Referent) error {
	own, cluster := "virtualmachine"+r.Field, "virtualmachinecluster"+r.Field
	path := sizings + "/"
	kind := strings.ToLower(r.Kind)
	if kind == own {
		path += "namespaces/" + url.PathEscape(namespace) + "/"
	} else {
		kind = cluster
	}
	_, err := c.ReadMetadata(ctx, path+kind+"s/"+url.PathEscape(r.Name))
	if !apierrors.IsNotFound(err) || client.Unserved(err) {
		return nil
	}
	var all []string
	if names, err := c.Names(ctx, sizings, "", cluster+"s"); err == nil {
		all = append(all, names...)
	}
	if names, err := c.Names(ctx, sizings, namespace, own+"s"); err == nil {
		for _, name := range names {
			all = append(all, own+"/"+name)
		}
	}
	return fmt.Errorf("%w%s", err, f.meant(r.Name, all))
}

// storageClasses is where StorageClasses are served.
const storageClasses = "/apis/storage.k8s.io/v1"

// CheckStorageClass returns an error if there is no StorageClass of the name, with the names that may have been meant:
// the server takes a claim of a class that may come later, and the claim would wait. Empty is the cluster's default.
// What the user may not read is left to the server.
func (f *Factory) CheckStorageClass(ctx context.Context, c *client.Client, name string) error {
	if name == "" {
		return nil
	}
	_, err := c.ReadMetadata(ctx, storageClasses+"/storageclasses/"+url.PathEscape(name))
	if !apierrors.IsNotFound(err) || client.Unserved(err) {
		return nil
	}
	meant := "; there are none"
	if names, err := c.Names(ctx, storageClasses, "", "storageclasses"); err != nil {
		meant = ""
	} else if len(names) > 0 {
		meant = f.meant(name, names)
	}
	return fmt.Errorf("--storage-class: %w%s", err, meant)
}

// mostMeant is how many names are offered for one that is not there.
const mostMeant = 5

// meant returns which of the existing names may have been meant.
func (f *Factory) meant(name string, all []string) string {
	if len(all) == 0 {
		return fmt.Sprintf("; there are none, and `%s install --instancetypes` brings the common ones", f.Program)
	}
	distance := func(candidate string) int {
		_, bare, scoped := strings.Cut(candidate, "/")
		if !scoped {
			bare = candidate
		}
		if strings.HasPrefix(bare, name) && name != "" {
			return min(1, Distance(name, bare))
		}
		return Distance(name, bare)
	}
	var close []string
	for _, candidate := range all {
		if distance(candidate) <= max(2, len(name)/3) {
			close = append(close, candidate)
		}
	}
	if len(close) > 0 {
		slices.SortStableFunc(close, func(a, b string) int { return distance(a) - distance(b) })
		return "; did you mean " + strings.Join(close[:min(len(close), mostMeant)], ", ") + "?"
	}
	slices.Sort(all)
	more := ""
	if len(all) > mostMeant {
		more = fmt.Sprintf(" and %d more", len(all)-mostMeant)
	}
	return "; there are " + strings.Join(all[:min(len(all), mostMeant)], ", ") + more
}
