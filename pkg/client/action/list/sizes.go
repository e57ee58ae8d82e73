package list

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"kubevirt.io/api/instancetype"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
)

// Reader reads one object by its path in the API.
type Reader interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// Sizes adds to rows of VMs that do not run what their instance types give them. It asks for each type once; a type
// that is not there, or that the user may not read, leaves the size unknown.
func Sizes(ctx context.Context, api Reader, rows []Row) {
	known := map[string]*instancetypev1beta1.VirtualMachineInstancetypeSpec{}
	for i := range rows {
		row := &rows[i]
		if row.sizing == nil {
			continue
		}
		path := typePath(row.Namespace, row.sizing.Kind, row.sizing.Name)
		if _, asked := known[path]; !asked {
			known[path] = readType(ctx, api, path)
		}
		if spec := known[path]; spec != nil {
			row.CPUs = cmp.Or(row.CPUs, spec.CPU.Guest)
			if row.Memory.IsZero() {
				row.Memory = spec.Memory.Guest
			}
		}
	}
}

// typePath returns the path of an instance type; without a kind it is the cluster's.
func typePath(namespace, kind, name string) string {
	path := "/apis/" + instancetypev1beta1.SchemeGroupVersion.String()
	ofNamespace := []string{instancetype.SingularResourceName, instancetype.PluralResourceName}
	if slices.Contains(ofNamespace, strings.ToLower(kind)) {
		return path + "/namespaces/" + namespace + "/" + instancetype.PluralResourceName + "/" + name
	}
	return path + "/" + instancetype.ClusterPluralResourceName + "/" + name
}

func readType(ctx context.Context, api Reader, path string) *instancetypev1beta1.VirtualMachineInstancetypeSpec {
	var object struct {
		Spec instancetypev1beta1.VirtualMachineInstancetypeSpec `json:"spec"`
	}
	if err := api.Read(ctx, path, nil, &object); err != nil {
		return nil // the table is of VMs; that their size is not known is said by <none>
	}
	return &object.Spec
}
