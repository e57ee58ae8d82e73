package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/bench/report"
)

// mover is a guest that can be moved to the other node and back.
type mover interface {
	// terminal is its serial console, at which root is logged in after the first time.
	terminal(context.Context) (net.Conn, error)
	// move returns how long it took, and how long the guest stood still by libvirt's account.
	move(context.Context) (wall, still time.Duration, err error)
	// pings is how many bytes its pings carry.
	pings() int
}

// move is what one migration took.
type moved struct {
	wall  time.Duration
	gap   time.Duration // without a ping, as another pod hears them
	still time.Duration // by libvirt's account
}

// Goals of a migration, beside one by libvirt alone.
const (
	// wallBeyond is in seconds.
	wallBeyond            = .3
	gapLimit, gapLimitP95 = 1.25, 1.5
	stillLimit            = 1.3
)

// dirty changes 8 MiB of the guest's memory as fast as it can.
const dirty = `[ -e /tmp/a ] || dd if=/dev/urandom of=/tmp/a bs=1M count=8 2>/dev/null; (while :; do dd if=/tmp/a of=/tmp/b bs=1M conv=notrunc 2>/dev/null; done) & echo $! >/tmp/dirty`

// migration compares moving a guest with what libvirt alone takes for a guest like it, between two daemons in pods like
// the launcher's, with the launcher's configuration.
//
// The gap is that between pings which the guest sends to a third pod, 200 a second: under masquerade its address seen
// from outside is another afterwards, so that whoever pinged it from outside would measure how fast he learns the new
// one.
func migration(ctx context.Context, b *bench) (rows []Row, err error) {
	e, deafen, err := b.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, deafen()) }()
	ours := &guest{bench: b, vmi: b.vmi("mover")}
	if _, err := b.untilRunning(ctx, ours.vmi); err != nil {
		return nil, err
	}
	defer func() {
		_, gone := b.untilGone(ctx, ours.vmi)
		err = errors.Join(err, gone)
	}()
	if err := login(ctx, ours); err != nil {
		return nil, err
	}
	theirs, err := newPlain(ctx, b, ours, "")
	if err != nil {
		return nil, fmt.Errorf("libvirt alone: %w", err)
	}
	defer func() { err = errors.Join(err, theirs.close(ctx)) }()

	pod, err := b.podStart(ctx)
	if err != nil {
		return nil, err
	}
	for _, load := range []struct {
		name, what, command string
		rounds              int
	}{
		{"idle", "idle guest", ":", 2 * b.rounds},
		{"dirty", "busy guest", dirty, b.rounds},
	} {
		var here, alone []moved
		for i := range load.rounds {
			for samples, m := range map[*[]moved]mover{&here: ours, &alone: theirs} {
				one, err := b.observe(ctx, e, m, load.command)
				if err != nil {
					return nil, fmt.Errorf("%s, move %d of %T: %w", load.what, i+1, m, err)
				}
				if b.verbose {
					fmt.Fprintf(os.Stderr, "  %T, %s: %v, silent %v, stood still %v\n", m, load.name, one.wall,
						one.gap, one.still)
				}
				*samples = append(*samples, one)
			}
		}
		rows = append(rows, compare(load.name, load.what, here, alone, pod)...)
	}
	return rows, nil
}

// podStart returns how long a plain Pod takes until it runs, in seconds.
func (b *bench) podStart(ctx context.Context) (float64, error) {
	var took []time.Duration
	for i := range b.rounds {
		pod := b.pod(fmt.Sprintf("start-%d", i))
		one, err := b.untilRunning(ctx, pod)
		if err != nil {
			return 0, err
		}
		if _, err := b.untilGone(ctx, pod); err != nil {
			return 0, err
		}
		took = append(took, one)
	}
	return percentile(took, .5), nil
}

// observe moves a guest while it pings and does what the command says.
func (b *bench) observe(ctx context.Context, e *ears, m mover, command string) (moved, error) {
	const settle = time.Second
	begin := fmt.Sprintf("%s; ping -q -s %d -i %s %s >/dev/null 2>&1 & echo $! >/tmp/ping", command, m.pings(),
		tick, e.at[0])
	if err := say(ctx, m, begin); err != nil {
		return moved{}, err
	}
	if err := pause(ctx, settle); err != nil {
		return moved{}, err
	}
	var one moved
	var err error
	from := time.Now()
	if one.wall, one.still, err = m.move(ctx); err != nil {
		return moved{}, err
	}
	to := time.Now()
	if one.gap, err = e.silence(ctx, m.pings(), from, to); err != nil {
		return moved{}, err
	}
	return one, say(ctx, m, "kill $(cat /tmp/ping /tmp/dirty 2>/dev/null); rm -f /tmp/ping /tmp/dirty")
}

