package wait

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// fake is an API whose lists are states one after the other, the last again and again, and whose watches are made
// by the test.
type fake struct {
	states  []State
	listErr []error
	watches func(resource string) (watch.Interface, error)
	lists   int
}

func (f *fake) state() State {
	return f.states[min(f.lists, len(f.states)-1)]
}

func (f *fake) VMList(context.Context, string, metav1.ListOptions) (*v1.VirtualMachineList, error) {
	if f.lists < len(f.listErr) && f.listErr[f.lists] != nil {
		f.lists++
		return nil, f.listErr[f.lists-1]
	}
	list := &v1.VirtualMachineList{}
	if vm := f.state().VM; vm != nil {
		list.Items = append(list.Items, *vm)
	}
	return list, nil
}

func (f *fake) VMIList(context.Context, string, metav1.ListOptions) (*v1.VirtualMachineInstanceList, error) {
	list := &v1.VirtualMachineInstanceList{}
	if vmi := f.state().VMI; vmi != nil {
		list.Items = append(list.Items, *vmi)
	}
	f.lists++
	return list, nil
}

func (f *fake) Watch(_ context.Context, resource, _ string, _ metav1.ListOptions) (watch.Interface, error) {
	if f.watches == nil {
		return watch.NewFake(), nil
	}
	return f.watches(resource)
}

func TestUntilFollowsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vmis := watch.NewFake()
		api := &fake{states: []State{{VM: stopped().VM}}, watches: func(resource string) (watch.Interface, error) {
			if resource == client.VMIs {
				return vmis, nil
			}
			return watch.NewFake(), nil
		}}
		go func() {
			vmi := running().VMI
			vmi.Status.Phase = v1.Scheduling
			vmis.Add(vmi)
			vmis.Modify(running().VMI)
		}()
		state, err := Until(t.Context(), api, "ns", "vm", Running())
		if err != nil || state.VMI == nil || state.VMI.Status.Phase != v1.Running {
			t.Errorf("got %+v, %v", state.VMI, err)
		}
		if state.VMI != nil && state.VMI.Kind != "VirtualMachineInstance" {
			t.Error("the object has no kind to print")
		}
	})
}

func TestUntilSurvivesLostWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("connection refused")
		unavailable := apierrors.NewServiceUnavailable("restarting")
		tries := 0
		api := &fake{
			states:  []State{stopped(), stopped(), stopped(), running()},
			listErr: []error{nil, gone, unavailable},
			watches: func(string) (watch.Interface, error) {
				tries++
				if tries == 1 {
					return nil, gone
				}
				w := watch.NewFake()
				w.Stop()
				return w, nil
			},
		}
		if _, err := Until(t.Context(), api, "ns", "vm", Running()); err != nil {
			t.Error(err)
		}
	})
}

func TestUntilEnds(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "virtualmachines"}, "", errors.New("no"))
	for _, test := range []struct {
		what string
		api  *fake
		want error
		text string
	}{
		{
			"no such machine", &fake{states: []State{{}}}, action.ErrNotFound,
			`virtualmachines.kubevirt.io "vm" not found`,
		},
		{
			"time is up", &fake{states: []State{stopped()}}, action.ErrTimeout,
			"timed out waiting for VM ns/vm to be running: it is Stopped",
		},
		{"refused at once", &fake{states: []State{{}}, listErr: []error{forbidden}}, forbidden, ""},
		{
			"refused later",
			&fake{
				states: []State{stopped()}, listErr: []error{nil, forbidden},
				watches: func(string) (watch.Interface, error) { return nil, errors.New("x") },
			},
			forbidden, "",
		},
		{
			"unreachable from the start", &fake{states: []State{{}}, listErr: []error{io.ErrUnexpectedEOF}},
			io.ErrUnexpectedEOF, "",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := Until(ctx, test.api, "ns", "vm", Running())
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: got %v, want %v %q", test.what, err, test.want, test.text)
			}
		})
	}
}

func TestUntilIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Until(ctx, &fake{states: []State{stopped()}}, "ns", "vm", Running()); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNow(t *testing.T) {
	if _, err := Now(t.Context(), &fake{states: []State{running()}}, "ns", "vm", Running()); err != nil {
		t.Error(err)
	}
	if _, err := Now(t.Context(), &fake{states: []State{stopped()}}, "ns", "vm", Running()); !errors.Is(err,
		action.ErrTimeout) {
		t.Errorf("got %v", err)
	}
}

func TestLogin(t *testing.T) {
	for _, test := range []struct {
		what   string
		pieces []string
		found  bool
	}{
		{"getty", []string{"\r\nWelcome to Debian\r\n\r\ndemo login: "}, true},
		{"in pieces", []string{"\r\ndemo lo", "gin", ": "}, true},
		{"with colours", []string{"\x1b[0m\x1b[1;32mdemo\x1b[0m login:\x1b[K "}, true},
		{"scrolled by", []string{"demo login: \r\n[   3.1] random: crng init done\r\n"}, true},
		{"after much else", []string{strings.Repeat("x", 2*ConsoleTail), "\r\ndemo login: "}, true},
		{"not this", []string{"\r\nLast login: Fri Nov 20\r\n# "}, false},
		{"nothing", nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dial := func(context.Context) (io.ReadCloser, error) {
				r, w := io.Pipe()
				go func() {
					for _, piece := range test.pieces {
						if _, err := io.WriteString(w, piece); err != nil {
							return
						}
					}
				}()
				return r, nil
			}
			_, _, err := Login(ctx, &fake{states: []State{running()}}, dial, "ns", "vm", LoginPrompt)
			if test.found && err != nil {
				t.Errorf("%s: %v", test.what, err)
			}
			if !test.found && !errors.Is(err, action.ErrTimeout) {
				t.Errorf("%s: got %v, want a timeout", test.what, err)
			}
		})
	}
}

