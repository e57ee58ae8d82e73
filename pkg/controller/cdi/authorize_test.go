package cdi

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const (
	own   = "team-a" // the VM's namespace
	other = "images" // that of the sources
)

// rights are what the service account that is asked about may do, as "verb resource namespace/name"; the API server
// answers reviews by it.
type rights struct {
	client.Writer
	account string
	has     []string
	err     error
	asked   []string
}

func (r *rights) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	review := object.(*authorizationv1.SubjectAccessReview)
	a := review.Spec.ResourceAttributes
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Group != "" {
		resource += "." + a.Group
	}
	what := a.Verb + " " + resource + " " + a.Namespace + "/" + a.Name
	r.asked = append(r.asked, review.Spec.User+": "+what)
	for _, may := range r.has {
		review.Status.Allowed = review.Status.Allowed || review.Spec.User == r.account && may == what
	}
	return r.err
}

// source is a DataSource in the sources' namespace.
func source(name string, spec cdiv1.DataSourceSource, status cdiv1.DataSourceSource) *cdiv1.DataSource {
	return &cdiv1.DataSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: name},
		Spec:       cdiv1.DataSourceSpec{Source: spec}, Status: cdiv1.DataSourceStatus{Source: status},
	}
}

// sources are an API server's DataSources.
func sources(t *testing.T) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := cdiv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	golden := &cdiv1.DataVolumeSourcePVC{Namespace: other, Name: "golden"}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		source("claim", cdiv1.DataSourceSource{PVC: golden}, cdiv1.DataSourceSource{}),
		source("nameless", cdiv1.DataSourceSource{PVC: &cdiv1.DataVolumeSourcePVC{Name: "golden"}},
			cdiv1.DataSourceSource{}),
		source("snapshot", cdiv1.DataSourceSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Name: "golden"}},
			cdiv1.DataSourceSource{}),
		source("link", cdiv1.DataSourceSource{
			DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: other, Name: "claim"},
		}, cdiv1.DataSourceSource{PVC: golden}),
		source("dangling", cdiv1.DataSourceSource{
			DataSource: &cdiv1.DataSourceRefSourceDataSource{Namespace: other, Name: "none"},
		}, cdiv1.DataSourceSource{}),
	).Build()
}

const (
	mayClone       = "create datavolumes/source.cdi.kubevirt.io images/golden"
	mayMakePods    = "create pods images/golden"
	mayMakeClaims  = "create pvcs images/golden" // CDI asks for that word
	defaultAccount = "system:serviceaccount:team-a:default"
)

func fromClaim(namespace string) *cdiv1.DataVolumeSource {
	return &cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"}}
}

func fromSnapshot(namespace string) *cdiv1.DataVolumeSource {
	return &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: "golden"}}
}

func from(name string) *cdiv1.DataVolumeSourceRef {
	return &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Namespace: new(other), Name: name}
}

