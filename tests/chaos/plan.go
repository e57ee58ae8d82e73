package chaos

import (
	"math/rand/v2"
	"time"
)

// Phase is what a guest is going through when something is killed.
type Phase string

// The phases.
const (
	Starting  Phase = "starting"
	Running   Phase = "running"
	Plugging  Phase = "plugging"
	Migrating Phase = "migrating"
	Stopping  Phase = "stopping"
)

// Phases are all phases, in the table's order.
var Phases = []Phase{Starting, Running, Plugging, Migrating, Stopping}

// Kind is what fails.
type Kind string

// The kinds. etcd, kube-apiserver, kube-controller-manager and kube-scheduler are one process in virt-local: the
// control plane. Libvirtd, QEMU and the launcher are those of one guest.
const (
	API                 Kind = "virt-api"
	Leader              Kind = "virt-controller, leading"
	Standby             Kind = "virt-controller, waiting"
	Handler             Kind = "virt-handler"
	HandlerStopped      Kind = "virt-handler, stopped"
	Launcher            Kind = "virt-launcher"
	Libvirtd            Kind = "libvirtd"
	QEMU                Kind = "QEMU"
	Kubelet             Kind = "kubelet"
	Containerd          Kind = "containerd"
	ControlPlane        Kind = "control plane"
	ControlPlaneStopped Kind = "control plane, stopped"
)

// Kinds are all kinds, in the table's order.
var Kinds = []Kind{
	API, Leader, Standby, Handler, HandlerStopped, Launcher, Libvirtd, QEMU, Kubelet, Containerd, ControlPlane,
	ControlPlaneStopped,
}

// Stops says that the process is stopped for a while (SIGSTOP) and not killed.
func (k Kind) Stops() bool { return k == HandlerStopped || k == ControlPlaneStopped }

// OfGuest says that the process belongs to one guest's pod.
func (k Kind) OfGuest() bool { return k == Launcher || k == Libvirtd || k == QEMU }

// OfNode says that each node has such a process.
func (k Kind) OfNode() bool {
	return k == Handler || k == HandlerStopped || k == Kubelet || k == Containerd
}

// EndsGuest says that the guest cannot survive it. It survives the end of its libvirtd.
func (k Kind) EndsGuest() bool { return k == Launcher || k == QEMU }

// Guests is how many VMs there are. One goes through the phase, the others must notice nothing.
const Guests = 2

// Step is one kill.
type Step struct {
	Phase Phase `json:"phase"`
	Kind  Kind  `json:"kind"`
	// Guest is the number of the one that goes through the phase.
	Guest int `json:"guest"`
	// Target says which side of a migration is meant; without one, the other node.
	Target bool `json:"target"`
	// Delay is from the beginning of the phase to the kill.
	Delay time.Duration `json:"delay"`
	// Pause is for how long a process is stopped.
	Pause time.Duration `json:"pause,omitempty"`
}

// window is how long after a phase's beginning a kill may come: about as long as the phase takes. A process of the
// guest's pod has to be there first, and the delay counts from then on.
var window = map[Phase]time.Duration{
	Starting: 6 * time.Second, Running: time.Second, Plugging: 3 * time.Second, Migrating: 2500 * time.Millisecond,
	Stopping: 3 * time.Second,
}

// Plan returns so many steps, the same ones for the same seed. Every pair of phase and kind comes once before any comes
// again.
func Plan(seed uint64, kills int) []Step {
	random := rand.New(rand.NewPCG(seed, 0))
	steps := make([]Step, 0, kills)
	for len(steps) < kills {
		var round []Step
		for _, phase := range Phases {
			for _, kind := range Kinds {
				round = append(round, Step{Phase: phase, Kind: kind})
			}
		}
		random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		for _, s := range round[:min(len(round), kills-len(steps))] {
			s.Guest = random.IntN(Guests)
			s.Target = random.IntN(2) == 1 && (s.Kind.OfNode() || s.Kind.OfGuest() && s.Phase == Migrating)
			s.Delay = between(random, 0, window[s.Phase])
			if s.Kind.Stops() {
				s.Pause = between(random, 2*time.Second, 8*time.Second)
			}
			steps = append(steps, s)
		}
	}
	return steps
}

// between draws a time in steps of 10 ms.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	const grain = 10 * time.Millisecond
	return least + time.Duration(random.Int64N(int64((most-least)/grain)+1))*grain
}
