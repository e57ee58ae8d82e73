package virtapi

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

const (
	snapshotPath = "/validate/virtualmachinesnapshots"
	restoresPath = "/validate/virtualmachinerestores"
	clonesPath   = "/validate/virtualmachineclones"
)

func restoreWith(more string) string {
	return `{metadata: {name: r, namespace: default}, spec: {target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm}, virtualMachineSnapshotName: s` + more + `}}`
}

func annotated(annotation, more string) string {
	return strings.Replace(restoreWith(more), "name: r,", "name: r, annotations: {"+annotation+"},", 1)
}

func cloneWith(more string) string {
	return `{metadata: {name: c}, spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm}` + more + `}}`
}

// keeping is a clone that keeps parts of its source's identity.
func keeping(parts, more string) string {
	return strings.Replace(cloneWith(more), "name: c",
		`name: c, annotations: {virtkit.io/keep-identity: "`+parts+`"}`, 1)
}

func heldMachine(status, strategy string) string {
	return strings.Replace(goodMachine, "runStrategy: Always", "runStrategy: "+strategy, 1) + "status: {" + status +
		"}\n"
}

// resuming is an object with memory to go on from.
func resuming(object, mark string) string {
	return strings.Replace(object, "metadata: {", `metadata: {annotations: {virtkit.io/resume-memory: `+mark+`}, `, 1)
}

// pending is the mark of memory that the next start goes on from.
const pending = `'{"claim":"m","restore":"r"}'`

func larger(machine string) string { return strings.Replace(machine, "guest: 1Gi", "guest: 2Gi", 1) }

func typed(machine string) string {
	return strings.Replace(machine, "runStrategy:", "instancetype: {name: small}\n  runStrategy:", 1)
}

func TestDefaultSnapshot(t *testing.T) {
	const finalizer = `"snapshot.kubevirt.io/vmsnapshot-protection"`
	for name, tc := range map[string]struct{ metadata, want string }{
		"new": {`{"name": "s"}`, `[{"op":"add","path":"/metadata/finalizers","value":[` + finalizer + `]}]`},
		"with another": {
			`{"finalizers": ["a/b"]}`,
			`[{"op":"replace","path":"/metadata/finalizers","value":["a/b",` + finalizer + `]}]`,
		},
		"with it already": {`{"finalizers": [` + finalizer + `]}`, ""},
		"carried":         {`{"annotations": {"virtkit.io/carried-from": "c"}}`, ""},
		"not readable":    {`7`, ""},
	} {
		request := &admissionv1.AdmissionRequest{Operation: admissionv1.Create}
		request.Object.Raw = []byte(`{"metadata": ` + tc.metadata + `, "spec": {}}`)
		answer, err := (&admission{}).paths()["/mutate/virtualmachinesnapshots"](t.Context(), request)
		if err != nil || !answer.Allowed || string(answer.Patch) != tc.want {
			t.Errorf("%s: %s, %v", name, answer.Patch, err)
		}
	}
}