func TestAuthorize(t *testing.T) {
	imported := &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: "https://example/disk"}}
	for name, test := range map[string]struct {
		source      *cdiv1.DataVolumeSource
		ref         *cdiv1.DataVolumeSourceRef
		annotation  string
		account     string // of the VM's serviceAccount volume
		has         []string
		unreachable error

		allowed bool
		failure string // of an error that is no denial
		asks    int
	}{
		"an import": {source: imported, allowed: true},
		"an empty disk": {
			source: &cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}, allowed: true,
		},
		"a claim of the VM's namespace":    {source: fromClaim(own), allowed: true},
		"a claim without a namespace":      {source: fromClaim(""), allowed: true},
		"a snapshot of the VM's namespace": {source: fromSnapshot(own), allowed: true},
		"another's claim":                  {source: fromClaim(other), asks: 2},
		"another's claim, that is open": {
			source: fromClaim(other), has: []string{mayClone}, allowed: true, asks: 1,
		},
		"another's claim, by pods": {
			source: fromClaim(other), has: []string{mayMakePods}, allowed: true, asks: 2,
		},
		"another's snapshot": {source: fromSnapshot(other), asks: 2},
		"another's snapshot, that is open": {
			source: fromSnapshot(other), has: []string{mayClone}, allowed: true, asks: 1,
		},
		"another's snapshot, by pods": {
			source: fromSnapshot(other), has: []string{mayMakePods}, asks: 3,
		},
		"another's snapshot, pods and claims": {
			source: fromSnapshot(other), has: []string{mayMakePods, mayMakeClaims}, allowed: true, asks: 3,
		},
		"the right of another account": {
			source: fromClaim(other), account: "builder", has: []string{"default's", mayClone}, asks: 2,
		},
		"a DataSource":                     {ref: from("claim"), asks: 2},
		"a DataSource, that is open":       {ref: from("claim"), has: []string{mayClone}, allowed: true, asks: 1},
		"a DataSource, without namespaces": {ref: from("nameless"), asks: 2},
		"a DataSource of a snapshot":       {ref: from("snapshot"), asks: 2},
		"a DataSource of a DataSource":     {ref: from("link"), asks: 2},
		"a DataSource that is not there": {
			ref: from("none"), failure: "get DataSource images/none: ",
		},
		"a DataSource of none": {
			ref: from("dangling"), failure: "DataSource images/dangling stands for no claim and no snapshot yet",
		},
		"the API server does not answer": {
			source: fromClaim(other), unreachable: errors.New("timeout"), asks: 1,
			failure: "may its source be cloned: timeout",
		},
		// CDI asks for no right for these two, since it clones nothing for them at first. It may clone later, by the
		// right of who made the DataVolume, which is virt-controller.
		"another's claim, said to be filled already": {
			source: fromClaim(other), annotation: cdiv1.AnnPrePopulated, asks: 2,
		},
		"another's claim, said to be a volume already": {
			source: fromClaim(other), annotation: cdiv1.AnnCheckStaticVolume, asks: 2,
		},
		"the VM's claim, said to be filled already": {
			source: fromClaim(own), annotation: cdiv1.AnnPrePopulated, allowed: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "demo"},
				Spec:       v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}},
			}
			if test.account != "" {
				vm.Spec.Template.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
					ServiceAccount: &v1.ServiceAccountVolumeSource{ServiceAccountName: test.account},
				}}}
			}
			template := &v1.DataVolumeTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Name: "disk"},
				Spec:       cdiv1.DataVolumeSpec{Source: test.source, SourceRef: test.ref},
			}
			if test.annotation != "" {
				template.Annotations = map[string]string{test.annotation: ""}
			}
			dv := New(vm, template)
			r := &rights{account: defaultAccount, has: test.has, err: test.unreachable}
			err := Authorize(t.Context(), r, sources(t), vm, dv)
			denied, is := errors.AsType[*DeniedError](err)
			switch {
			case test.allowed && err != nil:
				t.Errorf("refused: %v", err)
			case test.failure != "" && (is || err == nil || !strings.HasPrefix(err.Error(), test.failure)):
				t.Errorf("error %v, want %q", err, test.failure)
			case !test.allowed && test.failure == "" && !is:
				t.Errorf("it is allowed, or fails for another reason: %v", err)
			}
			account := "default"
			if test.account != "" {
				account = test.account
			}
			if is && (denied.Account != own+"/"+account || !strings.Contains(denied.Error(), other)) {
				t.Errorf("the denial says %v", denied)
			}
			if len(r.asked) != test.asks {
				t.Errorf("the API server was asked %q", r.asked)
			}
			for _, asked := range r.asked {
				if !strings.HasPrefix(asked, "system:serviceaccount:team-a:"+account+": create ") {
					t.Errorf("asked whether %s", asked)
				}
			}
			if _, kept := dv.Annotations[test.annotation]; test.annotation != "" && !kept {
				t.Errorf("the DataVolume has lost its annotation: %v", dv.Annotations)
			}
		})
	}
}

// TestAuthorizeResolves holds that the DataVolume names what was asked about, not what may be exchanged afterwards.
func TestAuthorizeResolves(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "demo"}}
	for name, want := range map[string]*cdiv1.DataVolumeSource{
		"claim": fromClaim(other), "nameless": fromClaim(other), "link": fromClaim(other),
		"snapshot": fromSnapshot(other),
	} {
		dv := New(vm, &v1.DataVolumeTemplateSpec{Spec: cdiv1.DataVolumeSpec{SourceRef: from(name)}})
		r := &rights{account: defaultAccount, has: []string{mayClone}}
		if err := Authorize(t.Context(), r, sources(t), vm, dv); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := dv.Spec.Source
		if dv.Spec.SourceRef != nil || got == nil || (got.PVC == nil) != (want.PVC == nil) ||
			got.PVC != nil && *got.PVC != *want.PVC || got.Snapshot != nil && *got.Snapshot != *want.Snapshot {
			t.Errorf("%s: cloned from %+v, %+v", name, got, dv.Spec.SourceRef)
		}
	}
}
