package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// Port is where the server listens on the machine's address in the cluster; 53 may be taken there.
const Port = 10053

// serviceObject returns the Service kube-dns, at the address that kubelets give to pods.
func serviceObject(clusterIP netip.Addr) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-dns", Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: clusterIP.String(),
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(Port)},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53, TargetPort: intstr.FromInt32(Port)},
			},
		},
	}
}

// endpointsObject returns the endpoints of kube-dns, which is no pod: it runs on the machine.
func endpointsObject(host netip.Addr) *discoveryv1.EndpointSlice {
	port, udp, tcp, yes := int32(Port), corev1.ProtocolUDP, corev1.ProtocolTCP, true
	dns, dnsTCP := "dns", "dns-tcp"
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-dns-virt-local", Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "kube-dns",
				discoveryv1.LabelManagedBy:   "virt-local",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{host.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
		},
		Ports: []discoveryv1.EndpointPort{
			{Name: &dns, Protocol: &udp, Port: &port},
			{Name: &dnsTCP, Protocol: &tcp, Port: &port},
		},
	}
}

// announce makes the Service kube-dns and its endpoints, unless they are there. It looks first: creating a
// Service whose address is taken, by itself, fails with another error than that it exists.
func announce(ctx context.Context, client kubernetes.Interface, host, clusterIP netip.Addr) error {
	services, slices := client.CoreV1().Services(metav1.NamespaceSystem), client.DiscoveryV1().
		EndpointSlices(metav1.NamespaceSystem)
	svc, slice := serviceObject(clusterIP), endpointsObject(host)
	_, err := services.Get(ctx, svc.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = services.Create(ctx, svc, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make Service kube-dns: %w", err)
	}
	_, err = slices.Get(ctx, slice.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make the endpoints of kube-dns: %w", err)
	}
	return nil
}

// Run serves a cluster's names on host until ctx is done.
func Run(ctx context.Context, client kubernetes.Interface, host, clusterIP netip.Addr) error {
	if err := announce(ctx, client, host, clusterIP); err != nil {
		return err
	}
	address := netip.AddrPortFrom(host, Port).String()
	udp, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", address)
	if err != nil {
		return fmt.Errorf("listen for DNS: %w", err)
	}
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for DNS: %w", err), udp.Close())
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	watched, err := watch(factory)
	if err != nil {
		return errors.Join(err, udp.Close(), tcp.Close())
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	return Server{Cluster: watched, Upstream: ResolvConf("/etc/resolv.conf")}.Serve(ctx, udp, tcp)
}

// watchedCluster is a Cluster from informers.
type watchedCluster struct {
	services   corelisters.ServiceLister
	byIP       cache.Indexer
	endpoints  discoverylisters.EndpointSliceLister
	namespaces corelisters.NamespaceLister
}

const indexIP = "clusterIP"

func watch(factory informers.SharedInformerFactory) (*watchedCluster, error) {
	services := factory.Core().V1().Services()
	err := services.Informer().AddIndexers(cache.Indexers{indexIP: func(obj any) ([]string, error) {
		if svc, ok := obj.(*corev1.Service); ok && svc.Spec.ClusterIP != "" &&
			svc.Spec.ClusterIP != corev1.ClusterIPNone {
			return []string{svc.Spec.ClusterIP}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index services: %w", err)
	}
	return &watchedCluster{
		services: services.Lister(), byIP: services.Informer().GetIndexer(),
		endpoints:  factory.Discovery().V1().EndpointSlices().Lister(),
		namespaces: factory.Core().V1().Namespaces().Lister(),
	}, nil
}

func (w *watchedCluster) Service(namespace, name string) *corev1.Service {
	svc, err := w.services.Services(namespace).Get(name)
	if err != nil {
		return nil
	}
	return svc
}

func (w *watchedCluster) ByIP(ip string) *corev1.Service {
	found, err := w.byIP.ByIndex(indexIP, ip)
	if err != nil || len(found) == 0 {
		return nil
	}
	svc, ok := found[0].(*corev1.Service)
	if !ok {
		return nil
	}
	return svc
}

func (w *watchedCluster) Endpoints(namespace, service string) []*discoveryv1.EndpointSlice {
	found, err := w.endpoints.EndpointSlices(namespace).
		List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}))
	if err != nil {
		return nil
	}
	return found
}

func (w *watchedCluster) Namespace(name string) bool {
	_, err := w.namespaces.Get(name)
	return err == nil
}
