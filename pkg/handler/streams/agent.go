package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// agentRoutes adds the paths that the guest agent answers.
func (s *Server) agentRoutes(mux *http.ServeMux, vmi string) {
	mux.HandleFunc("GET "+vmi+"guestosinfo", s.ask(func(i *v1.VirtualMachineInstanceGuestAgentInfo) any {
		i.TypeMeta = metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachineInstanceGuestAgentInfo"}
		if i.FSInfo.Filesystems == nil {
			i.FSInfo.Filesystems = []v1.VirtualMachineInstanceFileSystem{}
		}
		return i
	}))
	mux.HandleFunc("GET "+vmi+"userlist", s.ask(func(i *v1.VirtualMachineInstanceGuestAgentInfo) any {
		if i.UserList == nil {
			i.UserList = []v1.VirtualMachineInstanceGuestOSUser{}
		}
		return v1.VirtualMachineInstanceGuestOSUserList{
			TypeMeta: metav1.TypeMeta{
				APIVersion: v1.GroupVersion.String(),
				Kind:       "VirtualMachineInstanceGuestOSUserList",
			},
			Items: i.UserList,
		}
	}))
	mux.HandleFunc("GET "+vmi+"filesystemlist", s.ask(func(i *v1.VirtualMachineInstanceGuestAgentInfo) any {
		if i.FSInfo.Filesystems == nil {
			i.FSInfo.Filesystems = []v1.VirtualMachineInstanceFileSystem{}
		}
		return v1.VirtualMachineInstanceFileSystemList{
			TypeMeta: metav1.TypeMeta{
				APIVersion: v1.GroupVersion.String(),
				Kind:       "VirtualMachineInstanceFileSystemList",
			},
			Items: i.FSInfo.Filesystems,
		}
	}))
	mux.HandleFunc("PUT "+vmi+"freeze", func(w http.ResponseWriter, r *http.Request) {
		after, err := unfreezeAfter(r)
		if err != nil {
			refuse(w, name(r), err)
			return
		}
		if r.URL.Query().Get("withoutAgent") != "" {
			s.quiesce(w, r, after)
			return
		}
		s.request(w, r, func(ctx context.Context, l launcherpb.LauncherClient) error {
			_, err := l.Freeze(ctx, &launcherpb.FreezeRequest{UnfreezeAfter: durationpb.New(after)})
			return err
		})
	})
	mux.HandleFunc("PUT "+vmi+"unfreeze", func(w http.ResponseWriter, r *http.Request) {
		s.request(w, r, func(ctx context.Context, l launcherpb.LauncherClient) error {
			_, err := l.Unfreeze(ctx, &launcherpb.UnfreezeRequest{})
			return err
		})
	})
	mux.HandleFunc("GET "+vmi+"exec", s.exec)
	mux.HandleFunc("GET "+vmi+"copyfile", s.copyFile)
}

// quiesced are the answers to a freeze that may pause the guest. A launcher of an older version names none, and has
// asked the agent.
var quiesced = map[launcherpb.Quiesced]string{
	launcherpb.Quiesced_QUIESCED_UNSPECIFIED:    "Agent",
	launcherpb.Quiesced_QUIESCED_AGENT:          "Agent",
	launcherpb.Quiesced_QUIESCED_PAUSED:         "Paused",
	launcherpb.Quiesced_QUIESCED_ALREADY_PAUSED: "AlreadyPaused",
}

// quiesce freezes a guest, or pauses it when its agent does not answer, and says which it was.
func (s *Server) quiesce(w http.ResponseWriter, r *http.Request, after time.Duration) {
	if text := r.URL.Query().Get("withoutAgent"); text != "pause" || after == 0 {
		refuse(w, name(r), apierrors.NewBadRequest(fmt.Sprintf("withoutAgent=%q with after=%s: it must be pause, and "+
			"have a time", text, after)))
		return
	}
	memory := r.URL.Query().Get("memory")
	launcher, _, err := s.Launcher(name(r))
	var answer *launcherpb.FreezeResponse
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		answer, err = launcher.Freeze(ctx,
			&launcherpb.FreezeRequest{
				UnfreezeAfter: durationpb.New(after), PauseWithoutAgent: true, MemoryVolume: memory,
			})
	}
	if err == nil && memory != "" && answer.Memory == nil {
		err = apierrors.NewInternalError(errors.New("the launcher is of an older version, which saves no memory; " +
			"restart the VM"))
	}
	if err == nil && quiesced[answer.Quiesced] == "" {
		err = apierrors.NewInternalError(
			fmt.Errorf("the launcher answers with %s, which this virt-handler does not know", answer.Quiesced))
	}
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct { // an error means that the client is gone
		Quiesced string             `json:"quiesced"`
		Memory   *savedmemory.Saved `json:"memory,omitempty"`
	}{quiesced[answer.Quiesced], saved(answer.Memory)})
}

// saved returns the launcher's report on the guest's memory.
func saved(memory *launcherpb.SavedMemory) *savedmemory.Saved {
	if memory == nil {
		return nil
	}
	out := &savedmemory.Saved{Began: memory.Began.AsTime(), Size: memory.Size, Failure: memory.Failure}
	if memory.Ended != nil {
		out.Ended = new(memory.Ended.AsTime())
	}
	return out
}

func unfreezeAfter(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("after")
	after, err := time.ParseDuration(text)
	if err != nil || after < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("after=%q is not a duration", text))
	}
	return after, nil
}

// ask answers with a part of what the guest agent knows. It is decoded and encoded again, so that nothing but
// these types can come out of a launcher that its guest may have taken over.
func (s *Server) ask(part func(*v1.VirtualMachineInstanceGuestAgentInfo) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		launcher, _, err := s.Launcher(name(r))
		var body []byte
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
			defer cancel()
			var answer *launcherpb.AskAgentResponse
			if answer, err = launcher.AskAgent(ctx, &launcherpb.AskAgentRequest{}); err == nil {
				info := &v1.VirtualMachineInstanceGuestAgentInfo{}
				if err = json.Unmarshal(answer.InfoJson, info); err == nil {
					body, err = json.Marshal(part(info))
				}
			}
		}
		if err != nil {
			refuse(w, name(r), err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // an error means that the client is gone
	}
}
