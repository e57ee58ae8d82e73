package launcher

import (
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/dhcp"
)

// serveDHCP starts a server for every NIC that has an address coming, unless there is one.
func (s *service) serveDHCP(plan network.Plan) error {
	if len(plan.Interfaces) == 0 || len(s.dhcp) > 0 {
		return nil
	}
	resolv, err := readResolv(s.options.ResolvConf)
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	for _, nic := range plan.Interfaces {
		c, ok, err := dhcp.NewConfig(nic, resolv)
		if err != nil {
			s.closeDHCP()
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if !ok {
			continue
		}
		server, err := dhcp.Listen(c, s.options.Log)
		if err != nil {
			s.closeDHCP()
			return status.Errorf(codes.FailedPrecondition, "interface %q: %v", nic.Name, err)
		}
		s.dhcp = append(s.dhcp, server)
	}
	return nil
}

func readResolv(path string) (dhcp.Resolv, error) {
	f, err := os.Open(path)
	if err != nil {
		return dhcp.Resolv{}, fmt.Errorf("read the pod's name servers: %w", err)
	}
	resolv, err := dhcp.ParseResolv(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return dhcp.Resolv{}, fmt.Errorf("read the pod's name servers: %w", err)
	}
	return resolv, nil
}

func (s *service) closeDHCP() {
	for _, server := range s.dhcp {
		if err := server.Close(); err != nil {
			s.options.Log.Warn("cannot end a DHCP server", "err", err)
		}
	}
	s.dhcp = nil
}
