package config

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	v1 "kubevirt.io/api/core/v1"
)

// Follower watches one KubeVirt resource. Current gives the defaults until Ready.
type Follower struct {
	listerWatcher cache.ListerWatcher
	ready         chan struct{}

	mu        sync.RWMutex
	current   Config
	listeners []func()
}

// NewFollower returns a follower of the KubeVirt resource; names.Namespace and names.KubeVirt say
// which one counts. Nothing happens until Run.
func NewFollower(config *rest.Config, namespace, name string) (*Follower, error) {
	client, err := KubeVirtClient(config)
	if err != nil {
		return nil, err
	}
	return newFollower(cache.NewListWatchFromClient(client, "kubevirts", namespace,
		fields.OneTermEqualSelector(metav1.ObjectNameField, name))), nil
}

// KubeVirtClient returns a client for the objects of kubevirt.io/v1, which are JSON only.
func KubeVirtClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register kubevirt.io/v1: %w", err)
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &v1.GroupVersion
	config.APIPath = "/apis"
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client for kubevirt.io/v1: %w", err)
	}
	return client, nil
}

func newFollower(listerWatcher cache.ListerWatcher) *Follower {
	return &Follower{listerWatcher: listerWatcher, ready: make(chan struct{}), current: Default()}
}

// Run follows the resource until the context ends; connection errors are retried. It may be called
// once.
func (f *Follower) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	take := func(kv *v1.KubeVirt) {
		config, err := FromKubeVirt(kv)
		if err != nil {
			logger.Error(err, "part of the KubeVirt resource is not usable and stays at its default")
		}
		f.set(config)
	}
	informer := cache.NewSharedIndexInformerWithOptions(f.listerWatcher, &v1.KubeVirt{},
		cache.SharedIndexInformerOptions{})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { take(obj.(*v1.KubeVirt)) },
		UpdateFunc: func(_, obj any) { take(obj.(*v1.KubeVirt)) },
		DeleteFunc: func(any) { take(nil) },
	})
	if err != nil {
		return fmt.Errorf("follow the KubeVirt resource: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-registration.HasSyncedChecker().Done():
			close(f.ready)
		case <-ctx.Done():
		}
	}()
	informer.RunWithContext(ctx)
	<-done
	return nil
}

// Ready returns a channel that is closed once the resource has been read, or is known not to exist.
func (f *Follower) Ready() <-chan struct{} {
	return f.ready
}

// Current returns the configuration now.
func (f *Follower) Current() Config {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.current
}

// OnChange registers notify, which is called after every change of the configuration; it must not block.
func (f *Follower) OnChange(notify func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, notify)
}

func (f *Follower) set(config Config) {
	f.mu.Lock()
	changed := !reflect.DeepEqual(f.current, config)
	f.current = config
	listeners := slices.Clone(f.listeners)
	f.mu.Unlock()
	if !changed {
		return
	}
	for _, notify := range listeners {
		notify()
	}
}
