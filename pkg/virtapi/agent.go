package virtapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/emicklei/go-restful/v3"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// defaultUnfreeze is the time after which a frozen guest is thawed if the request has none; maxUnfreeze is the longest.
const (
	defaultUnfreeze = 5 * time.Minute
	maxUnfreeze     = 24 * time.Hour
)

// hasAgent refuses what only a guest agent can do.
func hasAgent(vmi *v1.VirtualMachineInstance) error {
	switch {
	case vmi.Status.Phase != v1.Running:
		return notRunning(vmi)
	case paused(vmi):
		return conflictVMI(vmi, ": VMI is paused; unpause it first")
	case !conditions.True(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected):
		return conflictVMI(vmi, fmt.Sprintf(": VMI does not have guest agent connected; install and start "+
			"qemu-guest-agent in the guest, or wait for it to boot (virtctl wait vmi/%s --for=agent)", vmi.Name))
	}
	return nil
}

// hasGuest refuses an instance without a guest that runs.
func hasGuest(vmi *v1.VirtualMachineInstance) error {
	if vmi.Status.Phase != v1.Running {
		return notRunning(vmi)
	}
	return nil
}

// mayFreeze refuses a guest that does not run. Whether it is paused, and has an agent, its launcher knows better: the
// status lags behind a guest that was just resumed. KubeVirt asks for no more either.
func mayFreeze(vmi *v1.VirtualMachineInstance) error { return hasGuest(vmi) }

// mayExec refuses what a frozen guest cannot do either: its agent runs no programs, and opens no files.
func mayExec(vmi *v1.VirtualMachineInstance) error {
	if vmi.Status.FSFreezeStatus == "frozen" {
		return conflictVMI(vmi, ": VMI's file systems are frozen; unfreeze them first (subresource unfreeze), or "+
			"wait until they are unfrozen by themselves")
	}
	return hasAgent(vmi)
}

// agent answers with what the guest agent says now.
func (q *requests) agent(what string) func(*restful.Request, *restful.Response) error {
	return q.fromNode(what, hasAgent)
}

// fromNode answers with what the guest's virt-handler says of it.
func (q *requests) fromNode(
	what string, may func(*v1.VirtualMachineInstance) error,
) func(*restful.Request, *restful.Response) error {
	return func(r *restful.Request, w *restful.Response) error {
		body, err := q.callAgent(r, may, http.MethodGet, what, nil)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", restful.MIME_JSON)
		_, err = w.Write(body)
		return err
	}
}

func (q *requests) callAgent(
	r *restful.Request, may func(*v1.VirtualMachineInstance) error, method, what string, query url.Values,
) ([]byte, error) {
	ctx := r.Request.Context()
	vmi, err := q.machines.vmi(ctx, r.PathParameter("namespace"), r.PathParameter("name"))
	if err != nil {
		return nil, err
	}
	if err := may(vmi); err != nil {
		return nil, err
	}
	target, err := q.nodes.target(vmi, what, query)
	if err != nil {
		return nil, err
	}
	return call(ctx, q.handlers.of(vmi.Status.NodeName), method, target, vmi.Status.NodeName)
}

// withoutAgent is the parameter of freeze that decides about a guest whose agent does not answer. KubeVirt has none:
// its snapshots of such a guest are made while it writes.
const (
	withoutAgent = "withoutAgent"
	pauseInstead = "pause"
	// memoryTo is the parameter of freeze that names the volume to which the guest's memory is saved. virt-controller
	// asks with it again and again until that is done.
	memoryTo = "memory"
)

// freeze answers 202 as KubeVirt does, and with the parameter withoutAgent=pause what keeps the guest from writing:
// {"quiesced":"Agent"}, "Paused" or "AlreadyPaused". With memory=VOLUME it says in "memory", too, how far the save is.
func (q *requests) freeze(r *restful.Request, w *restful.Response) error {
	options := &v1.FreezeUnfreezeTimeout{}
	if err := decode(r.Request, options); err != nil {
		return err
	}
	after := defaultUnfreeze
	if options.UnfreezeTimeout != nil {
		after = options.UnfreezeTimeout.Duration
	}
	if after < 0 || after > maxUnfreeze {
		return badRequest(fmt.Sprintf("unfreezeTimeout: %s is not between 0s (never) and %s", after, maxUnfreeze))
	}
	query := url.Values{"after": {after.String()}}
	instead := r.QueryParameter(withoutAgent)
	switch {
	case instead == "":
	case instead != pauseInstead:
		return badRequest(fmt.Sprintf("%s: %q is not %s", withoutAgent, instead, pauseInstead))
	case after == 0:
		return badRequest("unfreezeTimeout: a guest that may be paused must go on by itself; give more than 0s")
	default:
		query.Set(withoutAgent, instead)
	}
	may := mayFreeze
	if volume := r.QueryParameter(memoryTo); volume != "" {
		if instead == "" {
			return badRequest(fmt.Sprintf("%s: it takes %s=%s", memoryTo, withoutAgent, pauseInstead))
		}
		query.Set(memoryTo, volume)
		may = func(vmi *v1.VirtualMachineInstance) error {
			v := hotplug.Volume(&vmi.Spec, volume)
			if v == nil || v.MemoryDump == nil || !savedmemory.IsVolume(volume) {
				return badRequest(fmt.Sprintf("%s: the VMI has no volume %q for its guest's memory", memoryTo, volume))
			}
			return mayFreeze(vmi)
		}
	}
	body, err := q.callAgent(r, may, http.MethodPut, "freeze", query)
	switch {
	case err != nil:
		return err
	case instead == "":
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	var answer struct {
		Quiesced string             `json:"quiesced"`
		Memory   *savedmemory.Saved `json:"memory,omitempty"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Quiesced == "" {
		return fmt.Errorf("virt-handler does not say how the guest was quiesced: it may be of an older version")
	}
	w.Header().Set("Content-Type", restful.MIME_JSON)
	return json.NewEncoder(w).Encode(answer)
}

func (q *requests) unfreeze(r *restful.Request, _, _ string) error {
	_, err := q.callAgent(r, mayFreeze, http.MethodPut, "unfreeze", nil)
	return err
}
