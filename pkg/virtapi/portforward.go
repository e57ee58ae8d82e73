package virtapi

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	v1 "kubevirt.io/api/core/v1"
)

// portForwardInstance joins the user to a port of a VMI's guest.
func (q *requests) portForwardInstance(r *restful.Request, w *restful.Response) error {
	return q.portForward(r, w, virtualMachineInstances, q.machines.vmi)
}

// portForwardMachine joins the user to a port of the guest of a VM's VMI.
func (q *requests) portForwardMachine(r *restful.Request, w *restful.Response) error {
	return q.portForward(r, w, virtualMachines, q.machines.instance)
}

func (q *requests) portForward(
	r *restful.Request, w *restful.Response, resource string,
	find func(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error),
) error {
	port, err := strconv.ParseUint(r.PathParameter("port"), 10, 16)
	if err != nil || port == 0 {
		return badRequest(fmt.Sprintf("port %q is not a number from 1 to 65535", r.PathParameter("port")))
	}
	protocol := strings.ToLower(r.PathParameter("protocol"))
	join := q.streams.splice
	switch protocol {
	case "", "tcp":
		protocol = "tcp"
	case "udp":
		join = q.streams.splicePackets
	default:
		return badRequest(fmt.Sprintf("protocol %q is not tcp or udp", protocol))
	}
	ctx := r.Request.Context()
	user := ""
	if info, ok := apirequest.UserFrom(ctx); ok {
		user = info.GetName()
	}
	verb := fmt.Sprintf("portforward/%d/%s", port, protocol)
	key := locationKey{
		resource,
		types.NamespacedName{Namespace: r.PathParameter("namespace"), Name: r.PathParameter("name")},
	}
	if known, ok := q.locations.of(key); ok {
		target, err := q.nodes.guest(known.node, key.NamespacedName, verb, url.Values{"uid": {string(known.uid)}})
		if err == nil {
			err = join(w.ResponseWriter, r.Request, target, known.node, user)
		}
		if err == nil || ofGuest(err) {
			return err
		}
		q.locations.forget(key) // and look where it is now
	}
	vmi, err := find(ctx, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	target, err := q.nodes.streamTarget(vmi, verb, nil)
	if err != nil {
		return err
	}
	q.locations.note(key, vmi)
	return join(w.ResponseWriter, r.Request, target, vmi.Status.NodeName, user)
}

// instance reads the VMI of a VM. A VM without one is a conflict; a VMI that no VM made does not count.
func (m *machines) instance(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error) {
	vmi, err := m.vmi(ctx, namespace, name)
	if err == nil {
		owner := metav1.GetControllerOf(vmi)
		if owner != nil && owner.Kind == v1.VirtualMachineGroupVersionKind.Kind && owner.Name == name {
			return vmi, nil
		}
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	vm, err := m.vm(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return nil, conflict(vm, "VM is not running")
}
