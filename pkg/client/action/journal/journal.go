// Package journal keeps what verbs that change the cluster were asked from this account, so that one can be taken back.
// It is a file of JSON lines for its owner alone; Append adds an entry, Last and Find return the one that an undo is
// about, and Plan, which is pure, says for each of its machines what takes the verb back, or why nothing does.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/part"
)

// The journal is cut to its newest entries when it is larger than maxSize, bytes: to half of that, or to one.
const maxSize = 1 << 20

// Entry is one verb that was asked.
type Entry struct {
	// ID is different for each entry: the time in nanoseconds.
	ID string `json:"id"`
	// Time is when it was asked.
	Time time.Time `json:"time"`
	// Server is the cluster, by the URL of its API server, and Context the kubeconfig's name for it.
	Server  string `json:"server"`
	Context string `json:"context,omitempty"`
	// Verb is the verb as on the command line.
	Verb lifecycle.Verb `json:"verb"`
	// Machines are those that it was asked of, and that agreed; none of a verb that is of other objects, or that did
	// not come to its end.
	Machines []Machine `json:"machines"`
	// Arguments are what the command line named, where there are no machines.
	Arguments []string `json:"arguments,omitempty"`
	// Undoes is the ID of the entry that this one takes back; empty for all that is no undo.
	Undoes string `json:"undoes,omitempty"`
}

// Machine is one machine as it was before.
type Machine struct {
	// Namespace and Name are the machine's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Instance says that the VirtualMachineInstance was named, not the VirtualMachine.
	Instance bool `json:"instance,omitempty"`
	// RenamedTo is the name that Rename gave it.
	RenamedTo string `json:"renamedTo,omitempty"`
	// UID is that of the VirtualMachine, InstanceUID that of its instance; the one that mattered is there.
	// Of Rename it is that of the VirtualMachine that has the new name.
	UID         types.UID `json:"uid,omitempty"`
	InstanceUID types.UID `json:"instanceUID,omitempty"`
	// Restore is the VirtualMachineRestore that Restore and RestoreKeep made.
	Restore string `json:"restore,omitempty"`
	// Before is the run strategy that the VirtualMachine had.
	Before v1.VirtualMachineRunStrategy `json:"runStrategy,omitempty"`
}

// Target returns the machine as a verb is asked of it, which spares another that has its name by now.
func (m Machine) Target() lifecycle.Target {
	t := lifecycle.Target{Namespace: m.Namespace, Name: m.Name, Instance: m.Instance, UID: m.UID}
	if m.Instance {
		t.UID = m.InstanceUID
	}
	return t
}

// Report is what `undo --list -o json` prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Entries are the verbs of one cluster, the newest first.
	Entries []Listed `json:"entries"`
}

// RowLists returns the key of the entries.
func (r *Report) RowLists() []string { return []string{"entries"} }

// Listed is an entry and what became of it.
type Listed struct {
	Entry `json:",inline"`
	// Undone is whether it has been taken back.
	Undone bool `json:"undone,omitempty"`
	// Irreversible is why it cannot be taken back, empty when it can be.
	Irreversible string `json:"irreversible,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Entries = append([]Listed(nil), r.Entries...)
	return &out
}

// List returns the report of a cluster's entries.
func List(entries []Entry, server string) *Report {
	out := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "JournalReport"}, Entries: []Listed{},
	}
	undone := map[string]bool{}
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		if e.Server != server {
			continue
		}
		undone[e.Undoes] = true
		out.Entries = append(out.Entries, Listed{Entry: e, Undone: undone[e.ID], Irreversible: e.Irreversible()})
	}
	return out
}

// Last returns the entry of a cluster that an undo is about: the newest that is not an undo and has not been undone.
func Last(entries []Entry, server string) (Entry, bool) {
	for _, l := range List(entries, server).Entries {
		if l.Undoes == "" && !l.Undone {
			return l.Entry, true
		}
	}
	return Entry{}, false
}

// RenamedTo returns the name that a machine of an entry has by now, as far as the journal knows of renames after the
// entry; empty where it knows of none.
func RenamedTo(entries []Entry, e Entry, m Machine) string {
	name, renamed, later := m.Name, "", false
	if m.RenamedTo != "" {
		name = m.RenamedTo
	}
	for _, next := range entries {
		if later && next.Server == e.Server && next.Verb == lifecycle.Rename {
			for _, other := range next.Machines {
				if other.Namespace == m.Namespace && other.Name == name && other.RenamedTo != "" {
					name, renamed = other.RenamedTo, other.RenamedTo
					break
				}
			}
		}
		later = later || next.ID == e.ID
	}
	return renamed
}

// Find returns the entry of a cluster with an ID.
func Find(entries []Entry, server, id string) (Listed, bool) {
	for _, l := range List(entries, server).Entries {
		if l.ID == id {
			return l, true
		}
	}
	return Listed{}, false
}

// File is the journal at a path.
type File struct{ Path string }

// Append adds an entry, with an ID made of its time.
func (f File) Append(e Entry) error {
	e.ID = fmt.Sprint(e.Time.UnixNano())
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode a journal entry: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return fmt.Errorf("make the journal's directory: %w", err)
	}
	if err := f.cut(); err != nil {
		return err
	}
	file, err := os.OpenFile(f.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	// One write, so that entries of programs that run at the same time do not mix.
	_, err = file.Write(append(line, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

// Read returns the entries, the oldest first. What is no entry, such as half a line that a crash has left, is left out.
func (f File) Read() ([]Entry, error) {
	data, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	var entries []Entry
	for line := range bytes.Lines(data) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && e.ID != "" {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// cut drops old entries of a journal that has grown too large. One that another program adds at that moment is lost,
// which costs no more than that it cannot be undone.
func (f File) cut() error {
	info, err := os.Stat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the journal: %w", err)
	}
	if info.Size() <= maxSize {
		return nil
	}
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	path, err := part.Target(f.Path)
	if err != nil {
		return fmt.Errorf("shorten the journal: %w", err)
	}
	short := path + ".new"
	if err := os.WriteFile(short, newest(data, maxSize/2), 0o600); err != nil {
		return fmt.Errorf("shorten the journal: %w", err)
	}
	if err := os.Rename(short, path); err != nil {
		return fmt.Errorf("shorten the journal: %w", err)
	}
	return nil
}

// newest returns the last lines that fit into most bytes, and at least the last one.
func newest(data []byte, most int) []byte {
	data = bytes.TrimSuffix(data, []byte("\n"))
	from := max(0, len(data)-most)
	if next := bytes.IndexByte(data[from:], '\n'); from > 0 && next >= 0 {
		from += next + 1
	} else if from > 0 {
		from = bytes.LastIndexByte(data, '\n') + 1
	}
	return append(data[from:len(data):len(data)], '\n')
}
