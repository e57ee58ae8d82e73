package doctor

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/names"
)

// limit bounds each question.
const limit = 10 * time.Second

// programs are looked for in PATH.
var programs = []string{"kubectl", "kubectl-virt", "kubectl_complete-virt"}

// Gather reads the facts, side by side. connect makes the client; its error is a fact, too.
func Gather(
	ctx context.Context, connect func() (*client.Client, error), program Program, namespace string,
	now func() time.Time,
) Facts {
	f := Facts{Now: now(), Program: program, Namespace: namespace}
	f.Program.Path = map[string]string{}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			f.Program.Path[name] = path
		}
	}
	c, err := connect()
	if err != nil {
		f.Server.Err = err
		return f
	}
	f.server(ctx, c, now)
	if f.Server.Err != nil {
		return f
	}
	var group sync.WaitGroup
	ask := func(question func(ctx context.Context)) {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			question(ctx)
		})
	}
	ask(func(ctx context.Context) { f.VirtAPI.Value, f.VirtAPI.Err = c.ServerVersion(ctx) })
	ask(func(ctx context.Context) { _, f.Admission = c.CreateVM(ctx, namespace, plainVM(), true) })
	ask(func(ctx context.Context) {
		var list metav1.APIResourceList
		f.Resources.Err = c.Read(ctx, "/apis/kubevirt.io/v1", nil, &list)
		for _, r := range list.APIResources {
			f.Resources.Value = append(f.Resources.Value, r.Name)
		}
	})
	ask(func(ctx context.Context) {
		var list v1.KubeVirtList
		f.KubeVirt.Err = c.Read(ctx, "/apis/kubevirt.io/v1/namespaces/"+names.Namespace+"/kubevirts", nil, &list)
		if len(list.Items) > 0 {
			f.KubeVirt.Value = &list.Items[0]
		}
	})
	ask(func(ctx context.Context) {
		var list corev1.PodList
		f.Pods.Err = c.Read(ctx, "/api/v1/namespaces/"+names.Namespace+"/pods",
			url.Values{"labelSelector": {names.LabelComponent}}, &list)
		f.Pods.Value = list.Items
	})
	ask(func(ctx context.Context) { f.Authorities.Value, f.Authorities.Err = authorities(ctx, c) })
	ask(func(ctx context.Context) { f.Policies.Value, f.Policies.Err = policies(ctx, c) })
	ask(func(ctx context.Context) {
		var list storagev1.StorageClassList
		f.StorageClasses.Err = c.Read(ctx, "/apis/storage.k8s.io/v1/storageclasses", nil, &list)
		f.StorageClasses.Value = list.Items
	})
	ask(func(ctx context.Context) {
		var list corev1.NodeList
		f.Nodes.Err = c.Read(ctx, "/api/v1/nodes", nil, &list)
		f.Nodes.Value = list.Items
	})
	ask(func(ctx context.Context) { f.SnapshotDrivers.Value, f.SnapshotDrivers.Err = snapshotDrivers(ctx, c) })
	group.Wait()
	return f
}

// snapshotDrivers returns the drivers of the VolumeSnapshotClasses, each once.
func snapshotDrivers(ctx context.Context, c *client.Client) ([]string, error) {
	var list struct {
		Items []struct {
			Driver string `json:"driver"`
		} `json:"items"`
	}
	err := c.Read(ctx, "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses", nil, &list)
	if client.Unserved(err) {
		return nil, ErrNoSnapshots
	}
	var drivers []string
	for _, class := range list.Items {
		drivers = append(drivers, class.Driver)
	}
	slices.Sort(drivers)
	return slices.Compact(drivers), err
}

// server asks for the API server's version, and reads its clock off the answer.
func (f *Facts) server(ctx context.Context, c *client.Client, now func() time.Time) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	base, _, err := rest.DefaultServerURL(c.Config().Host, "", schema.GroupVersion{}, true)
	if err != nil {
		f.Server.Err = err
		return
	}
	ask := func() (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("version").String(), nil)
		if err != nil {
			return nil, err
		}
		return c.HTTPClient().Do(request)
	}
	// The first answer has the handshake in it.
	if first, err := ask(); err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(first.Body, 1<<20))
		if err = errors.Join(err, first.Body.Close()); err != nil {
			f.Server.Err = err
			return
		}
	}
	start := now()
	response, err := ask()
	if err != nil {
		f.Server.Err = err
		return
	}
	defer response.Body.Close()
	end := now()
	f.RoundTrip = end.Sub(start)
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		// The header has whole seconds, cut off: half a second more is the best guess.
		f.Behind = start.Add(f.RoundTrip / 2).Sub(date.Add(500 * time.Millisecond)).Round(time.Second)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	switch {
	case err != nil:
		f.Server.Err = err
	case response.StatusCode != http.StatusOK:
		f.Server.Err = apierrors.NewGenericServerResponse(response.StatusCode, "get", schema.GroupResource{}, "",
			"", 0, false)
	default:
		f.Server.Value, f.Server.Err = parseVersion(data)
	}
}

func parseVersion(data []byte) (apiversion.Info, error) {
	var info apiversion.Info
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("this is no Kubernetes: /version: %w", err)
	}
	return info, nil
}

// plainVM returns the smallest valid VM, halted.
func plainVM() *v1.VirtualMachine {
	halted := v1.RunStrategyHalted
	memory := resource.MustParse("128Mi")
	return &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: v1.VirtualMachineGroupVersionKind.Kind},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "doctor-"},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &halted,
			Template: &v1.VirtualMachineInstanceTemplateSpec{Spec: v1.VirtualMachineInstanceSpec{
				Domain: v1.DomainSpec{Memory: &v1.Memory{Guest: &memory}},
			}},
		},
	}
}

// authorities reads the bundle of virtkit's certificate authorities.
func authorities(ctx context.Context, c *client.Client) ([]Certificate, error) {
	var bundle corev1.ConfigMap
	err := c.Read(ctx, "/api/v1/namespaces/"+names.Namespace+"/configmaps/"+names.CABundle, nil, &bundle)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Certificate
	for left := []byte(bundle.Data[names.CABundleKey]); ; {
		var block *pem.Block
		if block, left = pem.Decode(left); block == nil {
			return out, nil
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read virtkit's certificate authority: %w", err)
		}
		out = append(out, Certificate{
			Subject: certificate.Subject.CommonName, NotBefore: certificate.NotBefore,
			NotAfter: certificate.NotAfter,
		})
	}
}
