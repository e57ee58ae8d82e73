package handler

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// limiter is a launcher that notes for which VMIs it was asked to limit disks.
type limiter struct {
	launcherpb.LauncherClient
	asked []string
	err   error
}

func (l *limiter) SetDiskLimits(
	_ context.Context, r *launcherpb.SetDiskLimitsRequest, _ ...grpc.CallOption,
) (*launcherpb.SetDiskLimitsResponse, error) {
	l.asked = append(l.asked, string(r.VmiJson))
	return &launcherpb.SetDiskLimitsResponse{}, l.err
}

// The launcher is asked once for the same limits of the same disks: when virt-handler begins, whatever was before, and
// after each change, but not while the guest is elsewhere, moves or ends.
func TestRateDisks(t *testing.T) {
	s := &session{node: &Node{Name: nodeName}, log: slog.New(slog.DiscardHandler)}
	guest := func(limit string, change ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.NodeName, vmi.Status.Phase = nodeName, v1.Running
		if limit != "" {
			vmi.Annotations = map[string]string{"disk.virtkit.io/root": limit}
		}
		for _, f := range change {
			f(vmi)
		}
		return vmi
	}
	var done rated
	client := &limiter{}
	for _, step := range []struct {
		name string
		vmi  *v1.VirtualMachineInstance
		want bool
	}{
		{"at first, without limits", guest(""), true},
		{"nothing new", guest(""), false},
		{"a limit", guest("bps=1Mi"), true},
		{"the same", guest("bps=1024Ki"), false},
		{"another, elsewhere", guest("bps=2Mi", func(v *v1.VirtualMachineInstance) { v.Status.NodeName = "b" }), false},
		{"another, before it runs", guest("bps=2Mi", func(v *v1.VirtualMachineInstance) {
			v.Status.Phase = v1.Scheduled
		}), false},
		{"another, while it moves", guest("bps=2Mi", func(v *v1.VirtualMachineInstance) {
			v.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "x"}
		}), false},
		{"another", guest("bps=2Mi"), true},
		{"a disk comes", guest("bps=2Mi", func(v *v1.VirtualMachineInstance) {
			v.Status.VolumeStatus = []v1.VolumeStatus{{Name: "data", Target: "sda"}}
		}), true},
		{"none", guest(""), true},
	} {
		before := len(client.asked)
		if err := s.rateDisks(t.Context(), &done, client, step.vmi); err != nil {
			t.Fatal(err)
		}
		if got := len(client.asked) > before; got != step.want {
			t.Errorf("%s: asked: %v", step.name, got)
		}
	}
	if !slices.ContainsFunc(client.asked, func(vmi string) bool { return strings.Contains(vmi, "bps=2Mi") }) {
		t.Errorf("the launcher does not get the limits: %v", client.asked)
	}

	// One that failed is asked again; one that is too old is not blamed where there is nothing to limit.
	client.err = grpcstatus.Error(codes.Internal, "no")
	for range 2 {
		before := len(client.asked)
		if err := s.rateDisks(t.Context(), &done, client, guest("iops=5")); err == nil || len(client.asked) == before {
			t.Errorf("a failure: %v", err)
		}
	}
	client.err = grpcstatus.Error(codes.Unimplemented, "unknown method")
	if err := s.rateDisks(t.Context(), &done, client, guest("iops=5")); err == nil ||
		!strings.Contains(err.Error(), "older version") {
		t.Errorf("an old launcher: %v", err)
	}
	done = rated{}
	if err := s.rateDisks(t.Context(), &done, client, guest("")); err != nil || done.disks == "" {
		t.Errorf("an old launcher without limits: %v", err)
	}
}

// The pod's network is limited once the plan of it is known, once for the same limits, also in the pod that a guest is
// yet to come to, and again after a failure; that the limits go is a change, too.
func TestRateInterfaces(t *testing.T) {
	s := &session{node: &Node{Name: nodeName, stepLimit: time.Minute}, log: slog.New(slog.DiscardHandler)}
	var done rated
	var asked []string
	var failure error
	limit := func(plan network.Plan, limits map[string]qos.Interface) error {
		asked = append(asked, plan.Interfaces[0].Name+" "+qos.Text(limits))
		return failure
	}
	step := func(name, text, want string) {
		t.Helper()
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.NodeName = "another"
		vmi.Annotations = map[string]string{"disk.virtkit.io/root": "bps=1Mi"}
		if text != "" {
			vmi.Annotations["interface.virtkit.io/default"] = text
		}
		asked = nil
		if err := s.rateInterfaces(t.Context(), &done, limit, vmi); !errors.Is(err, failure) {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(asked, ","); got != want {
			t.Errorf("%s: limited %q, want %q", name, got, want)
		}
	}
	step("without a plan", "in=1Mi", "")
	s.seen.Plan = &network.Plan{Interfaces: []network.Interface{{Name: "planned"}}}
	step("at first", "", "planned ")
	step("nothing new", "", "")
	step("a limit", "in=1Mi", "planned default: in=1Mi")
	step("the same", "in=1024Ki", "")
	failure = errors.New("no")
	step("a failure", "out=5Mi", "planned default: out=5Mi")
	failure = nil
	step("again", "out=5Mi", "planned default: out=5Mi")
	step("done", "out=5Mi", "")
	step("none", "", "planned ")
}
