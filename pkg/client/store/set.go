package store

import (
	"fmt"
	"time"

	"github.com/virtkit/virtkit/pkg/vm/pools"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
)

// Resources of sets.
const (
	Pools       = "virtualmachinepools"
	ReplicaSets = "virtualmachineinstancereplicasets"
)

// Set is a VirtualMachinePool or a VirtualMachineInstanceReplicaSet.
type Set struct {
	Namespace, Name string
	// Resource is the API's plural: Pools or ReplicaSets. Kind is the kind.
	Resource, Kind string
	UID            types.UID
	Created        time.Time
	Labels         map[string]string
	// Deleting is whether it is on its way out.
	Deleting bool
	// Desired, Current and Ready are numbers of machines.
	Desired, Current, Ready int32
	// Paused says that it is asked to make and remove nothing.
	Paused bool
	// KeepsExcess is the strategy by which a pool deletes no machine when there are too many (pools.KeepsExcess).
	KeepsExcess string
	// Failure is what the controller says why it could not make or remove one; empty when it could.
	Failure    string
	Conditions []Condition
	// Spec is what else it asks for, each as a name and a value.
	Spec [][2]string
}

// Condition is one of a set's.
type Condition struct {
	Type            string
	Status          corev1.ConditionStatus
	Since           time.Time
	Reason, Message string
}

// Key returns the resource, with the namespace, and the name.
func (s *Set) Key() Key { return Key{Namespace: s.Resource + "/" + s.Namespace, Name: s.Name} }

// Short returns the kind's short name.
func (s *Set) Short() string {
	if s.Resource == Pools {
		return "vmpool"
	}
	return "vmirs"
}

// OfReplicaSet makes the row of a replica set.
func OfReplicaSet(o *v1.VirtualMachineInstanceReplicaSet) *Set {
	s := set(ReplicaSets, "VirtualMachineInstanceReplicaSet", &o.ObjectMeta, o.Spec.Replicas, o.Spec.Selector)
	s.Current, s.Ready, s.Paused = o.Status.Replicas, o.Status.ReadyReplicas, o.Spec.Paused
	for _, c := range o.Status.Conditions {
		s.condition(string(c.Type), c.Status, c.LastTransitionTime, c.Reason, c.Message)
	}
	if t := o.Spec.Template; t != nil {
		s.domain(&t.Spec.Domain)
	}
	return s
}

// OfPool makes the row of a pool.
func OfPool(o *poolv1beta1.VirtualMachinePool) *Set {
	s := set(Pools, poolv1beta1.VirtualMachinePoolKind, &o.ObjectMeta, o.Spec.Replicas, o.Spec.Selector)
	s.Current, s.Ready, s.Paused = o.Status.Replicas, o.Status.ReadyReplicas, o.Spec.Paused
	for _, c := range o.Status.Conditions {
		s.condition(string(c.Type), c.Status, c.LastTransitionTime, c.Reason, c.Message)
	}
	if t := o.Spec.VirtualMachineTemplate; t != nil {
		if strategy, err := (&v1.VirtualMachine{Spec: t.Spec}).RunStrategy(); err == nil {
			s.say("Run strategy", string(strategy))
		}
		if t.Spec.Instancetype != nil {
			s.say("Instance type", t.Spec.Instancetype.Name)
		} else if t.Spec.Template != nil {
			s.domain(&t.Spec.Template.Spec.Domain)
		}
		if t.Spec.Preference != nil {
			s.say("Preference", t.Spec.Preference.Name)
		}
	}
	if m := o.Spec.MaxUnavailable; m != nil {
		s.say("Unavailable", "at most "+m.String()+" during an update")
	}
	s.say("Update", updating(o.Spec.UpdateStrategy))
	s.KeepsExcess = pools.KeepsExcess(o.Spec.ScaleInStrategy)
	s.say("Scale in", scalingIn(o.Spec.ScaleInStrategy))
	if h := o.Spec.Autohealing; h != nil {
		text := "on"
		if n := h.StartUpFailureThreshold; n != nil {
			text = fmt.Sprintf("after %d failed starts", *n)
		}
		s.say("Autohealing", text)
	}
	return s
}

func set(resource, kind string, m *metav1.ObjectMeta, replicas *int32, selector *metav1.LabelSelector) *Set {
	s := &Set{
		Namespace: m.Namespace, Name: m.Name, Resource: resource, Kind: kind, UID: m.UID,
		Created: m.CreationTimestamp.Time, Labels: m.Labels,
		Deleting: m.DeletionTimestamp != nil, Desired: 1,
	}
	if replicas != nil {
		s.Desired = *replicas
	}
	if selector != nil {
		s.say("Selector", metav1.FormatLabelSelector(selector))
	}
	return s
}

func (s *Set) say(name, value string) {
	if value != "" {
		s.Spec = append(s.Spec, [2]string{name, value})
	}
}

// domain adds how large a machine is.
func (s *Set) domain(d *v1.DomainSpec) {
	cpus, memory := Size(d)
	text := fmt.Sprintf("%d CPUs", cpus)
	if cpus == 1 {
		text = "1 CPU"
	}
	if !memory.IsZero() {
		text += ", " + memory.String()
	}
	s.say("Each", text)
}

func (s *Set) condition(kind string, status corev1.ConditionStatus, since metav1.Time, reason, message string) {
	s.Conditions = append(s.Conditions, Condition{kind, status, since.Time, reason, message})
	if kind == string(poolv1beta1.VirtualMachinePoolReplicaFailure) && status == corev1.ConditionTrue {
		s.Failure = reason + ": " + message
	}
}

func updating(u *poolv1beta1.VirtualMachinePoolUpdateStrategy) string {
	switch {
	case u == nil:
		return ""
	case u.Unmanaged != nil:
		return "unmanaged"
	case u.Opportunistic != nil:
		return "opportunistic"
	case u.Proactive != nil:
		return "proactive" + order(u.Proactive.SelectionPolicy)
	}
	return ""
}

func scalingIn(s *poolv1beta1.VirtualMachinePoolScaleInStrategy) string {
	state := func(p *poolv1beta1.StatePreservation) string {
		if p == nil {
			return ""
		}
		return ", state " + string(*p)
	}
	switch {
	case s == nil:
		return ""
	case s.Unmanaged != nil:
		return "unmanaged"
	case s.Opportunistic != nil:
		return "opportunistic" + state(s.Opportunistic.StatePreservation)
	case s.Proactive != nil:
		return "proactive" + order(s.Proactive.SelectionPolicy) + state(s.Proactive.StatePreservation)
	}
	return ""
}

// order returns which machines are taken first.
func order(p *poolv1beta1.VirtualMachinePoolSelectionPolicy) string {
	if p == nil || p.SortPolicy == nil {
		return ""
	}
	return ", order " + string(*p.SortPolicy)
}
