package root

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
)

// changeNothing are the verbs that undo need not know of, and why.
var changeNothing = map[string]string{
	"completion": reads, "console": inGuest, "cp": inGuest, "describe": reads, "diff": reads, "doctor": reads,
	"events": reads, "exec": inGuest, "expand": reads, "expect": inGuest, "firewall show": reads,
	"fslist": reads, "guestosinfo": reads,
	"image list": reads, "image show": reads,
	"list": reads, "logs": reads, "objectgraph": reads, "options": reads, "permitted-devices": reads,
	"port-forward": reads, "port-forward list": reads, "port-forward stop": "it ends a process of this machine",
	"scp": inGuest, "snapshot list": reads, "snapshot show": reads, "ssh": inGuest, "template convert": reads,
	"template process": reads, "top": reads, "usbredir": inGuest, "userlist": reads, "version": reads, "vnc": inGuest,
	"vnc screenshot": reads, "wait": reads, "why": reads,
}

const (
	reads   = "it changes nothing in the cluster"
	inGuest = "what it does is in the guest"
)

// TestEveryVerbThatChangesIsKnownToUndo: the journal takes each verb back or says why it cannot, unless it changes
// nothing.
func TestEveryVerbThatChangesIsKnownToUndo(t *testing.T) {
	all := verbs()
	for name, cmd := range all {
		verb := lifecyclecmd.Verb(cmd)
		_, why := journal.Reverse(verb)
		known := !strings.Contains(why, "does not know")
		if known == (changeNothing[name] != "") {
			t.Errorf("virtctl %s (%s) is known to undo: %t, and said to change nothing: %t; give it a reason in "+
				"journal.Reverse, or say here why it needs none", name, verb, known, !known)
		}
	}
	for name := range changeNothing {
		if all[name] == nil {
			t.Errorf("there is no virtctl %s", name)
		}
	}
}

// TestEveryChangeIsJournaled runs every command against a server that counts what changes something: undo knows of the
// verbs that did, and of no other.
func TestEveryChangeIsJournaled(t *testing.T) {
	objects := objectsOf(t)
	var writes atomic.Int64
	kubeconfig := server(t, func(w http.ResponseWriter, r *http.Request) {
		answer := answerTo(objects, r)
		question := strings.Contains(r.URL.Path, "/apis/auth") || strings.Contains(r.URL.Path, "/expand-vm-spec")
		if r.Method != http.MethodGet && answer != nil && !question && !r.URL.Query().Has("dryRun") {
			writes.Add(1)
		}
		answerJSON(t, w, answer)
	})
	dir := t.TempDir()
	manifest := filepath.Join(dir, "manifest.yaml")
	writeFile(t, manifest,
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: demo, "+
			"namespace: default}\nspec: {runStrategy: Halted, template: {spec: {domain: {devices: {}}}}}\n")
	t.Setenv("HOME", dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("KUBE_EDITOR", "sed -i s/^spec:/spec:\\n__running:_true/;s/__/\\x20\\x20/;s/:_true/:\\x20true/")
	changed := 0
	for _, lines := range commandLines {
		for _, line := range lines {
			state := t.TempDir()
			f := cli.NewFactory("virtctl",
				&cli.IOStreams{In: strings.NewReader("print \"x\"\n"), Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}},
				func(name string) string {
					return map[string]string{"KUBECONFIG": kubeconfig, "XDG_STATE_HOME": state, "HOME": dir}[name]
				})
			writes.Store(0)
			ctx, cancel := contextFor(t)
			words := fields(strings.NewReplacer("FILE", manifest, "DIR", dir).Replace(line))
			code := Run(ctx, f, append([]string{"--kubeconfig", kubeconfig}, words...))
			cancel()
			entries, err := journal.File{Path: filepath.Join(state, "virtkit", "journal.jsonl")}.Read()
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if writes.Load() > 0 && !strings.Contains(line, "--dry-run") {
				want = 1
				changed++
			}
			if len(entries) != want {
				t.Errorf("virtctl %s: code %d, %d writes, in the journal %+v", line, code, writes.Load(), entries)
				continue
			}
			for i := range entries {
				if why := entries[i].Irreversible(); strings.Contains(why, "does not know") {
					t.Errorf("virtctl %s: %s", line, why)
				}
			}
		}
	}
	if changed < 25 {
		t.Errorf("only %d lines change something: the test tries nothing", changed)
	}
}
