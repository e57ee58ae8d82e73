package launcher

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// slots bound how much of one kind goes on at once, by their capacity.
type slots chan struct{}

// begin takes a slot, which end gives back, or refuses when none is free. what names the work.
func (s slots) begin(what string) (end func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d %s at once, which is the most; wait for one of them",
			cap(s), what)
	}
}
