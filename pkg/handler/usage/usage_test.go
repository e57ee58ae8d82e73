package usage

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/service/metrics"
)

var update = flag.Bool("update", false, "write the golden file")

// launcher answers as told.
type launcher struct {
	launcherpb.LauncherClient
	calls, asks atomic.Int32
	// stats answers; nil hangs until the call ends.
	stats func() (*launcherpb.StatsResponse, error)
	agent string
	load  []float64
}

func (l *launcher) Stats(ctx context.Context, _ *launcherpb.StatsRequest, _ ...grpc.CallOption,
) (*launcherpb.StatsResponse, error) {
	l.calls.Add(1)
	if l.stats == nil {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return l.stats()
}

func (l *launcher) AskAgent(context.Context, *launcherpb.AskAgentRequest, ...grpc.CallOption,
) (*launcherpb.AskAgentResponse, error) {
	l.asks.Add(1)
	return &launcherpb.AskAgentResponse{InfoJson: []byte(l.agent), Load: l.load}, nil
}

func ok() (*launcherpb.StatsResponse, error) { return &launcherpb.StatsResponse{CpuTime: 1}, nil }

func guestOf(name string, l *launcher) Guest {
	return Guest{
		VMI: types.NamespacedName{Namespace: "ns", Name: name}, Pod: types.UID("pod-" + name), Launcher: l,
		Agent: l.agent != "",
	}
}

func reader(t *testing.T, guests func() []Guest) *Reader {
	r := &Reader{Guests: guests, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	t.Cleanup(r.Close)
	return r
}

func read(r *Reader, within time.Duration) (names []string, missing int) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	readings, late := r.Read(ctx, nil, true)
	for _, one := range readings {
		names = append(names, one.VMI.Name)
	}
	slices.Sort(names)
	return names, len(late)
}

// A launcher that hangs holds up nobody, is asked once, and not again for a while.
func TestOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := &launcher{stats: ok}, &launcher{}
		r := &Reader{
			Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Guests: func() []Guest { return []Guest{guestOf("good", good), guestOf("bad", bad)} },
		}
		defer r.Close()
		start := time.Now()
		if names, missing := read(r, 2*time.Second); !slices.Equal(names, []string{"good"}) || missing != 1 {
			t.Errorf("%v, %d missing", names, missing)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %s", took)
		}
		// It is under way still: joined. Then it has failed: left alone, so that nobody waits.
		read(r, 2*time.Second)
		start = time.Now()
		if _, missing := read(r, 2*time.Second); missing != 1 || time.Since(start) != 0 {
			t.Errorf("%d missing after %s", missing, time.Since(start))
		}
		if n := bad.calls.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(patience)
		bad.stats = ok
		if names, missing := read(r, 2*time.Second); len(names) != 2 || missing != 0 {
			t.Errorf("%v, %d missing after its recovery", names, missing)
		}
	})
}

// Many that hang do not keep those that answer from their turn for longer than one timeout, and then not at all.
func TestManyHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var guests []Guest
		for i := range 3 * atOnce {
			guests = append(guests, guestOf(fmt.Sprint("bad", i), &launcher{}))
		}
		guests = append(guests, guestOf("good", &launcher{stats: ok}))
		r := &Reader{Log: slog.New(slog.DiscardHandler), Now: time.Now, Guests: func() []Guest { return guests }}
		defer r.Close()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(15 * time.Second) {
			read(r, 8*time.Second)
		}
		start := time.Now()
		names, missing := read(r, 8*time.Second)
		if !slices.Equal(names, []string{"good"}) || missing != 3*atOnce {
			t.Errorf("%v, %d missing after %s", names, missing, time.Since(start))
		}
	})
}

// Questions at the same time share one call.
func TestShared(t *testing.T) {
	var once sync.WaitGroup
	release := make(chan struct{})
	l := &launcher{stats: func() (*launcherpb.StatsResponse, error) { <-release; return ok() }}
	r := reader(t, func() []Guest { return []Guest{guestOf("a", l)} })
	for range 8 {
		once.Go(func() {
			if names, _ := read(r, time.Minute); len(names) != 1 {
				t.Errorf("%v", names)
			}
		})
	}
	close(release)
	once.Wait()
	if n := l.calls.Load(); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// A guest that does not run is neither there nor missing.
func TestNotRunning(t *testing.T) {
	l := &launcher{stats: func() (*launcherpb.StatsResponse, error) {
		return nil, status.Error(codes.FailedPrecondition, "not yet")
	}}
	r := reader(t, func() []Guest { return []Guest{guestOf("a", l)} })
	if names, missing := read(r, time.Second); len(names) != 0 || missing != 0 {
		t.Errorf("%v, %d missing", names, missing)
	}
}

// What is known of guests goes with them.
func TestForgets(t *testing.T) {
	l := &launcher{stats: ok, agent: `{}`}
	here := []Guest{guestOf("a", l)}
	r := reader(t, func() []Guest { return here })
	read(r, time.Second)
	here = nil
	read(r, time.Second)
	if len(r.calls) != 0 || len(r.files) != 0 {
		t.Errorf("%d calls and %d file lists are kept", len(r.calls), len(r.files))
	}
}

// The agent is asked once a minute, and what it says is told from the next reading on.
func TestFilesystems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &launcher{
			stats: ok, agent: `{"fsInfo":{"disks":[
			{"diskName":"vda1","mountPoint":"/","fileSystemType":"ext4","totalBytes":100,"usedBytes":40},
			{"diskName":"vda1","mountPoint":"/","fileSystemType":"ext4","totalBytes":1,"usedBytes":1},
			{"diskName":"","mountPoint":"/\u001b[2J","fileSystemType":"x","totalBytes":7,"usedBytes":-1}]}}`,
			load: []float64{2, 1, 0.5},
		}
		r := &Reader{
			Log: slog.New(slog.DiscardHandler), Now: time.Now,
			Guests: func() []Guest { return []Guest{guestOf("a", l)} },
		}
		defer r.Close()
		for range 10 {
			read(r, time.Second)
			time.Sleep(10 * time.Second)
		}
		if n := l.asks.Load(); n != 2 {
			t.Errorf("asked %d times in 100 s", n)
		}
		readings, _ := r.Read(context.Background(), nil, true)
		want := []v1.VirtualMachineInstanceFileSystem{
			{DiskName: "vda1", MountPoint: "/", FileSystemType: "ext4", TotalBytes: 100, UsedBytes: 40},
		}
		if len(readings) != 1 || !reflect.DeepEqual(readings[0].Filesystems, want) ||
			!slices.Equal(readings[0].Load, l.load) {
			t.Errorf("%+v", readings)
		}
	})
}

