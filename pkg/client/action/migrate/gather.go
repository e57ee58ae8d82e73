package migrate

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"

	"github.com/virtkit/virtkit/pkg/names"
)

// API has the methods of a client that Gather calls.
type API interface {
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	VMIList(ctx context.Context, namespace string, opts metav1.ListOptions) (*v1.VirtualMachineInstanceList, error)
	MigrationList(
		ctx context.Context, namespace string, opts metav1.ListOptions,
	) (*v1.VirtualMachineInstanceMigrationList, error)
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// Gather reads the facts of a plan. What the user may not read is named in them; that the guest does not run is an
// error. withDisks asks for the plan of a migration that brings disks.
func Gather(ctx context.Context, api API, namespace, name string, withDisks bool) (Facts, error) {
	f := Facts{WithDisks: withDisks}
	vmi, err := api.VMI(ctx, namespace, name)
	if err != nil {
		return f, fmt.Errorf("look at VMI %s/%s: %w", namespace, name, err)
	}
	f.VMI = vmi
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		wrong error
	)
	reads := f.reads(api, namespace)
	if withDisks {
		reads["claims"] = f.readClaims(api, namespace)
	}
	for what, read := range reads {
		group.Go(func() {
			err := read(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil, apierrors.IsNotFound(err):
			case apierrors.IsForbidden(err):
				f.Unread = append(f.Unread, what)
			case wrong == nil:
				wrong = fmt.Errorf("read %s: %w", what, err)
			}
		})
	}
	group.Wait()
	slices.Sort(f.Unread)
	return f, wrong
}

// reads returns the other reads of a plan, by the name that errors and the plan give to each.
func (f *Facts) reads(api API, namespace string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"nodes": func(ctx context.Context) error {
			var list corev1.NodeList
			err := api.Read(ctx, "/api/v1/nodes", nil, &list)
			f.Nodes = append([]corev1.Node{}, list.Items...)
			if err != nil {
				f.Nodes = nil
			}
			return err
		},
		"migrations of all namespaces": func(ctx context.Context) error {
			list, err := api.MigrationList(ctx, "", metav1.ListOptions{})
			if err == nil {
				f.Migrations = list.Items
			}
			return err
		},
		"virtual machine instances of all namespaces": func(ctx context.Context) error {
			list, err := api.VMIList(ctx, "",
				metav1.ListOptions{LabelSelector: v1.NodeNameLabel + "=" + f.VMI.Status.NodeName})
			if err == nil {
				f.Instances = list.Items
			}
			return err
		},
		"migration policies": func(ctx context.Context) error {
			var list v1alpha1.MigrationPolicyList
			err := api.Read(ctx, "/apis/migrations.kubevirt.io/v1alpha1/migrationpolicies", nil, &list)
			f.Policies = list.Items
			return err
		},
		"namespace " + namespace: func(ctx context.Context) error {
			var ns corev1.Namespace
			err := api.Read(ctx, "/api/v1/namespaces/"+namespace, nil, &ns)
			f.NamespaceLabels = ns.Labels
			return err
		},
		"the configuration": func(ctx context.Context) error {
			var kv v1.KubeVirt
			err := api.Read(ctx, "/apis/kubevirt.io/v1/namespaces/"+names.Namespace+"/kubevirts/"+
				names.KubeVirt, nil, &kv)
			if err == nil {
				f.KubeVirt = &kv
			}
			return err
		},
	}
}

func (f *Facts) readClaims(api API, namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		var list corev1.PersistentVolumeClaimList
		err := api.Read(ctx, "/api/v1/namespaces/"+namespace+"/persistentvolumeclaims", nil, &list)
		f.Claims = map[string]*corev1.PersistentVolumeClaim{}
		for i := range list.Items {
			f.Claims[list.Items[i].Name] = &list.Items[i]
		}
		return err
	}
}