// say types a command at the guest's shell and waits until it is done.
func say(ctx context.Context, m mover, command string) error {
	conn, err := m.terminal(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(conn, command+"; echo do''ne\r") // which is not how it comes back
	if err == nil {
		err = until(conn, "done\r\n")
	}
	return errors.Join(err, conn.Close())
}

// login logs root in at the tiny guest's prompt, for as long as the guest boots and may forget what is typed.
func login(ctx context.Context, m mover) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		conn, err := m.terminal(ctx)
		if err != nil {
			return err
		}
		err = errors.Join(typeIn(conn), conn.Close())
		if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// typeIn makes one attempt to log in.
func typeIn(conn net.Conn) error {
	const attempt = 10 * time.Second
	for _, step := range [][2]string{{"\r", "login: "}, {"root\r", "assword: "}, {"tiny\r", "# "}} {
		if _, err := io.WriteString(conn, step[0]); err != nil {
			return err
		}
		if err := untilWithin(conn, step[1], attempt); err != nil {
			return err
		}
	}
	return nil
}

// compare makes the rows of one load. pod is how long a plain Pod takes until it runs, in seconds.
func compare(name, what string, here, alone []moved, pod float64) []Row {
	of := func(samples []moved, value func(moved) time.Duration) []time.Duration {
		var all []time.Duration
		for _, s := range samples {
			all = append(all, value(s))
		}
		return all
	}
	var rows []Row
	for _, measure := range []struct {
		name, what, unit string
		value            func(moved) time.Duration
		goal, goalP95    float64 // 0: none
	}{
		{"wall", "created → Succeeded", "s", func(m moved) time.Duration { return m.wall }, 0, 0},
		{"gap", "silent for", "ms", func(m moved) time.Duration { return m.gap }, gapLimit, gapLimitP95},
		{"still", "stood still, says libvirt", "ms", func(m moved) time.Duration { return m.still }, stillLimit, 0},
	} {
		for _, p := range []struct {
			suffix, what string
			value, goal  float64
		}{{"", "median", .5, measure.goal}, {"-p95", "p95", .95, measure.goalP95}} {
			row := report.Timed("migration-"+name+"-"+measure.name+p.suffix,
				fmt.Sprintf("migration, %s: %s, %s", what, measure.what, p.what), measure.unit,
				of(here, measure.value), p.value).Beside("libvirt alone", of(alone, measure.value), p.value)
			switch {
			case measure.name == "wall" && p.value == .5:
				// There is no pod to start for libvirt alone.
				row.Goal = fmt.Sprintf("≤ anchor + a plain Pod's start (%.2f s) + %v s", pod, wallBeyond)
				row.Reached = row.Value <= row.Anchor+pod+wallBeyond
			case p.goal > 0:
				row = row.Times(p.goal)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// guest is a VMI that virtkit moves.
type guest struct {
	*bench
	vmi   *v1.VirtualMachineInstance
	moves int
}

func (g *guest) pings() int { return 56 }

func (g *guest) terminal(ctx context.Context) (net.Conn, error) { return g.console(ctx, g.vmi, 0) }

func (g *guest) move(ctx context.Context) (wall, still time.Duration, err error) {
	m := g.migration()
	stop, err := g.follow(ctx)
	if err != nil {
		return 0, 0, err
	}
	wall, err = g.untilRunning(ctx, m)
	stop()
	if err != nil {
		return 0, 0, err
	}
	still, err = g.stoodStill(ctx)
	return wall, still, err
}

// migration is the guest's next one.
func (g *guest) migration() *v1.VirtualMachineInstanceMigration {
	g.moves++
	return &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", g.vmi.Name, g.moves), Namespace: g.vmi.Namespace},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: g.vmi.Name},
	}
}

// stoodStill is how long the guest stood still when it moved last.
func (g *guest) stoodStill(ctx context.Context) (time.Duration, error) {
	pod, err := g.pod(ctx)
	if err != nil {
		return 0, err
	}
	return account(ctx, pod)
}

// pod is the one that the guest is in.
func (g *guest) pod(ctx context.Context) (*corev1.Pod, error) {
	if err := g.Client.Get(ctx, client.ObjectKeyFromObject(g.vmi), g.vmi); err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := g.Client.List(ctx, &pods, client.InNamespace(g.vmi.Namespace)); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if g.vmi.Status.ActivePods[pod.UID] == g.vmi.Status.NodeName && pod.Spec.NodeName == g.vmi.Status.NodeName {
			return pod, nil
		}
	}
	return nil, fmt.Errorf("vmi %s has no pod on its node %s", g.vmi.Name, g.vmi.Status.NodeName)
}
