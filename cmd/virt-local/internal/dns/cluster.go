package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sync/errgroup"
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

// serviceObject returns the Service kube-dns, at the addresses that kubelets give to pods.
func serviceObject(clusterIPs []netip.Addr) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-dns", Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: clusterIPs[0].String(),
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(Port)},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53, TargetPort: intstr.FromInt32(Port)},
			},
		},
	}
	if len(clusterIPs) > 1 {
		policy := corev1.IPFamilyPolicyRequireDualStack
		svc.Spec.IPFamilyPolicy = &policy
		for _, ip := range clusterIPs {
			svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, ip.String())
			svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, family(ip))
		}
	}
	return svc
}

// family returns Kubernetes' name of an address's family.
func family(ip netip.Addr) corev1.IPFamily {
	if ip.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// endpointsObject returns the endpoints of a family of kube-dns, which is no pod: it runs on the machine.
func endpointsObject(host netip.Addr) *discoveryv1.EndpointSlice {
	port, udp, tcp, yes := int32(Port), corev1.ProtocolUDP, corev1.ProtocolTCP, true
	dns, dnsTCP := "dns", "dns-tcp"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-dns-virt-local", Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "kube-dns",
				discoveryv1.LabelManagedBy:   "virt-local",
			},
		},
		AddressType: discoveryv1.AddressType(family(host)),
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{host.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
		},
		Ports: []discoveryv1.EndpointPort{
			{Name: &dns, Protocol: &udp, Port: &port},
			{Name: &dnsTCP, Protocol: &tcp, Port: &port},
		},
	}
	if host.Is6() {
		slice.Name += "-ipv6"
	}
	return slice
}

// announce makes the Service kube-dns and its endpoints, unless they are there. It looks first: creating a
// Service whose address is taken, by itself, fails with another error than that it exists.
func announce(ctx context.Context, client kubernetes.Interface, hosts, clusterIPs []netip.Addr) error {
	services, slices := client.CoreV1().Services(metav1.NamespaceSystem), client.DiscoveryV1().
		EndpointSlices(metav1.NamespaceSystem)
	svc := serviceObject(clusterIPs)
	_, err := services.Get(ctx, svc.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = services.Create(ctx, svc, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make Service kube-dns: %w", err)
	}
	for _, host := range hosts {
		slice := endpointsObject(host)
		_, err = slices.Get(ctx, slice.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
		}
		if err != nil {
			return fmt.Errorf("make the endpoints of kube-dns: %w", err)
		}
	}
	return nil
}

// Run serves a cluster's names on hosts until ctx is done.
func Run(ctx context.Context, client kubernetes.Interface, hosts, clusterIPs []netip.Addr) error {
	if err := announce(ctx, client, hosts, clusterIPs); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	watched, err := watch(factory)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	server := Server{Cluster: watched, Upstream: ResolvConf("/etc/resolv.conf")}
	group, ctx := errgroup.WithContext(ctx)
	for _, host := range hosts {
		group.Go(func() error { return listenAndServe(ctx, server, host) })
	}
	return group.Wait()
}

func listenAndServe(ctx context.Context, server Server, host netip.Addr) error {
	address := netip.AddrPortFrom(host, Port).String()
	udp, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("listen for DNS: %w", err)
	}
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for DNS: %w", err), udp.Close())
	}
	return server.Serve(ctx, udp, tcp)
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
		if svc, ok := obj.(*corev1.Service); ok && !headless(svc) {
			return ipTexts(svc), nil
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
