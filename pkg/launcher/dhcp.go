package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/dhcp"
)

// serveDHCP starts the servers for every NIC that has an address coming, in both families, unless there are some.
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
		c6, ok6, err := dhcp.NewConfig6(nic)
		if err != nil {
			s.closeDHCP()
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if ok {
			err = s.keepDHCP(dhcp.Listen(c, s.options.Log))
		}
		if ok6 && err == nil {
			err = s.keepDHCP(dhcp.Listen6(c6, s.options.Log))
		}
		if err != nil {
			s.closeDHCP()
			return status.Errorf(codes.FailedPrecondition, "interface %q: %v", nic.Name, err)
		}
	}
	return nil
}

// keepDHCP has a server closed with the others.
func (s *service) keepDHCP(server io.Closer, err error) error {
	if err == nil {
		s.dhcp = append(s.dhcp, server)
	}
	return err
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