func TestValidateSnapshots(t *testing.T) {
	const snapshot = `{metadata: {name: s}, spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm}}}`
	controller := "system:serviceaccount:kubevirt:virt-controller"
	for name, tc := range map[string]struct{ path, user, object, old, want string }{
		"snapshot": {snapshotPath, "", snapshot, "", ""},
		"snapshot of no group": {
			snapshotPath, "", `{spec: {source: {kind: VirtualMachine, name: vm}}}`, "",
			"spec.source.apiGroup: missing apiGroup",
		},
		"snapshot of another group": {
			snapshotPath, "", strings.Replace(snapshot, "kubevirt.io", "apps", 1), "",
			"spec.source.apiGroup: invalid apiGroup",
		},
		"snapshot of another kind": {
			snapshotPath, "", strings.Replace(snapshot, "VirtualMachine", "Pod", 1), "",
			"spec.source.kind: invalid kind",
		},
		"snapshot changed": {
			snapshotPath, "", snapshot, strings.Replace(snapshot, "name: vm", "name: vn", 1),
			"spec: spec in immutable after creation",
		},
		"snapshot labelled": {
			snapshotPath, "", snapshot, strings.Replace(snapshot, "name: s", "name: s, labels: {a: b}", 1), "",
		},

		"restore": {
			restoresPath, "",
			restoreWith(
				`, patches: ['{"op":"replace","path":"/spec/template/spec/domain/devices/interfaces/0/macAddress","value":"02:00:00:00:00:01"}']`),
			"", "",
		},
		"restore of no kind": {
			restoresPath, "", strings.Replace(restoreWith(""), "kind: VirtualMachine", "kind: Pod", 1), "",
			"spec.target.kind: invalid kind",
		},
		"restore changed": {
			restoresPath, "", restoreWith(""), restoreWith(", volumeRestorePolicy: InPlace"),
			"spec: spec in immutable after creation",
		},
		"restore to a name": {
			restoresPath, "", restoreWith(`, patches: ['{"op":"replace","path":"/metadata/name","value":"x"}']`), "",
			"spec.patches: patching is valid only for elements under /spec/ only",
		},
		"restore from a name": {
			restoresPath, "", restoreWith(`, patches: ['{"op":"move","path":"/spec/x","from":"/metadata/name"}']`), "",
			"spec.patches: patching is valid only",
		},
		"restore with a list": {
			restoresPath, "", restoreWith(`, patches: ['[]']`), "", "spec.patches: patch format is not valid",
		},
		"restore in progress": {
			restoresPath, "", strings.Replace(restoreWith(""), "name: vm", "name: busy", 1), "",
			`spec.target: VirtualMachineRestore "first" in progress`,
		},
		"restore with state": {
			restoresPath, "", strings.Replace(restoreWith(""), "SnapshotName: s", "SnapshotName: secure", 1), "",
			"spec: Restore to a different VM is not supported",
		},
		"restore with state that the preference asked for": {
			restoresPath, "", strings.Replace(restoreWith(""), "SnapshotName: s", "SnapshotName: preferred", 1), "",
			"spec: Restore to a different VM is not supported",
		},
		"restore of the VM with state": {
			restoresPath, "",
			strings.NewReplacer("SnapshotName: s", "SnapshotName: secure", "name: vm",
				"name: safe").Replace(restoreWith("")),
			"", "",
		},
		"policies": {
			restoresPath, "",
			restoreWith(", volumeRestorePolicy: A, volumeOwnershipPolicy: B, targetReadinessPolicy: C"), "",
			`spec.volumeRestorePolicy: volume restore policy "A" doesn't exist; spec.volumeOwnershipPolicy: volume ownership policy "B" doesn't exist; spec.targetReadinessPolicy`,
		},
		"overrides": {restoresPath, "", restoreWith(", volumeRestoreOverrides: [{}]"), "", "spec.volumeRestoreOverrides[0].volumeName: must provide a volume name; spec.volumeRestoreOverrides[0]: must provide at least one overriden field"}, //nolint:misspell // KubeVirt's text

		"restore that keeps": {
			restoresPath, "", annotated(`restore.virtkit.io/keep-replaced: "true"`, ""), "", "",
		},
		"restore that takes back": {restoresPath, "", annotated("restore.virtkit.io/undo: first", ""), "", ""},
		"restore that keeps a bit": {
			restoresPath, "", annotated("restore.virtkit.io/keep-replaced: some", ""), "",
			`metadata.annotations[restore.virtkit.io/keep-replaced]: must be "true" or "false"`,
		},
		"restore that takes back what": {
			restoresPath, "", annotated("restore.virtkit.io/undo: A/B", ""), "",
			`metadata.annotations[restore.virtkit.io/undo]: must be the name`,
		},
		"restore that keeps in place": {
			restoresPath, "", annotated(`restore.virtkit.io/keep-replaced: "true"`, ", volumeRestorePolicy: InPlace"),
			"", "spec.volumeRestorePolicy: the new claims have the names",
		},
		"restore that takes back later": {
			restoresPath, "", annotated("restore.virtkit.io/undo: first", ""), restoreWith(""),
			"metadata.annotations[restore.virtkit.io/undo]: cannot be changed",
		},
		"restore that does not keep now": {
			restoresPath, "", restoreWith(""), annotated(`restore.virtkit.io/keep-replaced: "true"`, ""),
			"metadata.annotations[restore.virtkit.io/keep-replaced]: cannot be changed",
		},

		"clone": {
			clonesPath, "",
			cloneWith(
				`, labelFilters: ["*", "!a*"], newMacAddresses: {default: "02:00:00:00:00:01"}, volumeNamePolicy: PrefixTargetName`),
			"", "",
		},
		"clone of nothing": {
			clonesPath, "", `{spec: {target: {kind: Pod}}}`, "",
			"spec.Target.Kind: Target kind is not supported; spec.Source: Source cannot be nil",
		},
		"clone of a pod": {
			clonesPath, "", `{spec: {source: {kind: Pod}}}`, "",
			"spec.Source.Kind: Source kind is not supported; spec.Source.APIGroup: Source's APIGroup cannot be " +
				"empty; spec.Source.Name",
		},
		"clone to no name": {
			clonesPath, "", cloneWith(", target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: Bad_}"), "",
			"spec.target.name: a lowercase RFC 1123 subdomain",
		},
		"clone to itself": {
			clonesPath, "", cloneWith(", target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm}"), "",
			"spec.target.name: Target name cannot be equal to source name when both are VirtualMachines",
		},
		"clone to a name in use": {
			clonesPath, "", cloneWith(", target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: there}"), "",
			"spec.target.name: VM default/there exists; give the clone another name",
		},
		"clone without the state of its source's TPM": {
			clonesPath, "", strings.Replace(cloneWith(""), "name: vm", "name: safe", 1), "",
			"spec.source: VM safe has a persistent TPM or EFI, whose state goes by the VM's name",
		},
		"clone without the state that its source's preference asks for": {
			clonesPath, "", strings.Replace(cloneWith(""), "name: vm", "name: preferring", 1), "",
			"spec.source: VM preferring has a persistent TPM or EFI, whose state goes by the VM's name",
		},
		"clone labelled when it is done": {
			clonesPath, "",
			strings.Replace(cloneWith(", target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: there}"),
				"name: c", "name: c, labels: {a: b}", 1),
			cloneWith(", target: {apiGroup: kubevirt.io, kind: VirtualMachine, name: there}"), "",
		},
		"clone with filters": {
			clonesPath, "", cloneWith(`, labelFilters: ["!", "a!b", "a*b", ""]`), "",
			"spec.labels: a negation character is not a valid filter; spec.labels: spec.labels filter a!b is invalid",
		},
		"clone with a MAC": {
			clonesPath, "", cloneWith(", newMacAddresses: {default: x}"), "",
			"spec.newMacAddresses.default: interface default has malformed MAC address (x).",
		},
		"clone with a patch": {
			clonesPath, "", cloneWith(", patches: [x]"), "", "spec.patches[0]: patch is not valid JSON (x)",
		},
		"clone that keeps": {
			clonesPath, "", keeping("mac, uuid,serial,instance-id,hostname", ""), "", "",
		},
		"clone that keeps what there is not": {
			clonesPath, "", keeping("name", ""), "",
			`metadata.annotations[virtkit.io/keep-identity]: "name" is not one of mac`,
		},
		"clone that keeps a serial and has another": {
			clonesPath, "", keeping("serial", ", newSMBiosSerial: s"), "",
			"metadata.annotations[virtkit.io/keep-identity]: the serial number is to be kept, and there is a new one",
		},
		"clone that keeps later": {
			clonesPath, "", keeping("mac", ""), cloneWith(""),
			"metadata.annotations[virtkit.io/keep-identity]: cannot be changed after creation; make another clone",
		},
		"clone with names": {
			clonesPath, "", cloneWith(", volumeNamePolicy: x"), "",
			`spec.volumeNamePolicy: VolumeNamePolicy "x" is not supported`,
		},

		"start while it is restored": {
			"/validate/virtualmachines", "", heldMachine("restoreInProgress: r", "Always"),
			heldMachine("restoreInProgress: r", "Halted"), `spec: Cannot start VM until restore "r" completes`,
		},
		"the restore itself": {
			"/validate/virtualmachines", controller, heldMachine("restoreInProgress: r", "Manual"),
			heldMachine("restoreInProgress: r", "Halted"), "",
		},
		"memory to resume, from a user": {
			"/validate/virtualmachines", "", resuming(goodMachine, "a"), "",
			`metadata.annotations[virtkit.io/resume-memory]: virt-controller writes it`,
		},
		"memory to resume, changed by a user": {
			"/validate/virtualmachines", "", resuming(goodMachine, "b"), resuming(goodMachine, "a"),
			`metadata.annotations[virtkit.io/resume-memory]: virt-controller writes it`,
		},
		"memory to resume, from virt-controller": {
			"/validate/virtualmachines", controller, resuming(goodMachine, "a"), goodMachine, "",
		},
		"memory to resume, there already": {
			"/validate/virtualmachines", "", resuming(goodMachine, "a"), resuming(goodMachine, "a"), "",
		},
		"more memory for a guest that resumes": {
			"/validate/virtualmachines", "", resuming(larger(goodMachine), pending), resuming(goodMachine, pending),
			`spec.template.spec.domain: the next start goes on from the guest's memory`,
		},
		"another instance type for a guest that resumes": {
			"/validate/virtualmachines", "", resuming(typed(goodMachine), pending), resuming(goodMachine, pending),
			`spec.instancetype: the next start goes on from the guest's memory`,
		},
		"more memory for a guest that is to boot": {
			"/validate/virtualmachines", "", larger(goodMachine), resuming(goodMachine, pending), "",
		},
		"more memory for a guest that resumes, by virt-controller": {
			"/validate/virtualmachines", controller, resuming(larger(goodMachine), pending),
			resuming(goodMachine, pending), "",
		},
		"start of a guest that resumes": {
			"/validate/virtualmachines", "", resuming(strings.Replace(goodMachine, "Always", "Halted", 1), pending),
			resuming(goodMachine, pending), "",
		},
		"memory to resume, taken away": {"/validate/virtualmachines", "", goodMachine, resuming(goodMachine, "a"), ""},
		"an instance with memory to resume": {
			"/validate/virtualmachineinstances", "", resuming(goodInstance, "a"), "",
			`metadata.annotations[virtkit.io/resume-memory]: virt-controller writes it`,
		},
		"stop while it is restored": {
			"/validate/virtualmachines", "", heldMachine("restoreInProgress: r", "Halted"),
			heldMachine("restoreInProgress: r", "Manual"), "",
		},
		"stop while it is snapshotted": {
			"/validate/virtualmachines", "", heldMachine("snapshotInProgress: s", "Halted"),
			heldMachine("snapshotInProgress: s", "Always"),
			`spec: Cannot update vm running state until snapshot "s" completes`,
		},
		"disks while it is snapshotted": {
			"/validate/virtualmachines", "",
			strings.Replace(heldMachine("snapshotInProgress: s", "Always"), "image: x", "image: other", 1),
			heldMachine("snapshotInProgress: s", "Always"),
			`spec: Cannot update vm disks or volumes until snapshot "s" completes`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t, tc.path, tc.user, tc.object, tc.old)
			switch {
			case tc.want == "" && !got.Allowed:
				t.Errorf("denied: %s", got.Result.Message)
			case tc.want != "" && (got.Allowed || !strings.HasPrefix(got.Result.Message, tc.want)):
				t.Errorf("allowed %v: %+v", got.Allowed, got.Result)
			}
		})
	}
}

