package handler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
)

// uploadPod fails unless a pod of this node takes an upload: it has the UID that virt-api names, and the label that
// only virt-controller gives. The API server is asked each time; uploads are few.
func (h *handler) uploadPod(ctx context.Context, pod types.NamespacedName, uid types.UID) error {
	var pods corev1.PodList
	err := h.live.List(ctx, &pods, client.InNamespace(pod.Namespace),
		client.MatchingLabels{names.LabelComponent: names.VirtUpload},
		client.MatchingFieldsSelector{Selector: fields.AndSelectors(
			fields.OneTermEqualSelector("metadata.name", pod.Name),
			fields.OneTermEqualSelector("spec.nodeName", h.node.Name),
		)})
	if err != nil {
		return fmt.Errorf("find the upload's pod: %w", err)
	}
	for i := range pods.Items {
		if uid != "" && pods.Items[i].UID == uid {
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, pod.Name)
}

// uploadPeer fails unless what listens at the socket of an upload's pod is its server, to which it gives the claim's
// device if that is one: the kubelet makes it root's.
func (h *handler) uploadPeer(conn *net.UnixConn, pod types.UID) error {
	process, err := podfs.Peer(conn, h.proc, h.pods, pod)
	if err != nil {
		return err
	}
	defer process.Close()
	granted, err := h.node.granted(process)
	if err != nil || len(granted) == 0 {
		return err
	}
	if err := process.GiveDevice(names.UploadDevice, granted); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