// A console that shows nothing for long: the state that is said at the end is the one then.
func TestLoginSaysThePresentState(t *testing.T) {
	begun, paused := running(), running()
	begun.VM.Status.PrintableStatus = v1.VirtualMachineStatusStarting
	paused.VM.Status.PrintableStatus = v1.VirtualMachineStatusPaused
	for what, test := range map[string]struct {
		api  *fake
		want string
	}{
		"paused meanwhile":  {&fake{states: []State{begun, paused}}, "prompt: it is Paused; its console"},
		"deleted meanwhile": {&fake{states: []State{begun, {}}}, "prompt: it does not exist; its console"},
		"no answer": {
			&fake{states: []State{begun}, listErr: []error{nil, io.ErrUnexpectedEOF}},
			"prompt: when it was last seen, it is Starting; its console",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dial := func(context.Context) (io.ReadCloser, error) {
				r, _ := io.Pipe()
				return r, nil
			}
			_, _, err := Login(ctx, test.api, dial, "ns", "vm", LoginPrompt)
			if !errors.Is(err, action.ErrTimeout) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

func TestLoginDialsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []func() (io.ReadCloser, error){
			func() (io.ReadCloser, error) {
				return nil, apierrors.NewConflict(schema.GroupResource{}, "vm", errors.New("not running"))
			},
			func() (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF },
			func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("rebooting\r\n")), nil },
			func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("demo login: ")), nil },
		}
		n := 0
		dial := func(context.Context) (io.ReadCloser, error) { n++; return answers[n-1]() }
		_, shown, err := Login(t.Context(), &fake{states: []State{running()}}, dial, "ns", "vm", LoginPrompt)
		if err != nil || n != 4 || shown != "demo login: " {
			t.Errorf("got %q, %v after %d tries", shown, err, n)
		}
	})
}

func TestLoginGivesUpWhenRefused(t *testing.T) {
	dial := func(context.Context) (io.ReadCloser, error) {
		return nil, apierrors.NewForbidden(schema.GroupResource{}, "vm", errors.New("no"))
	}
	if _, _, err := Login(t.Context(), &fake{states: []State{running()}},
		dial, "ns", "vm", LoginPrompt); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

// asked is a VM of which a restart was requested, and its guest of before.
func asked() State {
	s, uid := running(), types.UID("one")
	s.VM.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{
		{Action: v1.StopRequest, UID: &uid}, {Action: v1.StartRequest},
	}
	return s
}

// guestConditions are what is waited for of a guest.
var guestConditions = []string{
	"running", "ready", "agent", "ip", "condition=Ready", "condition=agentconnected",
	"jsonpath={.status.printableStatus}=Running",
}

// A wait after a restart was requested does not count the guest that is to end, also where the VM has forgotten the
// request before the instance shows its end.
func TestRestartIsWaitedFor(t *testing.T) {
	for _, text := range guestConditions {
		condition, err := Parse(text, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Now(t.Context(), &fake{states: []State{asked()}}, "ns", "vm", condition); !errors.Is(err,
			action.ErrTimeout) {
			t.Errorf("%s is met by a guest that is to be restarted: %v", text, err)
		}
		if _, err := Now(t.Context(), &fake{states: []State{running()}}, "ns", "vm", condition); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range guestConditions[:6] {
		synctest.Test(t, func(t *testing.T) {
			condition, err := Parse(text, false)
			if err != nil {
				t.Fatal(err)
			}
			vms, vmis := watch.NewFake(), watch.NewFake()
			api := &fake{states: []State{asked()}, watches: func(resource string) (watch.Interface, error) {
				if resource == client.VMIs {
					return vmis, nil
				}
				return vms, nil
			}}
			go func() {
				vms.Modify(running().VM) // the instance that is watched is still the former
				fresh := running().VMI
				fresh.UID = "two"
				ending := running().VMI
				now := metav1.Now()
				ending.DeletionTimestamp = &now
				vmis.Modify(ending)
				vmis.Delete(ending)
				starting := running().VMI
				starting.UID, starting.Status = "two", v1.VirtualMachineInstanceStatus{Phase: v1.Scheduling}
				vmis.Add(starting) // the VM's conditions are of before
				vmis.Modify(fresh)
			}()
			state, err := Until(t.Context(), api, "ns", "vm", condition)
			if err != nil || state.VMI == nil || state.VMI.UID != "two" || state.VMI.Status.Phase != v1.Running {
				t.Errorf("%s: %+v, %v", text, state.VMI, err)
			}
		})
	}
}
