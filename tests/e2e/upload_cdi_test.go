//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	clientcdi "github.com/virtkit/virtkit/pkg/client/action/cdi"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/tests/cdi"
	"github.com/virtkit/virtkit/tests/instance"
)

// The tiny guest's disk is uploaded to a DataVolume by CDI's protocol, to a stand-in for CDI and its upload proxy, and
// a VM boots from it; the first try is refused. The same command to a claim goes through the API server,
// since nobody says where the proxy is.
func TestImageUploadCDI(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	if err := cdi.Install(t.Context(), c.Client); err != nil {
		t.Fatal(err)
	}
	if err := cdi.InstallUploads(t.Context(), c.Client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // other tests' uploads would look for the proxy, too
		if err := cdi.UninstallUploads(context.WithoutCancel(t.Context()), c.Client); err != nil {
			t.Error(err)
		}
	})
	ns := c.namespace(t, "restricted")
	api, err := client.New(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "discovery has CDI's upload API", func() string {
		if served, err := clientcdi.Serves(t.Context(), api, clientcdi.UploadGroup, clientcdi.Tokens); !served {
			return fmt.Sprintf("it has not: %v", err)
		}
		return ""
	})
	uploader := &cdi.Uploader{Client: c.Client, Namespace: ns, Tools: instance.Launcher(), Dial: api.PodPort}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- uploader.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var posts atomic.Int32
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && posts.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable) // the command tries again
			return
		}
		uploader.ServeHTTP(w, r)
	}))
	defer proxy.Close()

	out := c.virtctl(t, nil, "-n", ns, "image-upload", "dv", "disk", "--size=512Mi", "--image-path="+tinyDisk,
		"--uploadproxy-url="+proxy.URL, "--insecure", "--force-bind", "--wait-secs=120", "--datasource",
		"--default-preference=linux")
	if !strings.HasPrefix(out, "DataVolume disk has the disk of tiny.qcow2: ") {
		t.Errorf("said %q", out)
	}
	key := crclient.ObjectKey{Namespace: ns, Name: "disk"}
	var source cdiv1.DataSource
	if err := c.Client.Get(t.Context(), key, &source); err != nil || source.Spec.Source.PVC == nil ||
		source.Spec.Source.PVC.Name != "disk" || source.Labels[uploads.LabelPreference] != "linux" {
		t.Errorf("%v, %+v", err, source)
	}
	bootsFrom(t, ns, "disk")

	_, said, err := c.Virtctl(t.Context(), nil, "-n", ns, "image-upload", "pvc", "native", "--size=512Mi",
		"--image-path="+tinyDisk, "--wait-secs=120")
	if err != nil || !strings.Contains(said, "note: the image goes through the API server: ") {
		t.Errorf("%v, said %q", err, said)
	}
}

// An image is offered as a DataSource where there is CDI, and goes with it.
func TestImageDataSource(t *testing.T) {
	t.Parallel()
	c := theCluster
	if err := cdi.Install(t.Context(), c.Client); err != nil {
		t.Fatal(err)
	}
	ns := c.namespace(t, "restricted")
	c.virtctl(t, nil, "-n", ns, "image", "import", "docker://"+instance.TinyDisk(), "golden/1", "--size=512Mi",
		"--user=root")
	if out := c.virtctl(t, nil, "-n", ns, "image", "list", "-o", "jsonpath={.items[*].dataSource}"); out != "golden-1" {
		t.Errorf("the image's DataSource is %q", out)
	}
	var claim corev1.PersistentVolumeClaim
	var source cdiv1.DataSource
	key := crclient.ObjectKey{Namespace: ns, Name: "golden-1"}
	if err := c.Client.Get(t.Context(), key, &claim); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Get(t.Context(), key, &source); err != nil || len(source.OwnerReferences) != 1 ||
		source.OwnerReferences[0].UID != claim.UID {
		t.Fatalf("%v, %+v", err, source)
	}
	c.virtctl(t, nil, "-n", ns, "image", "rm", "golden/1", "--yes")
	eventually(t, time.Minute, "the DataSource goes with the image", func() string {
		if err := c.Client.Get(t.Context(), key, &source); !apierrors.IsNotFound(err) {
			return "it is there"
		}
		return ""
	})
}
