package usage

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

const (
	// filesEvery is the least time between two questions to an agent. One costs the guest some milliseconds.
	filesEvery = time.Minute
	// filesTimeout bounds an agent's answer.
	filesTimeout = 10 * time.Second
)

// files holds what an agent reported last about its guest's file systems and load.
type files struct {
	asked  time.Time
	asking bool
	said
}

// said holds what an agent reports; load is for the last 1, 5 and 15 minutes, or empty.
type said struct {
	list []v1.VirtualMachineInstanceFileSystem
	load []float64
}

// refresh asks the agent of a guest in the background, when its turn has come.
func (r *Reader) refresh(guest *Guest, now time.Time) {
	f := r.files[guest.Pod]
	if f == nil {
		f = &files{}
		r.files[guest.Pod] = f
	}
	if f.asking || !f.asked.IsZero() && now.Sub(f.asked) < filesEvery {
		return
	}
	f.asking, f.asked = true, now
	launcher := guest.Launcher
	r.working.Go(func() {
		answer, err := r.askFiles(launcher)
		r.mu.Lock()
		defer r.mu.Unlock()
		f.asking = false
		if err == nil {
			f.said = answer
		} else {
			f.said = said{} // what was is not what is
		}
	})
}

func (r *Reader) askFiles(launcher launcherpb.LauncherClient) (said, error) {
	ctx, cancel := context.WithTimeout(r.ctx, filesTimeout)
	defer cancel()
	answer, err := launcher.AskAgent(ctx, &launcherpb.AskAgentRequest{})
	if err != nil {
		return said{}, err
	}
	list, err := fileSystems(answer.InfoJson)
	return said{list: list, load: loads(answer.Load)}, err
}

// fileSystems reads an agent's answer, which the guest can make up.
func fileSystems(data []byte) ([]v1.VirtualMachineInstanceFileSystem, error) {
	var info v1.VirtualMachineInstanceGuestAgentInfo
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, err
	}
	var out []v1.VirtualMachineInstanceFileSystem
	type key struct{ disk, mount, kind string }
	seen := map[key]bool{}
	for _, f := range info.FSInfo.Filesystems[:min(len(info.FSInfo.Filesystems), MaxDevices)] {
		f.DiskName, f.MountPoint, f.FileSystemType = printable(f.DiskName), printable(f.MountPoint),
			printable(f.FileSystemType)
		k := key{f.DiskName, f.MountPoint, f.FileSystemType}
		if f.TotalBytes <= 0 || f.UsedBytes < 0 || seen[k] { // the same series twice would spoil the whole answer
			continue
		}
		seen[k] = true
		out = append(out, v1.VirtualMachineInstanceFileSystem{
			DiskName: f.DiskName, MountPoint: f.MountPoint, FileSystemType: f.FileSystemType, TotalBytes: f.TotalBytes,
			UsedBytes: f.UsedBytes,
		})
	}
	return out, nil
}

// loads returns three numbers that can be exposed, or none; the guest can make them up.
func loads(of []float64) []float64 {
	if len(of) != 3 {
		return nil
	}
	for _, load := range of {
		if load < 0 || math.IsNaN(load) || math.IsInf(load, 0) {
			return nil
		}
	}
	return of
}

// maxName bounds a guest's text, in characters.
const maxName = 128

func printable(text string) string {
	out := strings.Map(func(c rune) rune {
		if c == unicode.ReplacementChar || !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, text)
	if runes := []rune(out); len(runes) > maxName {
		return string(runes[:maxName])
	}
	return out
}

func (r *Reader) said(pod types.UID) said {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.files[pod]; f != nil {
		return f.said
	}
	return said{}
}

// slow reports whether a call has failed for want of an answer, not because the launcher had one that says no.
func slow(c *call) bool {
	switch status.Code(c.err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return true
	}
	return false
}
