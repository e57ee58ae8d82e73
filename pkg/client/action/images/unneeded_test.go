package images

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lists are what an API server has, by path; a path that is not there has nothing, and one that is empty is forbidden.
type lists map[string]string

func (l lists) Read(_ context.Context, path string, _ url.Values, into any) error {
	text, ok := l[path]
	switch {
	case !ok:
		return apierrors.NewNotFound(schema.GroupResource{}, path)
	case text == "":
		return apierrors.NewForbidden(schema.GroupResource{}, path, nil)
	}
	return json.Unmarshal([]byte(`{"items":[`+text+`]}`), into)
}

// TestUnneeded has what keeps an image on claim debian-13 of namespace golden.
func TestUnneeded(t *testing.T) {
	const (
		claimsPath  = "/api/v1/namespaces/golden/persistentvolumeclaims"
		volumes     = "/apis/cdi.kubevirt.io/v1beta1/datavolumes"
		volumesHere = "/apis/cdi.kubevirt.io/v1beta1/namespaces/golden/datavolumes"
		snapshots   = "/apis/snapshot.storage.k8s.io/v1/namespaces/golden/volumesnapshots"
		sources     = "/apis/cdi.kubevirt.io/v1beta1/datasources"
		image       = `{"metadata":{"name":"debian-13","namespace":"golden"},"status":{"phase":"Bound"}}`
		source      = `{"metadata":{"name":"debian","namespace":"team"},"spec":{"source":{"pvc":` +
			`{"namespace":"golden","name":"debian-13"}}}}`
	)
	snapshot := func(name, metadata, of, status string) string {
		return `{"metadata":{"name":"` + name + `",` + metadata + `},"spec":{"source":{"persistentVolumeClaimName":"` +
			of + `"}},"status":` + status + `}`
	}
	volume := func(namespace, spec, phase string) string {
		return `{"metadata":{"name":"web","namespace":"` + namespace + `"},"spec":` + spec + `,"status":{"phase":"` + phase +
			`"}}`
	}
	for name, test := range map[string]struct {
		have lists
		want string
	}{
		"no CDI": {have: lists{}},
		"a claim that waits": {want: "web", have: lists{claimsPath: image + `,{"metadata":{"name":"web"},"spec":` +
			`{"dataSource":{"kind":"PersistentVolumeClaim","name":"debian-13"}},"status":{"phase":"Pending"}}`}},
		"a claim that has a volume": {have: lists{claimsPath: image + `,{"metadata":{"name":"web"},"spec":` +
			`{"dataSource":{"kind":"PersistentVolumeClaim","name":"debian-13"}},"status":{"phase":"Bound"}}`}},
		"a DataVolume of the DataSource": {want: "web", have: lists{
			volumes: volume("golden", `{"sourceRef":{"kind":"DataSource","namespace":"team","name":"debian"}}`, "Pending"),
			sources: source,
		}},
		"of another namespace": {want: "team/web", have: lists{
			volumes: volume("team", `{"sourceRef":{"kind":"DataSource","name":"debian"}}`, "PendingPopulation"),
			sources: source,
		}},
		"of another DataSource": {have: lists{
			volumes: volume("golden", `{"sourceRef":{"kind":"DataSource","name":"debian"}}`, "Pending"),
			sources: source,
		}},
		"filled": {have: lists{
			volumes: volume("team", `{"sourceRef":{"kind":"DataSource","name":"debian"}}`, "Succeeded"),
			sources: source,
		}},
		"of the claim": {want: "team/web", have: lists{
			volumes: volume("team", `{"source":{"pvc":{"namespace":"golden","name":"debian-13"}}}`, ""),
		}},
		"of a claim of that name elsewhere": {have: lists{
			volumes: volume("team", `{"source":{"pvc":{"name":"debian-13"}}}`, ""),
		}},
		"where others are not to be seen": {want: "web", have: lists{
			volumes: "", volumesHere: volume("golden", `{"source":{"pvc":{"name":"debian-13"}}}`, ""),
		}},
		"where none are to be seen": {have: lists{volumes: "", volumesHere: ""}},
		"a copy in another namespace": {want: "VirtualMachineClone team/web-disk", have: lists{
			snapshots: snapshot("clone-image-u", `"annotations":{"virtkit.io/clone":"team/web-disk"}`, "debian-13",
				`null`),
		}},
		"a snapshot of somebody's": {want: "VolumeSnapshot mine", have: lists{
			snapshots: snapshot("mine", `"labels":{}`, "debian-13", `{"readyToUse":false}`),
		}},
		"a snapshot that is ready": {have: lists{
			snapshots: snapshot("mine", `"labels":{}`, "debian-13", `{"readyToUse":true}`),
		}},
		"a snapshot that goes": {have: lists{
			snapshots: snapshot("mine", `"deletionTimestamp":"2026-01-01T00:00:00Z"`, "debian-13", `null`),
		}},
		"a snapshot of another claim":       {have: lists{snapshots: snapshot("mine", `"labels":{}`, "db", `null`)}},
		"where no snapshots are to be seen": {have: lists{snapshots: ""}},
	} {
		if test.have[claimsPath] == "" {
			test.have[claimsPath] = image
		}
		got := ""
		if err := Unneeded(t.Context(), test.have, "golden", "debian-13"); err != nil {
			_, got, _ = strings.Cut(strings.Replace(err.Error(), "it is being copied: ", "would get none: ", 1),
				"would get none: ")
			got, _, _ = strings.Cut(got, ";")
		}
		if got != test.want {
			t.Errorf("%s: kept by %q", name, got)
		}
	}
}
