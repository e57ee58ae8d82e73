package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/pki"
)

const (
	// componentsNamespace is where virtkit's components are, once they are installed.
	componentsNamespace = "kubevirt"
	// webhookClients is the ConfigMap by which virt-api knows who may call its webhooks.
	webhookClients = "kubevirt-webhook-clients"
	// clientsResync is when a ConfigMap is missed that somebody has deleted.
	clientsResync = 30 * time.Second
)

// serveWebhookClients writes for virt-api, wherever it is installed, that the API server calls its webhooks with a
// client certificate, so that it answers nobody else.
func serveWebhookClients(ctx context.Context, admin kubeconfig.Credentials) error {
	client, err := clientFor(admin, "virt-local-webhook-clients")
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, clientsResync,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", componentsNamespace).String()
		}))
	ensure := func(any) {
		if err := ensureWebhookClients(ctx, client); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Write for virt-api who calls webhooks") // the next resync tries again
		}
	}
	_, err = factory.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: ensure, UpdateFunc: func(_, object any) { ensure(object) },
	})
	if err != nil {
		return fmt.Errorf("watch namespace %s: %w", componentsNamespace, err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	<-ctx.Done()
	return nil
}

// ensureWebhookClients makes the ConfigMap unless it is there, whatever it says then, or its namespace ends.
func ensureWebhookClients(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ConfigMaps(componentsNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: webhookClients},
		Data:       map[string]string{"names": pki.WebhooksUser + "\n"},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
