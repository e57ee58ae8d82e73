package cli

import "strings"

// foreign are verbs of kubectl and of virsh, and what does that here; % is the program.
var foreign = map[string]string{
	"get":      "`% list` lists VMs, and `% list vmi` their instances",
	"ps":       "`% list` lists VMs",
	"status":   "`% list` and `% describe VM` say how VMs are",
	"info":     "`% describe VM` says what there is to know of a VM",
	"show":     "`% describe VM` says what there is to know of a VM",
	"watch":    "`% list --watch` and `% dashboard` follow VMs",
	"run":      "`% create vm --apply` makes a VM and runs it",
	"apply":    "`kubectl apply -f FILE` does that; `% create vm --apply` makes a VM without a file",
	"patch":    "`% set` and `% edit` change a VM; `kubectl patch vm` takes a patch",
	"replace":  "`% set` and `% edit` change a VM; `kubectl replace -f FILE` takes a file",
	"label":    "`kubectl label vm` does that",
	"annotate": "`kubectl annotate vm` does that",
	"attach":   "`% console VM` joins the serial console, and `% addvolume VM` attaches a volume",
	"shell":    "`% ssh VM`, `% exec VM -- COMMAND` and `% console VM` reach the guest",
	"rollout":  "`% restart VM` starts a VM anew",
	"drain":    "`% evacuate NODE` empties a node of its guests, and `kubectl drain` of all",
	"cordon":   "`kubectl cordon NODE` does that, and `% evacuate NODE` does it first",
	"uncordon": "`kubectl uncordon NODE` does that",
	"reboot":   "`% restart VM` starts a VM anew; `% soft-reboot VM` asks the guest to reboot",
	"shutdown": "`% stop VM` shuts a guest down",
	"poweroff": "`% stop VM --force` ends a guest at once",
	"destroy":  "`% stop VM --force` ends a guest at once; `% delete VM` deletes the VM",
	"kill":     "`% stop VM --force` ends a guest at once",
	"suspend":  "`% pause VM` pauses a guest",
	"resume":   "`% unpause VM` lets a paused guest run on",
	"move":     "`% migrate VM` moves a guest to another node; `% rename VM NAME` gives a VM another name",
}

// foreignHint returns what does here what a word of another program does there; empty for a word that is none.
func foreignHint(program, word string) string {
	return strings.ReplaceAll(foreign[strings.ToLower(word)], "% ", program+" ")
}
