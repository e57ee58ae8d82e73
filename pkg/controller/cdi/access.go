package cdi

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/optional"
)

// DataVolumes returns CDI's kind DataVolume, which Access reads.
func DataVolumes() optional.Kind {
	return optional.Kind{Version: cdiv1.SchemeGroupVersion, Resource: "datavolumes", Object: &cdiv1.DataVolume{}}
}

// Access reads DataVolumes where there are any.
type Access struct{ *optional.Access }

// Installed reports whether the cluster has DataVolumes.
func (a *Access) Installed() bool { return a.Served() }

// Get returns a DataVolume, nil when there is none or the cluster lacks the kind.
func (a *Access) Get(ctx context.Context, namespace, name string) (*cdiv1.DataVolume, error) {
	dv := &cdiv1.DataVolume{}
	if found, err := a.Access.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, dv); !found {
		return nil, err
	}
	return dv, nil
}