func TestClosed(t *testing.T) {
	r := reader(t, func() []Guest { return []Guest{guestOf("a", &launcher{stats: ok, agent: "{}"})} })
	r.Close()
	if names, _ := read(r, time.Second); len(names) != 0 {
		t.Errorf("%v", names)
	}
}

func whole() Reading {
	n := func(v uint64) *uint64 { return &v }
	return Reading{
		Guest: Guest{
			VMI: types.NamespacedName{Namespace: "prod", Name: "db"},
			Labels: map[string]string{
				"app.kubernetes.io/part-of": "shop", "app_kubernetes_io_part_of": "twice", "kubevirt.io/domain": "db",
				v1.NodeNameLabel: "node01",
			},
			Interfaces: map[string]string{"tap0": "default"}, Disks: map[string]string{"vda": "root"},
			Migration: &launcherpb.MigrationProgress{
				DataTotal: 100, DataProcessed: 60, DataRemaining: 40, DirtyRate: 5, Bandwidth: 20,
			},
		},
		Stats: &launcherpb.StatsResponse{
			CpuTime: 12_500_000_000, CpuUser: 9_000_000_000, CpuSystem: 3_500_000_000, Vcpus: 2,
			VcpuTimes: []*launcherpb.StatsResponse_VCPU{
				{Id: 0, State: 1, Time: 8_000_000_000, Wait: n(1_000_000), Delay: n(2_000_000)},
				{Id: 1, State: 0},
				{Id: 2, State: 77, Time: 1},
			},
			MemoryGuest: 128 << 20, MemoryResident: 200 << 20, IllegalTransitions: 2,
			Memory: &launcherpb.GuestMemory{
				Available: n(100), Usable: n(80), Unused: n(70), Cached: n(5), SwapIn: n(1), SwapOut: n(2),
				MajorFaults: n(3), MinorFaults: n(4), Maximum: n(128 << 20),
			},
			Interfaces: []*launcherpb.StatsResponse_Interface{{
				Name: "tap0", Received: 1, ReceivedPackets: 2, ReceivedErrors: 3, ReceivedDropped: 4, Sent: 5,
				SentPackets: 6, SentErrors: 7, SentDropped: 8,
			}},
			Disks: []*launcherpb.StatsResponse_Disk{
				{
					Name: "vda", Read: 1, ReadRequests: 2, ReadTime: 3_000_000_000, Written: 4, WriteRequests: 5,
					WriteTime: 6_000_000_000, FlushRequests: 7, FlushTime: 8_000_000_000,
				},
				{Name: "sda"},
			},
		},
		Filesystems: []v1.VirtualMachineInstanceFileSystem{
			{DiskName: "vda1", MountPoint: "/", FileSystemType: "ext4", TotalBytes: 100, UsedBytes: 40},
		},
		Load: []float64{1.5, 0.75, 0},
	}
}

func TestWrite(t *testing.T) {
	bare := Reading{
		Guest: Guest{VMI: types.NamespacedName{Namespace: "prod", Name: "bare"}}, Stats: &launcherpb.StatsResponse{},
	}
	var out bytes.Buffer
	w := metrics.NewWriter(&out)
	Write(w, "node01", []Reading{whole(), bare}, 1)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "guests.prom")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(golden, out.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("differs from %s (-update writes it):\n%s", golden, out.String())
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&out)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range metrics.Families() {
		if f.From == metrics.Handler && f != metrics.HandlerReady && f != metrics.StorageStuck &&
			families[f.Name] == nil {
			t.Errorf("%s is not told", f.Name)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	readings := make([]Reading, 100)
	for i := range readings {
		readings[i] = whole()
	}
	var out bytes.Buffer
	b.ReportAllocs()
	for b.Loop() {
		out.Reset()
		w := metrics.NewWriter(&out)
		Write(w, "node01", readings, 0)
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(out.Len()), "bytes/scrape")
}

// What a guest makes up is not told.
func TestLoads(t *testing.T) {
	for _, of := range [][]float64{nil, {1, 2}, {1, 2, math.NaN()}, {1, math.Inf(1), 2}, {-1, 0, 0}, {1, 2, 3, 4}} {
		if got := loads(of); got != nil {
			t.Errorf("%v: %v", of, got)
		}
	}
	if got := loads([]float64{0, 1, 2}); len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// A guest that does not answer in time is named.
func TestMissingIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Reader{Log: slog.New(slog.DiscardHandler), Now: time.Now, Guests: func() []Guest {
			return []Guest{guestOf("good", &launcher{stats: ok}), guestOf("bad", &launcher{})}
		}}
		defer r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, missing := r.Read(ctx, nil, false)
		if want := []types.NamespacedName{{Namespace: "ns", Name: "bad"}}; !slices.Equal(missing, want) {
			t.Errorf("%v are missing, want %v", missing, want)
		}
	})
}
