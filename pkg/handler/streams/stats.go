package streams

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/usage"
	"github.com/virtkit/virtkit/pkg/report/stats"
	"github.com/virtkit/virtkit/pkg/vm/qos"
)

// statsTimeout is the time in which launchers must answer; a late one is among the unanswered.
const statsTimeout = 4 * time.Second

// stats answers with what the guests of the node use, those of one namespace if asked, and names those that did not say
// it in time.
func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	namespace := r.URL.Query().Get("namespace")
	ctx, cancel := context.WithTimeout(r.Context(), statsTimeout)
	defer cancel()
	readings, missing := s.Usage.Read(ctx,
		func(vmi types.NamespacedName) bool { return namespace == "" || vmi.Namespace == namespace }, false)
	list := stats.List{Items: []stats.Guest{}}
	for i := range readings {
		list.Items = append(list.Items, guestStats(&readings[i]))
	}
	for _, vmi := range missing {
		list.Unanswered = append(list.Unanswered, stats.Unanswered{Namespace: vmi.Namespace, Name: vmi.Name})
	}
	slices.SortFunc(list.Items, func(a, b stats.Guest) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.Log.Info("statistics not sent", "err", err)
	}
}

func guestStats(r *usage.Reading) stats.Guest {
	answer := r.Stats
	guest := stats.Guest{
		Namespace: r.VMI.Namespace, Name: r.VMI.Name, Time: r.Time, CPUTime: answer.CpuTime, VCPUs: answer.Vcpus,
		Memory:       stats.Memory{Guest: answer.MemoryGuest, Used: answer.MemoryUsed, Resident: answer.MemoryResident},
		DeviceLimits: r.DeviceLimits,
	}
	if l := r.Limits; l != (qos.Sums{}) {
		guest.Limits = &stats.Limits{Read: l.Read, Written: l.Written, Received: l.Received, Sent: l.Sent}
	}
	for _, i := range answer.Interfaces {
		guest.Interfaces = append(guest.Interfaces, stats.Interface{Name: i.Name, Received: i.Received, Sent: i.Sent})
	}
	for _, d := range answer.Disks {
		guest.Disks = append(guest.Disks, stats.Disk{
			Name: d.Name, Read: d.Read, Written: d.Written,
			ReadRequests: d.ReadRequests, WriteRequests: d.WriteRequests,
		})
	}
	return guest
}
