package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/vmistatus"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/expansion"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

const (
	// growTimeout bounds one attempt to grow the guest's disks; the launcher's own limit is shorter.
	growTimeout = time.Minute
	// growRetryMost is the longest wait before growth that failed is tried again.
	growRetryMost = 30 * time.Second
)

// keepGrown gives the guest's disks the sizes of their claims, whenever these change, until ctx ends. It also finds out
// which sizes all disks have.
func (s *session) keepGrown(ctx context.Context, client launcherpb.LauncherClient) {
	s.sync(ctx, "sizes of disks", growRetryMost, func(vmi *v1.VirtualMachineInstance) (time.Duration, error) {
		return 0, s.grow(ctx, client, vmi)
	})
}

// grow asks the launcher, unless nothing has changed since it was asked last. While the guest moves it waits: QEMU
// changes no disk then, and the next node's virt-handler does it.
func (s *session) grow(ctx context.Context, client launcherpb.LauncherClient, vmi *v1.VirtualMachineInstance) error {
	key, last := expansion.Key(vmi), s.observation().Growth
	if vmi.Status.NodeName != s.node.Name || vmi.Status.Phase != v1.Running || vmi.DeletionTimestamp != nil ||
		migrations.UnderWay(vmi) || last.Key == key && (last.Failure == "" || last.Old) {
		return nil
	}
	encoded, err := json.Marshal(vmi)
	if err != nil {
		return fmt.Errorf("encode VirtualMachineInstance: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, growTimeout)
	defer cancel()
	response, err := client.GrowVolumes(limited, &launcherpb.GrowVolumesRequest{VmiJson: encoded})
	next := vmistatus.Growth{Key: key, Sizes: response.GetSizes()}
	switch {
	case grpcstatus.Code(err) == codes.Unimplemented:
		next.Old, err = true, nil
		next.Failure = "the guest runs in a virt-launcher of an older version, which cannot grow disks; they have " +
			"the new sizes after a migration or a restart"
	case err != nil:
		next.Failure = describe(err)
		next.Sizes = last.Sizes
	default:
		var failed []string
		for _, volume := range slices.Sorted(maps.Keys(response.GetFailures())) {
			failed = append(failed, hotplug.Naming(volume)+response.GetFailures()[volume])
		}
		if next.Failure = strings.Join(failed, "; "); next.Failure != "" {
			err = errors.New(next.Failure)
		}
	}
	s.report(ctx, true, func(o *observation) { o.Growth = next })
	return err
}
