package virtapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

const byNode = "node"

// nodes finds the virt-handler of a node, from a watch of virt-handler's pods.
type nodes struct {
	informer cache.SharedIndexInformer
	port     int
}

func newNodes(client kubernetes.Interface, namespace string) (*nodes, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = labels.Set{names.LabelComponent: names.VirtHandler}.String()
		}),
		informers.WithTransform(slim))
	n := &nodes{informer: factory.Core().V1().Pods().Informer(), port: names.PortHandler}
	err := n.informer.AddIndexers(cache.Indexers{byNode: func(object any) ([]string, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return nil, nil
		}
		return []string{pod.Spec.NodeName}, nil
	}})
	return n, err
}

// slim keeps of a pod only what is asked here.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, Conditions: pod.Status.Conditions},
	}, nil
}

// handler returns the address of a node's virt-handler. The error is 503 when it has none that works.
func (n *nodes) handler(node string) (string, error) {
	pods, err := n.informer.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return "", fmt.Errorf("find virt-handler of node %s: %w", node, err)
	}
	best := ""
	for _, object := range pods {
		pod := object.(*corev1.Pod)
		if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(n.port))
		if life.PodReady(pod) {
			return address, nil
		}
		best = address // it may well answer already
	}
	if best == "" {
		return "",
			apierrors.NewServiceUnavailable(fmt.Sprintf("no virt-handler runs on node %s; see kubectl -n %s get pods "+
				"-o wide", node, names.Namespace))
	}
	return best, nil
}

// target returns the URL at the virt-handler of the VMI's node.
func (n *nodes) target(vmi *v1.VirtualMachineInstance, verb string, query url.Values) (*url.URL, error) {
	if !runs(vmi) {
		return nil, notRunning(vmi)
	}
	return n.guest(vmi.Status.NodeName, types.NamespacedName{Namespace: vmi.Namespace, Name: vmi.Name}, verb, query)
}

// streamTarget does what target does, for a stream: the errors of guests that do not run differ.
func (n *nodes) streamTarget(vmi *v1.VirtualMachineInstance, verb string, query url.Values) (*url.URL, error) {
	if !runs(vmi) {
		return nil, notConnectable(vmi)
	}
	return n.target(vmi, verb, query)
}

func runs(vmi *v1.VirtualMachineInstance) bool {
	return vmi.Status.Phase == v1.Running && vmi.Status.NodeName != ""
}

// guest returns the URL for a VMI at the virt-handler of a node.
func (n *nodes) guest(node string, vmi types.NamespacedName, verb string, query url.Values) (*url.URL, error) {
	host, err := n.handler(node)
	if err != nil {
		return nil, err
	}
	return &url.URL{
		Scheme:   "https",
		Host:     host,
		Path:     stream.HandlerPath(stream.OfVMI, vmi, verb),
		RawQuery: query.Encode(),
	}, nil
}

// put passes a request on to virt-handler. Its errors are the user's.
func put(ctx context.Context, client *http.Client, target *url.URL, node string) error {
	_, err := call(ctx, client, http.MethodPut, target, node)
	return err
}

// maxAnswer bounds what is taken of virt-handler, bytes.
const maxAnswer = 2 << 20

// call makes a request of virt-handler and gives the answer's body. Its errors are the user's.
func call(ctx context.Context, client *http.Client, method string, target *url.URL, node string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 35*time.Second) // more than virt-handler gives the launcher
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, unreachable(node, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, unreachable(node, err)
	}
	if len(body) > maxAnswer {
		return nil,
			apierrors.NewInternalError(fmt.Errorf("virt-handler of node %s answers with more than %d bytes",
				node, maxAnswer))
	}
	if response.StatusCode >= 400 {
		return nil, passedOn(response.StatusCode, body)
	}
	return body, nil
}

// answer opens what virt-handler answers to a GET with 200; header, which may be nil, goes with it. Its errors are the
// user's; the caller closes the body.
func (q *requests) answer(
	ctx context.Context, target *url.URL, node string, header http.Header,
) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, header)
	response, err := q.handlers.of(node).Do(request)
	if err != nil {
		return nil, unreachable(node, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, unreachable(node, err)
	}
	return nil, passedOn(response.StatusCode, body)
}

func unreachable(node string, err error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("virt-handler of node %s does not answer: %s", node,
		stream.Cause(err)))
}
