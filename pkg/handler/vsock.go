package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/vsock"
	"github.com/virtkit/virtkit/pkg/service/certs"
)

// DialVSOCK connects to a vsock port of a guest on this node. Errors are vsock.Dial's, or say why there is no guest to
// dial.
func (r *Reconciler) DialVSOCK(ctx context.Context, vmi types.NamespacedName, port uint32) (net.Conn, error) {
	s := r.followed(vmi)
	if s == nil || moved(s.observation().Guest) {
		return nil, fmt.Errorf("VirtualMachineInstance %s does not run on node %s", vmi, r.Node.Name)
	}
	cid := s.latest().Status.VSOCKCID
	if cid == nil {
		return nil, errors.New("the guest has no vsock: spec.domain.devices.autoattachVSOCK is not set")
	}
	return vsock.Dial(ctx, vsock.Address{CID: *cid, Port: port})
}

// toGuest is TLS to a program in a guest. The CID, which is the kernel's to give, says which guest it is: its
// certificate is not looked at, and so the guest may be passing on to anybody what it receives. It may look at the
// certificate that it is shown, which the installation's authority has signed for this alone (certs.GuestsLeaf): no
// component takes it. The first guest that asks for it has it made, in the group.
func toGuest(ctx context.Context, group *errgroup.Group, source *certs.Source) *tls.Config {
	config := source.ClientConfig("")
	config.VerifyConnection = nil
	var once sync.Once
	certificate := config.GetClientCertificate
	config.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		once.Do(func() { group.Go(func() error { return source.Run(ctx) }) })
		select {
		case <-source.Ready():
		case <-ctx.Done():
		case <-info.Context().Done():
		}
		return certificate(info)
	}
	return config
}