// Who takes a snapshot of a VM, or clones it, is told which of its volumes are left out, or waited for, and why.
func TestWarnsOfWhatIsLeftOut(t *testing.T) {
	const snapshot = `{metadata: {name: s},
  spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: leaving}}}`
	clone := strings.Replace(cloneWith(""), "name: vm", "name: leaving", 1)
	const want = "volumes of VM default/leaving that cannot be snapshotted: a (no class); they are left out"
	const waits = "volumes of VM default/new that cannot be snapshotted yet: a (PVC a is bound when the VM is " +
		"started for the first time); the snapshot waits for that until its deadline"
	of := func(object, vm string) string { return strings.Replace(object, "leaving", vm, 1) }
	for name, tc := range map[string]struct{ path, object, old, want string }{
		"snapshot":                   {snapshotPath, snapshot, "", want},
		"clone":                      {clonesPath, clone, "", want},
		"snapshot of one never run":  {snapshotPath, of(snapshot, "new"), "", waits},
		"clone of one never run":     {clonesPath, of(clone, "new"), "", waits},
		"snapshot of another":        {snapshotPath, of(snapshot, "safe"), "", ""},
		"snapshot of what is not":    {snapshotPath, of(snapshot, "none"), "", ""},
		"a snapshot that is changed": {snapshotPath, snapshot, snapshot, ""},
		"a clone that is changed":    {clonesPath, clone, clone, ""},
	} {
		got := ask(t, tc.path, "", tc.object, tc.old)
		if said := strings.Join(got.Warnings, "\n"); !got.Allowed || said != tc.want {
			t.Errorf("%s: allowed %t, warnings %q", name, got.Allowed, got.Warnings)
		}
	}
}

