package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

const (
	// rateTimeout bounds one attempt to change the limits of the guest's disks; the launcher's own limit is shorter.
	rateTimeout = time.Minute
	// rateRetryMost is the longest wait before a change that failed is tried again.
	rateRetryMost = 30 * time.Second
)

// rated says what a session has limited already: "" is not known.
type rated struct{ disks, interfaces string }

// keepRated keeps the rates of the guest's disks and interfaces within the limits of its VMI, until ctx ends.
func (s *session) keepRated(ctx context.Context, client launcherpb.LauncherClient, process *podfs.Process) {
	var done rated
	limit := func(plan network.Plan, limits map[string]qos.Interface) error { return rate(process, plan, limits) }
	s.sync(ctx, "rate limits of the guest", rateRetryMost, func(vmi *v1.VirtualMachineInstance) (time.Duration, error) {
		err := errors.Join(s.rateInterfaces(ctx, &done, limit, vmi), s.rateDisks(ctx, &done, client, vmi))
		failure := ""
		if err != nil {
			failure = describe(err)
		}
		s.sawRates(ctx, failure)
		return 0, err
	})
}

// rateInterfaces has limit limit the interfaces of the pod, unless nothing has changed since it did last; also those of
// a pod that the guest is yet to come to.
func (s *session) rateInterfaces(
	ctx context.Context, done *rated, limit func(network.Plan, map[string]qos.Interface) error,
	vmi *v1.VirtualMachineInstance,
) error {
	limits, plan := qos.Of(vmi.Annotations).Interfaces, s.observation().Plan
	key := "limits: " + qos.Text(limits)
	if plan == nil || done.interfaces == key {
		return nil
	}
	err := s.do(ctx, "rates of the pod's network", func() error { return limit(*plan, limits) })
	if err == nil {
		done.interfaces = key
	}
	return err
}

// rate limits the interfaces of a plan in the pod of a process.
func rate(process *podfs.Process, plan network.Plan, limits map[string]qos.Interface) error {
	ns, err := process.Netns()
	if err != nil {
		return err
	}
	defer ns.Close()
	return apply.Limit(ns, plan, limits)
}

// rateDisks asks the launcher, unless nothing has changed since it was asked last. While the guest moves it waits: QEMU
// changes no disk then, and the next node's virt-handler does it.
func (s *session) rateDisks(
	ctx context.Context, done *rated, client launcherpb.LauncherClient, vmi *v1.VirtualMachineInstance,
) error {
	limits := qos.Of(vmi.Annotations).Disks
	key := rateKey(vmi, limits)
	if vmi.Status.NodeName != s.node.Name || vmi.Status.Phase != v1.Running || vmi.DeletionTimestamp != nil ||
		migrations.UnderWay(vmi) || done.disks == key {
		return nil
	}
	encoded, err := json.Marshal(vmi)
	if err != nil {
		return fmt.Errorf("encode VirtualMachineInstance: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	_, err = client.SetDiskLimits(ctx, &launcherpb.SetDiskLimitsRequest{VmiJson: encoded})
	if grpcstatus.Code(err) == codes.Unimplemented {
		if len(limits) > 0 {
			return errors.New("the guest runs in a virt-launcher of an older version, which cannot limit disks; they " +
				"have their limits after a migration and a change of them, or a restart")
		}
		err = nil
	}
	if err == nil {
		done.disks = key
	}
	return err
}

// rateKey says for which limits and which disks of a guest the launcher was asked: one that is plugged in meanwhile has
// the limits of when that began.
func rateKey(vmi *v1.VirtualMachineInstance, limits map[string]qos.Disk) string {
	key := "limits: " + qos.Text(limits)
	for i := range vmi.Status.VolumeStatus {
		v := &vmi.Status.VolumeStatus[i]
		key += "; " + v.Name + " " + v.Target + " " + string(v.Phase)
	}
	return key
}

// sawRates publishes why the guest is not limited as its VMI says; empty is that it is.
func (s *session) sawRates(ctx context.Context, failure string) {
	if s.observation().Unrated != failure {
		s.report(ctx, true, func(o *observation) { o.Unrated = failure })
	}
}
