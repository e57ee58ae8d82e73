package journal

import (
	"fmt"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
)

// irreversible has, of each verb that changes the cluster and cannot be taken back, why. Those that are no lifecycle
// verbs are the words of the command line.
var irreversible = map[lifecycle.Verb]string{
	lifecycle.Restore:        "the spec that it replaced was not kept; restore with --keep to be able to take it back",
	lifecycle.Restart:        booted,
	lifecycle.Reset:          booted,
	lifecycle.SoftReboot:     booted,
	lifecycle.Migrate:        "the guest is on another node, or on its way; migrate it again",
	lifecycle.MigrateCancel:  "a migration that is cancelled does not go on; migrate again",
	lifecycle.EvacuateCancel: "only a drain of the node marks the guest again",
	lifecycle.Delete:         "what is deleted is gone; create it again from its manifest",
	lifecycle.Set:            notKept,
	lifecycle.Edit:           notKept,
	lifecycle.AddVolume:      "removevolume takes the volume out",
	lifecycle.RemoveVolume:   "addvolume plugs the volume in again",

	"adm log-verbosity":          notKept,
	"clone":                      made,
	"create clone":               made,
	"create instancetype":        made,
	"create preference":          made,
	"create vm":                  made,
	"credentials add-ssh-key":    "credentials remove-ssh-key takes the key out",
	"credentials remove-ssh-key": "credentials add-ssh-key puts the key in again",
	"credentials set-password":   notKept,
	"dashboard":                  "it did not come to its end",
	"cordon":                     "kubectl uncordon lets the node have VMs again",
	"uncordon":                   "kubectl cordon keeps VMs from the node again",
	"evacuate": "guests have left the node, or are on their way; evacuate-cancel cancels what has not begun, " +
		"kubectl uncordon lets the node have VMs again",
	"export":               "what it has written is a file; delete that",
	"expose":               "delete the Service that it made",
	"guestfs":              "what it has changed is on the disk; restore a snapshot of it",
	"image add":            "image rm --own removes it again",
	"image import":         "image rm deletes it",
	"image pull":           "image rm deletes it",
	"image rm":             "what is deleted is gone; pull it again",
	"import":               "delete the VM and the claims that it made",
	"image-upload":         "what was on the claim is gone; delete the claim",
	"install":              "uninstall removes what it installed",
	"memory-dump get":      "memory-dump remove takes the claim from the VM",
	"memory-dump remove":   "memory-dump get makes a dump again",
	"memory-dump download": "what it has downloaded is a file; delete that",
	"scale":                "which machines there were is not kept; scale it again",
	"snapshot create":      "snapshot delete deletes it",
	"snapshot delete":      "what is deleted is gone; take another snapshot",
	"snapshot restore":     "it made another VM, or did not come to its end",
	"template create":      made,
	"undo":                 "it did not come to its end",
	"uninstall":            "install installs it again",
	"volume migrate":       "volume migrate --cancel takes it back while disks are copied; then migrate them again",
	"volume resize":        "a volume never shrinks",
	"vmexport create":      "vmexport delete deletes it",
	"vmexport delete":      "what is deleted is gone; make another export",
	"vmexport download":    "what it has downloaded is a file; delete that",
}

const (
	booted  = "the guest has booted anew, what it had in memory is gone"
	notKept = "what it was before is not kept; change it again"
	made    = "delete what it made"
)

// Reverse returns the verb that takes another back, or why there is none.
func Reverse(verb lifecycle.Verb) (lifecycle.Verb, string) {
	switch verb {
	case lifecycle.Start:
		return lifecycle.Stop, ""
	case lifecycle.Stop:
		return lifecycle.Start, ""
	case lifecycle.Pause:
		return lifecycle.Unpause, ""
	case lifecycle.Unpause:
		return lifecycle.Pause, ""
	case lifecycle.Rename, lifecycle.RestoreKeep:
		return verb, ""
	}
	if why := irreversible[verb]; why != "" {
		return "", why
	}
	return "", fmt.Sprintf("%s is a verb that this version does not know", verb)
}

// Irreversible returns why an entry cannot be taken back, whatever its machines are now; empty when it can be.
func (e *Entry) Irreversible() string {
	_, why := Reverse(e.Verb)
	switch {
	case e.Undoes != "":
		return "it is an undo itself"
	case why == "" && len(e.Machines) == 0:
		return "it did not come to its end"
	}
	return why
}

// String returns the verb, and the objects that it was asked of.
func (e *Entry) String() string {
	if of := e.Objects(); of != "" {
		return string(e.Verb) + " of " + of
	}
	return string(e.Verb)
}

// Objects names the machines, or else what the command line named.
func (e *Entry) Objects() string {
	if len(e.Machines) == 0 {
		return strings.Join(e.Arguments, " ")
	}
	out := make([]string, len(e.Machines))
	for i, m := range e.Machines {
		out[i] = m.String()
	}
	return strings.Join(out, ", ")
}

// String names a machine, and what it was renamed to.
func (m Machine) String() string {
	if m.RenamedTo != "" {
		return m.Target().String() + " to " + m.RenamedTo
	}
	return m.Target().String()
}
