package launcher

import (
	"bufio"
	"io"
	"strings"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/termination"
	"github.com/virtkit/virtkit/pkg/names"
)

// The handoff of a guest that moves. libvirt by itself starts the guest at the target and then answers the source. When
// that answer is lost the source lets its own guest go on, and there are two. So the target holds the guest: complete,
// but stopped. The two launchers agree over a connection of their own, in words that launchers of all versions speak:
//
//	target   the guest is here, whole                    "arrived"
//	source   stops its QEMU (SIGSTOP), makes sure that libvirt
//	         has not let the guest go on                 "run", or "stay" for a guest that was paused
//	target   starts the guest                            "running"
//	source   kills its QEMU
//
// From "run" to "running" the guest's memory is on both sides and both stand still but for the one that may start.
// Should the target's QEMU end before it was started, the target says "dead" instead, and the guest goes on at the
// source: see handoff. The two libvirtds have no say: the answer for which the source's waits is held back by a gate.
//
// When the connection is lost the source makes another, for as long as it takes. When a launcher is lost, its last
// words (its termination message, written ahead) say what the other one may do, and virt-handler passes them on:
// TakeOver.
const (
	wordArrived = "arrived"
	wordRun     = "run"
	wordStay    = "stay"
	wordRunning = "running"
	wordDead    = "dead"
	// maxWord bounds a line of it, bytes.
	maxWord = 32
)

// readWord reads one line.
func readWord(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, maxWord)).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// Termination messages that are written ahead, for the case that the launcher is killed.
var (
	// handedOver says that the guest stands still here for good, and the other launcher may start it.
	handedOver = termination.Message{Lifecycle: pb.Lifecycle_LIFECYCLE_MIGRATED, Reason: "handed over"}
	// neverRan says that the guest was received and not started, so that its source may let it go on.
	neverRan = termination.Message{Lifecycle: pb.Lifecycle_LIFECYCLE_CRASHED, Reason: names.ReasonNeverRan}
)

// errNeverRan is the reason of a migration that failed because the target ended before it was started.
const errNeverRan = "the guest's QEMU on the target node ended before the guest ran there"
