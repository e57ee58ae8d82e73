package handler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
)

const (
	// exportPause is between two watches for pods of exports.
	exportPause = 5 * time.Second
	// exportTry and exportLimit are the interval and the limit of the attempts to reach a pod's server that has just
	// been started.
	exportTry   = 200 * time.Millisecond
	exportLimit = time.Minute
)

// giveExports gives the servers of exports on this node the devices of their claims, until ctx ends: the kubelet makes
// devices root's. There are few such pods, so nothing is kept of them.
func (h *handler) giveExports(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		given := map[types.UID]int32{}
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := h.followExports(ctx, group, given); err != nil && ctx.Err() == nil {
				h.log.Warn("exports are not followed", "err", err)
			}
		}, exportPause)
		return nil
	})
	return group.Wait()
}

// followExports watches until the watch ends. given has how often the container of each pod had been restarted when it
// was given its devices.
func (h *handler) followExports(ctx context.Context, group *errgroup.Group, given map[types.UID]int32) error {
	watch, err := h.live.Watch(ctx, &corev1.PodList{},
		client.MatchingLabels{names.LabelComponent: names.VirtExport},
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", h.node.Name)})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue // the watch's own error, after which it ends
		}
		restarts, running := startsOf(pod)
		if before, ok := given[pod.UID]; !running || ok && before == restarts {
			continue
		}
		given[pod.UID] = restarts
		group.Go(func() error {
			h.giveExport(ctx, pod)
			return nil
		})
	}
	return nil
}

// startsOf returns how often the container of a pod with devices was restarted, and whether it runs.
func startsOf(pod *corev1.Pod) (restarts int32, running bool) {
	if len(exportDevices(pod)) == 0 || len(pod.Status.ContainerStatuses) != 1 {
		return 0, false
	}
	status := &pod.Status.ContainerStatuses[0]
	return status.RestartCount, status.State.Running != nil
}

// exportDevices returns the devices of an export's pod, below /dev of its container.
func exportDevices(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Containers {
		for _, device := range pod.Spec.Containers[i].VolumeDevices {
			if strings.HasPrefix(device.DevicePath, names.ExportDevicesDir+"/") {
				out = append(out, device.DevicePath)
			}
		}
	}
	return out
}

// giveExport waits for the server of a pod, and gives it its devices.
func (h *handler) giveExport(ctx context.Context, pod *corev1.Pod) {
	err := wait.PollUntilContextTimeout(ctx, exportTry, exportLimit, true, func(ctx context.Context) (bool, error) {
		err := h.giveDevices(ctx, pod)
		return err == nil, nonesuch(err)
	})
	if err != nil && ctx.Err() == nil {
		h.log.Warn("an export has no devices", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}

// nonesuch returns nil for the errors of a server that does not listen yet.
func nonesuch(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errSilent) {
		return nil
	}
	return err
}

// errSilent reports a socket at which nobody listens.
var errSilent = errors.New("nobody listens at the socket")

func (h *handler) giveDevices(ctx context.Context, pod *corev1.Pod) error {
	run, err := podfs.OpenRun(h.pods, pod.UID)
	if err != nil {
		return err
	}
	defer run.Close()
	conn, err := run.Dial(ctx, names.SocketExport)
	if err != nil {
		return errors.Join(errSilent, err)
	}
	defer conn.Close()
	process, err := podfs.Peer(conn, h.proc, h.pods, pod.UID)
	if err != nil {
		return err
	}
	defer process.Close()
	granted, err := h.node.granted(process)
	if err != nil {
		return err
	}
	for _, device := range exportDevices(pod) {
		if err := process.GiveDevice(device, granted); err != nil {
			return err
		}
	}
	return nil
}
