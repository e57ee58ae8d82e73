package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/export"
	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/tests/bench/report"
	"github.com/virtkit/virtkit/tests/instance"
)

const (
	// transferSize is how much is uploaded and downloaded at once, MiB of noise.
	transferSize = 192
	// ofForward is how much of port-forward's throughput a transfer is to have.
	ofForward = .8
	// transferMemory is what a server of uploads or exports may need at most, MiB.
	transferMemory = 64
)

// transfers compares uploads to a claim and downloads of it with what port-forward carries from a guest, from the first
// byte to the last, and weighs the pods that serve them.
func transfers(ctx context.Context, b *bench) (rows []Row, err error) {
	vmi := b.vmi("transfers")
	withInit(vmi, forwardData)
	gone, err := b.booted(ctx, vmi)
	defer func() { err = errors.Join(err, gone()) }()
	if err != nil {
		return nil, err
	}
	c, err := client.New(b.Config)
	if err != nil {
		return nil, err
	}
	through := func() (net.Conn, error) {
		return forward.Dial(ctx, c, forward.Target{Namespace: vmi.Namespace, Name: vmi.Name, Instance: true}, 80,
			forward.TCP)
	}
	noise := make([]byte, transferSize<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	var up, down, forwarded []float64
	var upPeak, downPeak int64
	for n := range b.rounds + 1 {
		took, err := fetch(through)
		if err != nil {
			return nil, err
		}
		claim := fmt.Sprintf("transfer-%d", n)
		sent, peak, err := b.sent(ctx, c, claim, noise)
		if err != nil {
			return nil, fmt.Errorf("upload: %w", err)
		}
		upPeak = max(upPeak, peak)
		got, peak, err := b.got(ctx, c, claim)
		if err != nil {
			return nil, fmt.Errorf("download: %w", err)
		}
		downPeak = max(downPeak, peak)
		pvc := &corev1.PersistentVolumeClaim{}
		pvc.Namespace, pvc.Name = b.namespace, claim
		if err := b.Client.Delete(ctx, pvc); err != nil {
			return nil, err
		}
		if n > 0 { // the first is warm-up
			forwarded = append(forwarded, forwardSize/took.Seconds())
			up, down = append(up, sent), append(down, got)
		}
	}
	carried := func(name, what string, samples []float64) Row {
		row := Row{
			Name: name, What: what, Unit: "MiB/s", Versus: "port-forward from a guest", Samples: samples,
			Value: report.Percentile(samples, .5), AnchorSamples: forwarded, Anchor: report.Percentile(forwarded, .5),
		}
		row.Ratio = row.Value / row.Anchor
		return row.AtLeast(ofForward)
	}
	weighed := func(name, what string, peak int64) Row {
		return Row{Name: name, What: what, Unit: "MiB", Value: float64(peak) / (1 << 20)}.AtMost(transferMemory)
	}
	return []Row{
		carried("upload", fmt.Sprintf("image-upload of %d MiB, raw, median", transferSize), up),
		weighed("upload-memory", "… its pod, peak RSS", upPeak),
		carried("download", fmt.Sprintf("vmexport download of %d MiB, raw, median", transferSize), down),
		weighed("download-memory", "… its pod, peak RSS", downPeak),
	}, nil
}

// sent uploads an image to a new claim and returns how much of it went in a second, MiB, and the most that a process of
// the pod had, bytes.
func (b *bench) sent(
	ctx context.Context, c *client.Client, claim string, image []byte,
) (rate float64, peak int64, err error) {
	var begun time.Time
	var before int64
	weigh := b.weigher("upload")
	state, err := upload.Run(ctx, c, upload.Options{
		Namespace: b.namespace, Claim: claim, Session: upload.NewSession(), Patience: patience,
		Image: upload.Image{ReaderAt: bytes.NewReader(image), Size: int64(len(image))},
		Create: &upload.Claim{
			Size: "256Mi", StorageClass: storage, AccessMode: "ReadWriteOnce", VolumeMode: "Filesystem",
		},
		Show: func(s uploads.State) {
			if s.Received > 0 && begun.IsZero() {
				begun, before = time.Now(), s.Received
			}
			if !begun.IsZero() {
				peak = max(peak, weigh(ctx))
			}
		},
	})
	switch {
	case err != nil:
		return 0, 0, err
	case state.Phase != uploads.Succeeded:
		return 0, 0, fmt.Errorf("it is %s: %s", state.Phase, state.Message)
	case peak == 0:
		return 0, 0, errors.New("its pod was not found")
	}
	return float64(int64(len(image))-before) / (1 << 20) / time.Since(begun).Seconds(), peak, nil
}

// weigher returns what the largest process has had of the pods whose names have a word in them; 0 when there is none.
func (b *bench) weigher(word string) func(context.Context) int64 {
	var pids []int
	return func(ctx context.Context) (peak int64) {
		if pids == nil {
			var pods corev1.PodList
			if b.Client.List(ctx, &pods, ctrl.InNamespace(b.namespace)) != nil {
				return 0
			}
			for i := range pods.Items {
				if !strings.Contains(pods.Items[i].Name, word) || pods.Items[i].Status.Phase != corev1.PodRunning {
					continue
				}
				processes, err := instance.Processes(string(pods.Items[i].UID))
				if err != nil {
					return 0
				}
				for _, p := range processes {
					if p.Command != "pause" {
						pids = append(pids, p.PID)
					}
				}
			}
		}
		for _, pid := range pids {
			if now, err := highWater(pid); err == nil { // it may have ended
				peak = max(peak, now)
			}
		}
		return peak
	}
}

// got downloads a claim's disk and returns how much of it came in a second, MiB, and the most that a process of its
// server had, bytes.
func (b *bench) got(ctx context.Context, c *client.Client, claim string) (rate float64, peak int64, err error) {
	made, err := export.Create(ctx, c, export.New(export.Request{
		Namespace: b.namespace, Name: claim, Source: export.Source{Kind: exports.KindClaim, Name: claim},
	}), false)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, export.Delete(ctx, c, b.namespace, made.Name, made.UID, false)) }()
	to := &sink{}
	weigh := b.weigher("export")
	result, err := export.Download{
		Namespace: b.namespace, Name: made.Name, Raw: true, Patience: patience, Readiness: patience,
		Report: func(string) {}, Show: func(int64, int64) { peak = max(peak, weigh(ctx)) },
	}.Run(ctx, c, to)
	switch {
	case err != nil:
		return 0, 0, err
	case result.Bytes < transferSize<<20:
		return 0, 0, fmt.Errorf("%d bytes came of %d MiB", result.Bytes, transferSize)
	case peak == 0:
		return 0, 0, errors.New("its server was not found")
	}
	return float64(result.Bytes) / (1 << 20) / to.last.Sub(to.first).Seconds(), peak, nil
}

// sink takes a download and keeps nothing of it.
type sink struct{ first, last time.Time }

func (s *sink) Begin() error { return nil }

func (s *sink) Write(p []byte) (int, error) {
	s.last = time.Now()
	if s.first.IsZero() {
		s.first = s.last
	}
	return len(p), nil
}

func (s *sink) Skip(int64) error { return nil }
