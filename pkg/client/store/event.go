package store

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Event is one thing that happened, or several alike.
type Event struct {
	Namespace, Name string
	// Kind and Object are what it happened to.
	Kind, Object string
	Type, Reason string
	Message      string
	Source       string
	// First and Last are when it happened, Count how often.
	First, Last time.Time
	Count       int32
}

// Key returns the event's namespace and name.
func (e *Event) Key() Key { return Key{Namespace: e.Namespace, Name: e.Name} }

// OfEvent makes an event's row, of both of the API's ways to write one.
func OfEvent(e *corev1.Event) *Event {
	row := &Event{
		Namespace: e.Namespace, Name: e.Name, Kind: e.InvolvedObject.Kind, Object: e.InvolvedObject.Name,
		Type: e.Type, Reason: e.Reason, Message: e.Message, Source: e.Source.Component,
		First: e.FirstTimestamp.Time, Last: e.LastTimestamp.Time, Count: max(e.Count, 1),
	}
	if row.Source == "" {
		row.Source = e.ReportingController
	}
	if row.First.IsZero() {
		row.First = e.EventTime.Time
	}
	if row.Last.IsZero() {
		row.Last = row.First
	}
	if e.Series != nil {
		row.Count, row.Last = e.Series.Count, e.Series.LastObservedTime.Time
	}
	if row.Last.IsZero() {
		row.First, row.Last = e.CreationTimestamp.Time, e.CreationTimestamp.Time
	}
	return row
}
