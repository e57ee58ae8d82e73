package forward

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// Session is what `port-forward -o json` prints, and `port-forward list` of each that runs in the background. Its kind
// is PortForward.
type Session struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the session's ID as its name, the namespace of the machine, and the start as its creation time.
	metav1.ObjectMeta `json:"metadata"`
	// Target is the machine, vm/NAME or vmi/NAME; absent with SOCKS alone.
	Target string `json:"target,omitempty"`
	// Context is the kubeconfig's, absent where there is none.
	Context string `json:"context,omitempty"`
	// PID is the process that forwards.
	PID int `json:"pid"`
	// Ports are the local ports.
	Ports []SessionPort `json:"ports,omitempty"`
	// Socks are the addresses of SOCKS5 ports, each HOST:PORT.
	Socks []string `json:"socks,omitempty"`
	// Connections are those open at the moment; UDP clients count too.
	Connections int `json:"connections"`
	// Log is the file that a session in the background writes its messages to.
	Log string `json:"log,omitempty"`
}

// SessionPort is a local port of a session.
type SessionPort struct {
	// Protocol is tcp or udp.
	Protocol string `json:"protocol"`
	// Address is the local HOST:PORT.
	Address string `json:"address"`
	// LocalPort is the port in Address.
	LocalPort uint16 `json:"localPort"`
	// TargetPort is the guest's.
	TargetPort uint16 `json:"targetPort"`
}

// NewSession returns the report of a session that listens on locals and, for SOCKS5, on the addresses socks.
func NewSession(id, namespace, target string, locals []*Local, socks []string) *Session {
	s := &Session{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "PortForward"},
		ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: namespace},
		Target:     target, Socks: socks,
	}
	for _, l := range locals {
		s.Ports = append(s.Ports,
			SessionPort{Protocol: l.Protocol, Address: l.Address, LocalPort: l.Local, TargetPort: l.Remote})
	}
	return s
}

// DeepCopyObject implements runtime.Object.
func (s *Session) DeepCopyObject() runtime.Object { return s.copy() }

func (s *Session) copy() *Session {
	out := *s
	out.ObjectMeta = *s.DeepCopy()
	out.Ports, out.Socks = slices.Clone(s.Ports), slices.Clone(s.Socks)
	return &out
}

// SessionList is what `port-forward list -o json` prints. Its kind is PortForwardList.
type SessionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	// Items are the sessions, oldest first.
	Items []Session `json:"items"`
}

// NewSessionList returns a list of sessions.
func NewSessionList(sessions []*Session) *SessionList {
	list := &SessionList{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "PortForwardList"},
		Items:    []Session{},
	}
	for _, s := range sessions {
		list.Items = append(list.Items, *s)
	}
	return list
}

// DeepCopyObject implements runtime.Object.
func (l *SessionList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Session, 0, len(l.Items))
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].copy())
	}
	return &out
}
