package stream

import (
	"errors"
	"net"
	"net/url"
	"os"
)

// Cause returns why a connection broke or could not be made, in the system's words. The addresses of both ends, which
// Go's errors have, are left out: they are the cluster's own, and say nothing to its users.
func Cause(err error) string {
	for {
		var request *url.Error
		var operation *net.OpError
		var call *os.SyscallError
		var lookup *net.DNSError
		switch {
		case errors.As(err, &request):
			err = request.Err
		case errors.As(err, &operation):
			err = operation.Err
		case errors.As(err, &lookup):
			return lookup.Err
		case errors.As(err, &call):
			err = call.Err
		default:
			return err.Error()
		}
	}
}