// KubeVirt's gate Snapshot closes what makes snapshots, restores and clones; what is there already may be changed.
func TestSnapshotsOff(t *testing.T) {
	defaults := hooks.defaults
	hooks.defaults = func() surface.Defaults { return surface.Defaults{Allowed: surface.Allowed{NoSnapshots: true}} }
	t.Cleanup(func() { hooks.defaults = defaults })
	const snapshot = `{metadata: {name: s}, spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm}}}`
	for path, tc := range map[string]struct{ object, want string }{
		snapshotPath: {snapshot, "snapshot feature gate not enabled"},
		restoresPath: {restoreWith(""), "snapshot feature gate not enabled"},
		clonesPath:   {cloneWith(""), "snapshot feature gate is not enabled"},
	} {
		if got := ask(t, path, "", tc.object, ""); got.Allowed || got.Result.Message != tc.want ||
			got.Result.Code != http.StatusBadRequest || got.Result.Reason != names.ReasonGateClosed ||
			!apierrors.IsBadRequest(&apierrors.StatusError{ErrStatus: *got.Result}) { // as KubeVirt's clients see it
			t.Errorf("%s: allowed %t, %+v", path, got.Allowed, got.Result)
		}
		if got := ask(t, path, "", tc.object, tc.object); !got.Allowed {
			t.Errorf("%s: a change is refused: %+v", path, got.Result)
		}
	}
}
