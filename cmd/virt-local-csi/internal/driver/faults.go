package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Faults are written as `METHOD=delay:2s METHOD=fail:3 METHOD=fail`: calls of a method are delayed; or the first three
// for each volume or snapshot fail, or all. A failure that passes is Unavailable, after which the sidecars hold that
// the call may have done its work; one that stays is Internal, which is final.

// longestDelay is more than any caller waits.
const longestDelay = time.Hour

// fault is what is to happen to calls of a method.
type fault struct {
	method string
	delay  time.Duration
	// fails counts the calls that fail; -1 is all.
	fails int
}

// parseFaults reads the parameter `faults`.
func parseFaults(text string) ([]fault, error) {
	var all []fault
	for _, word := range strings.Fields(text) {
		method, what, _ := strings.Cut(word, "=")
		verb, value, given := strings.Cut(what, ":")
		f := fault{method: method}
		var err error
		switch {
		case verb == "delay" && given:
			f.delay, err = time.ParseDuration(value)
			if err == nil && (f.delay < 0 || f.delay > longestDelay) {
				err = fmt.Errorf("no delay from 0 to %v", longestDelay)
			}
		case verb == "fail" && given:
			f.fails, err = strconv.Atoi(value)
			if err == nil && f.fails < 0 {
				err = errors.New("no number of calls")
			}
		case verb == "fail":
			f.fails = -1
		default:
			err = fmt.Errorf("unknown fault %q", what)
		}
		if err != nil || !isMethod(method) {
			return nil, fmt.Errorf("parameter %s: %q is none: use CreateVolume=delay:2s, CreateVolume=fail:3 or "+
				"CreateVolume=fail, with any method of CSI", FaultsKey, word)
		}
		all = append(all, f)
	}
	return all, nil
}

func isMethod(name string) bool {
	is := func(m grpc.MethodDesc) bool { return m.MethodName == name }
	return slices.ContainsFunc(csi.Controller_ServiceDesc.Methods, is) ||
		slices.ContainsFunc(csi.Node_ServiceDesc.Methods, is)
}

// faults counts what has failed on purpose.
type faults struct {
	mu     sync.Mutex
	failed map[string]int
}

// inject delays a call, or fails it.
func (f *faults) inject(ctx context.Context, method, id, text string) error {
	all, err := parseFaults(text)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	for _, fault := range all {
		if fault.method != method {
			continue
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-time.After(fault.delay):
		}
		code := codes.Unavailable
		if fault.fails < 0 {
			code = codes.Internal
		}
		if fault.fails < 0 || f.count(method+" "+id, fault.fails) {
			return status.Errorf(code, "%s of %q fails since its class says so (parameter %s)", method, id, FaultsKey)
		}
	}
	return nil
}

// count counts one more up to limit, and reports whether it did.
func (f *faults) count(key string, limit int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = map[string]int{}
	}
	if f.failed[key] >= limit {
		return false
	}
	f.failed[key]++
	return true
}

// faultsFor finds the parameter: in the request, or in the record of its volume.
func (d *Driver) faultsFor(request any) string {
	if r, ok := request.(interface{ GetParameters() map[string]string }); ok {
		if text, ok := r.GetParameters()[FaultsKey]; ok {
			return text
		}
	}
	var volume string
	switch r := request.(type) {
	case *csi.CreateVolumeRequest:
		return ""
	case *csi.CreateSnapshotRequest:
		volume = r.GetSourceVolumeId()
	case *csi.DeleteSnapshotRequest:
		if s, err := d.Pool.Snapshot(r.GetSnapshotId()); err == nil {
			volume = s.Volume
		}
	case interface{ GetVolumeId() string }:
		volume = r.GetVolumeId()
	}
	v, err := d.Pool.Volume(volume)
	if err != nil {
		return "" // the call itself says what is wrong
	}
	return v.Parameters[FaultsKey]
}

// busy are the things that calls work on now.
type busy struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (b *busy) begin(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[id] {
		return false
	}
	if b.ids == nil {
		b.ids = map[string]bool{}
	}
	b.ids[id] = true
	return true
}

func (b *busy) end(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ids, id)
}

func methodOf(fullMethod string) string { return path.Base(fullMethod) }

// subject returns what a call works on: the name of what it makes, or an ID.
func subject(request any) string {
	switch r := request.(type) {
	case *csi.CreateVolumeRequest:
		return r.GetName()
	case *csi.CreateSnapshotRequest:
		return r.GetName()
	case *csi.DeleteSnapshotRequest:
		return r.GetSnapshotId()
	case *csi.NodeGetVolumeStatsRequest, *csi.NodeGetVolumeHealthRequest, *csi.ControllerGetVolumeRequest,
		*csi.ControllerGetVolumeHealthRequest, *csi.ValidateVolumeCapabilitiesRequest:
		return "" // they only look
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	}
	return ""
}
