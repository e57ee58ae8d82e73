package streams

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/stats"
)

const (
	// statsTimeout bounds one launcher's answer; one that is late is left out.
	statsTimeout = 3 * time.Second
	// statsAtOnce is how many launchers are asked side by side.
	statsAtOnce = 16
	// maxDevices bounds how many interfaces and disks a launcher may name.
	maxDevices = 256
)

// stats answers with what the guests of the node use, those of one namespace if asked.
func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	namespace := r.URL.Query().Get("namespace")
	list := stats.List{Items: []stats.Guest{}}
	var mu sync.Mutex
	var group sync.WaitGroup
	turn := make(chan struct{}, statsAtOnce)
	for vmi, launcher := range s.Launchers() {
		if namespace != "" && vmi.Namespace != namespace {
			continue
		}
		group.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			guest, err := guestStats(r.Context(), vmi, launcher)
			if err != nil {
				s.Log.Info("guest left out of the statistics", "vmi", vmi.String(), "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			list.Items = append(list.Items, guest)
		})
	}
	group.Wait()
	slices.SortFunc(list.Items, func(a, b stats.Guest) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		s.Log.Info("statistics not sent", "error", err)
	}
}

func guestStats(ctx context.Context, vmi types.NamespacedName, launcher launcherpb.LauncherClient) (stats.Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	answer, err := launcher.Stats(ctx, &launcherpb.StatsRequest{})
	if err != nil {
		return stats.Guest{}, err
	}
	guest := stats.Guest{
		Namespace: vmi.Namespace, Name: vmi.Name, Time: time.Now(), CPUTime: answer.CpuTime, VCPUs: answer.Vcpus,
		Memory: stats.Memory{Guest: answer.MemoryGuest, Used: answer.MemoryUsed, Resident: answer.MemoryResident},
	}
	for _, i := range answer.Interfaces[:min(len(answer.Interfaces), maxDevices)] {
		guest.Interfaces = append(guest.Interfaces, stats.Interface{Name: i.Name, Received: i.Received, Sent: i.Sent})
	}
	for _, d := range answer.Disks[:min(len(answer.Disks), maxDevices)] {
		guest.Disks = append(guest.Disks, stats.Disk{Name: d.Name, Read: d.Read, Written: d.Written, ReadRequests: d.ReadRequests, WriteRequests: d.WriteRequests})
	}
	return guest, nil
}
