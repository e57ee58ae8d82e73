package volumecmd

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// migrated is a run of the verb: what changes before it, and what comes of it.
type migrated struct {
	line   string
	change func(*moving)
	out    string // all of stdout
	errs   string // a part of stderr, or of the error
	made   string // the claims that were made
	patch  string // a part of the one patch; "" is that there is none
	gone   string // the claims that were removed again
	code   int
}

func (m *migrated) run(t *testing.T) {
	t.Helper()
	c := newMoving()
	if m.change != nil {
		m.change(c)
	}
	out, errOut, err := c.run(t, m.line)
	if err != nil {
		errOut += err.Error()
	}
	patch := strings.Join(c.patches, "\n")
	if cli.ExitCode(err) != m.code || out != m.out || !strings.Contains(errOut, m.errs) {
		t.Errorf("code %d\nstdout %s\nstderr %s", cli.ExitCode(err), out, errOut)
	}
	if made := strings.Join(c.made, "; "); made != m.made {
		t.Errorf("claims were made: %s", made)
	}
	if gone := strings.Join(c.deleted, "; "); gone != m.gone {
		t.Errorf("claims were removed: %s", gone)
	}
	if !strings.Contains(patch, m.patch) || (patch == "") != (m.patch == "") || len(c.patches) > 1 {
		t.Errorf("the VM was patched with %s", patch)
	}
}

const (
	oneMade = "data-m1 fast Filesystem [ReadWriteOnce] 2Gi"
	twoMade = "root-m1 fast Filesystem [ReadWriteOnce] 2Gi; " + oneMade
	oneOut  = "volume data of demo: copied from claim data to claim data-m1\n"
	twoOut  = "volume root of demo: copied from claim root to claim root-m1\n" + oneOut
	twoOps  = `{"op":"add","path":"/spec/updateVolumesStrategy","value":"Migration"},` +
		`{"op":"replace","path":"/spec/template/spec/volumes/0/persistentVolumeClaim/claimName","value":"root-m1"},` +
		`{"op":"replace","path":"/spec/template/spec/volumes/1/persistentVolumeClaim/claimName","value":"data-m1"}]`
	guard   = `[{"op":"replace","path":"/metadata/resourceVersion","value":"7"},`
	twoGone = `root-m1{"preconditions":{"uid":"uid-root-m1"}}; data-m1{"preconditions":{"uid":"uid-data-m1"}}`
	shared  = "volume data cannot be copied: its disk is shareable, and another guest may write while it is copied"
)

// sharedData has the guest's disk data on a claim for two nodes, and shareable.
func sharedData(m *moving) {
	yes := true
	m.vmi.Spec.Domain.Devices.Disks[1].Shareable = &yes
	m.vmi.Status.VolumeStatus[1].PersistentVolumeClaimInfo.AccessModes = []corev1.PersistentVolumeAccessMode{
		corev1.ReadWriteMany,
	}
}

func manyRoot(m *moving) {
	m.vmi.Status.VolumeStatus[0].PersistentVolumeClaimInfo.AccessModes = []corev1.PersistentVolumeAccessMode{
		corev1.ReadWriteMany,
	}
}

// underWay has the guest's disk data copied to claim data-m1.
func underWay(m *moving) {
	strategy := v1.UpdateVolumesStrategyMigration
	m.vm.Spec.UpdateVolumesStrategy = &strategy
	m.vm.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "data-m1"
	m.vmi.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "data-m1"
}

// TestMigrate has what is made and changed, and what is said.
func TestMigrate(t *testing.T) {
	for name, m := range map[string]migrated{
		"all": {line: "demo --storage-class fast", out: twoOut, made: twoMade, patch: guard + twoOps},
		"one": {
			line: "demo data --storage-class fast", change: manyRoot, out: oneOut, made: oneMade, patch: "data-m1",
			errs: "note: claim data is kept; delete it once the guest uses the new one: `kubectl delete " +
				"pvc data -n team-a`",
		},
		"as flags say": {
			line: "demo data --storage-class old --volume-mode BLOCK --access-mode ReadWriteMany --claim-name x",
			made: "x old Block [ReadWriteMany] 2Gi", change: manyRoot, patch: `"value":"x"`,
			out: "volume data of demo: copied from claim data to claim x\n",
		},
		"as the class has it": {
			line: "demo data --storage-class fast", out: oneOut, patch: "data-m1",
			made: "data-m1 fast Block [ReadWriteMany] 2Gi",
			change: func(m *moving) {
				manyRoot(m)
				block := corev1.PersistentVolumeBlock
				m.profile = &cdiv1.StorageProfile{}
				m.profile.Status.ClaimPropertySets = []cdiv1.ClaimPropertySet{{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, VolumeMode: &block,
				}}
			},
		},
		"waited for": {
			line: "demo --storage-class fast --wait", change: func(m *moving) { m.moves = true }, made: twoMade,
			out: twoOut + "volume root of demo: the guest uses claim root-m1\n" +
				"volume data of demo: the guest uses claim data-m1\n",
			patch: twoOps, errs: "note: claim data is kept; delete it when you are sure: `kubectl delete pvc data",
		},
		"the old one is deleted": {
			line: "demo data --storage-class fast", out: oneOut, made: oneMade, patch: "data-m1",
			errs: "note: claim data is deleted once the guest uses the new one and nobody else has it",
			change: func(m *moving) {
				manyRoot(m)
				m.vm.Annotations = map[string]string{volumemigration.CopiedClaimsAnnotation: "Delete"}
			},
		},
		"the class may not be read": {
			line: "demo data --storage-class fast", out: oneOut, made: oneMade, patch: "data-m1",
			errs: "note: claim data is kept, unless annotation virtkit.io/copied-claims of class old, which could " +
				"not be read, says Delete; delete it once the guest uses the new one: `kubectl delete pvc data",
			change: func(m *moving) {
				manyRoot(m)
				m.class = apierrors.NewForbidden(storagev1.Resource("storageclasses"), "old", nil)
			},
		},
		"the class may not be read, and the VM keeps": {
			line: "demo data --storage-class fast", out: oneOut, made: oneMade, patch: "data-m1",
			errs: "note: claim data is kept; delete it once",
			change: func(m *moving) {
				manyRoot(m)
				m.vm.Annotations = map[string]string{volumemigration.CopiedClaimsAnnotation: "Keep"}
				m.class = apierrors.NewForbidden(storagev1.Resource("storageclasses"), "old", nil)
			},
		},
		"waited for, in vain": {
			line: "demo --storage-class fast --wait --timeout 10ms", out: twoOut, made: twoMade, patch: twoOps,
			errs: "the copy goes on, and `virtctl volume migrate demo --cancel` takes it back", code: cli.ExitTimeout,
			change: func(m *moving) { m.copies = true },
		},
		"waited for, and cancelled": {
			line: "demo --storage-class fast --wait", out: twoOut, made: twoMade, patch: twoOps, code: 1,
			errs: "the copy was cancelled: VM demo names other claims",
		},
		"dry run": {
			line: "demo --storage-class fast --dry-run", patch: "All" + guard,
			made: "All" + strings.ReplaceAll(twoMade, "; ", "; All"),
			out:  strings.ReplaceAll(twoOut, "\n", " (server dry run)\n"),
		},
		"dry run here": {
			line: "demo --storage-class fast --dry-run=client", out: strings.ReplaceAll(twoOut, "\n", " (dry run)\n"),
		},
		"JSON": {
			line: "demo --storage-class fast -o jsonpath={.state}:{.volumes[*].to.name}", made: twoMade, patch: twoOps,
			out: "Requested:root-m1 data-m1",
		},
		"a DataVolume": {
			line: "demo --storage-class fast", out: twoOut, made: twoMade,
			patch: `{"op":"replace","path":"/spec/template/spec/volumes/0","value":{"name":"root",` +
				`"persistentVolumeClaim":{"claimName":"root-m1"}}},` +
				`{"op":"replace","path":"/spec/template/spec/volumes/1/persistentVolumeClaim/claimName",` +
				`"value":"data-m1"},{"op":"remove","path":"/spec/dataVolumeTemplates/0"}]`,
			errs: "claim root is kept; delete it once the guest uses the new one: `kubectl delete datavolume root",
			change: func(m *moving) {
				source := v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}
				m.vm.Spec.Template.Spec.Volumes[0].VolumeSource = source
				m.vmi.Spec.Volumes[0].VolumeSource = source
				template := v1.DataVolumeTemplateSpec{}
				template.Name = "root"
				m.vm.Spec.DataVolumeTemplates = append(m.vm.Spec.DataVolumeTemplates, template)
			},
		},
		"others change the VM": {
			line: "demo --storage-class fast", out: twoOut, made: twoMade,
			patch:  `[{"op":"replace","path":"/metadata/resourceVersion","value":"700"},` + twoOps,
			change: func(m *moving) { m.conflicts = 2 },
		},
		"what stays is said": {
			line: "demo --storage-class fast", made: "root-m1 fast Filesystem [ReadWriteOnce] 2Gi", patch: "root-m1",
			out:  "volume root of demo: copied from claim root to claim root-m1\n",
			errs: "note: volume data stays where it is: its disk is shareable", change: sharedData,
		},
		"a plan": {
			line: "demo data --storage-class fast --plan", change: manyRoot,
			out: "VOLUME   DISK      FROM   CLASS   SIZE   MODE         ACCESS          TO        CLASS   SIZE   " +
				"MODE         ACCESS\ndata     1.0 GiB   data   old     2Gi    Filesystem   ReadWriteOnce   " +
				"data-m1   fast    2Gi    Filesystem   ReadWriteOnce\n",
		},
		"cancel": {
			line: "demo --cancel", change: underWay,
			patch: `/volumes/1/persistentVolumeClaim/claimName","value":"data"}]`,
			out:   "volume data of demo: on claim data again, not on data-m1\n",
			errs:  "note: claim data-m1 has a part of the data at most; if it is of no use: `kubectl delete pvc",
		},
		"cancel, before the guest has it": {
			line: "demo --cancel", patch: `/volumes/1/persistentVolumeClaim/claimName","value":"data"}]`,
			out: "volume data of demo: on claim data again, not on data-m1\n",
			change: func(m *moving) {
				underWay(m)
				m.vmi.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "data"
			},
		},
		"cancel, after the guest has ended": {
			line: "demo --cancel --dry-run", patch: `All` + guard,
			out: "volume data of demo: on claim data again, not on data-m1 (server dry run)\n",
			change: func(m *moving) {
				underWay(m)
				m.vmi = nil
				m.vm.Status.VolumeUpdateState = unfinished()
			},
		},
	} {
		t.Run(name, m.run)
	}
}

func unfinished() *v1.VolumeUpdateState {
	return &v1.VolumeUpdateState{VolumeMigrationState: &v1.VolumeMigrationState{
		MigratedVolumes: []v1.StorageMigratedVolumeInfo{{
			VolumeName:         "data",
			SourcePVCInfo:      &v1.PersistentVolumeClaimInfo{ClaimName: "data"},
			DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data-m1"},
		}},
	}}
}

// TestMigrateRefused has what is refused, and that nothing is left of it.
func TestMigrateRefused(t *testing.T) {
	for name, m := range map[string]migrated{
		"unknown volume": {
			line: "demo dta --storage-class fast", code: cli.ExitNotFound,
			errs: `volume "dta" not found in demo: those on claims are root, data`,
		},
		"unknown class": {line: "demo --storage-class fest", code: cli.ExitNotFound, errs: "did you mean fast?"},
		"no claim": {
			line: "demo tmp --storage-class fast", code: 1, errs: "volume tmp cannot be copied: it is not on a claim",
			change: func(m *moving) {
				v := v1.Volume{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}}
				m.vm.Spec.Template.Spec.Volumes = append(m.vm.Spec.Template.Spec.Volumes, v)
			},
		},
		"shared": {line: "demo data --storage-class fast", code: 1, errs: shared, change: sharedData},
		"being plugged in": {
			line: "demo data --storage-class fast", code: 1,
			errs: "volume data cannot be copied: it is not plugged in, or is just being unplugged",
			change: func(m *moving) {
				m.vm.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.Hotpluggable = true
				m.vmi.Spec.Volumes[1].PersistentVolumeClaim.Hotpluggable = true
			},
		},
		"another disk keeps the guest": {
			line: "demo data --storage-class fast", code: 1,
			errs: `volume "root" stays on PersistentVolumeClaim root, which cannot be used on two nodes at once`,
		},
		"there already": {
			line: "demo data --storage-class old", code: 1, change: manyRoot,
			errs: "claim data is of class old already",
		},
		"all there already": {
			line: "demo --storage-class old", code: 1,
			errs: "VM demo has no disk to copy to class old: volume root stays",
		},
		"under way": {
			line: "demo --storage-class fast", code: 1, change: underWay,
			errs: "disks of VM demo are being copied already: data from claim data to data-m1; " +
				"`virtctl volume migrate demo --cancel` takes that back",
		},
		"being cancelled": {
			line: "demo --storage-class fast", code: 1,
			change: func(m *moving) {
				underWay(m)
				m.vm.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "data"
				m.vm.Status.VolumeUpdateState = &v1.VolumeUpdateState{
					VolumeMigrationState: &v1.VolumeMigrationState{MigratedVolumes: []v1.StorageMigratedVolumeInfo{{
						VolumeName:         "data",
						SourcePVCInfo:      &v1.PersistentVolumeClaimInfo{ClaimName: "data"},
						DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "data-m1"},
					}}},
				}
			},
			errs: "the copy of disks of VM demo is being cancelled: data from claim data to data-m1; ask again once " +
				"that is over, for which `virtctl volume migrate demo --cancel` waits with --wait",
		},
		"stopped": {
			line: "demo --storage-class fast", code: 1, errs: "start it with `virtctl start demo`",
			change: func(m *moving) {
				halted := v1.RunStrategyHalted
				m.vmi, m.vm.Spec.RunStrategy = nil, &halted
			},
		},
		"not yet running": {
			line: "demo --storage-class fast", code: 1, errs: "the guest of VM demo is Scheduling",
			change: func(m *moving) { m.vmi.Status.Phase = v1.Scheduling },
		},
		"being shut down": {
			line: "demo --storage-class fast", code: 1, errs: "the guest of VM demo is being shut down",
			change: func(m *moving) {
				now := metav1.Now()
				m.vmi.DeletionTimestamp, m.vmi.Finalizers = &now, []string{"foregroundDeleteVirtualMachine"}
			},
		},
		"ended too early": {
			line: "demo --storage-class fast", code: 1,
			errs:   "data to data; `virtctl volume migrate demo --cancel` does that",
			change: func(m *moving) { underWay(m); m.vmi = nil; m.vm.Status.VolumeUpdateState = unfinished() },
		},
		"staged": {
			line: "demo --storage-class fast", code: 1, errs: "vmRolloutStrategy of the KubeVirt resource is Stage",
			change: func(m *moving) {
				stage := v1.VMRolloutStrategyStage
				m.kv.Spec.Configuration.VMRolloutStrategy = &stage
			},
		},
		"the second claim": {
			line: "demo --storage-class fast", code: cli.ExitNotAllowed,
			made: "root-m1 fast Filesystem [ReadWriteOnce] 2Gi", gone: `root-m1{"preconditions":{"uid":"uid-root-m1"}}`,
			change: func(m *moving) { m.refuseClaim = "data-m1" },
			errs:   "note: claim root-m1, which was made for it, is removed again\n",
		},
		"the patch": {
			line: "demo --storage-class fast", code: cli.ExitNotAllowed, made: twoMade, patch: twoOps, gone: twoGone,
			errs: "note: claim data-m1, which was made for it, is removed again\n",
			change: func(m *moving) {
				m.refuse = apierrors.NewForbidden(v1.Resource("virtualmachines"), "demo", fmt.Errorf("no"))
			},
		},
		"the patch, unanswered": {
			line: "demo --storage-class fast", code: 1, made: twoMade, patch: twoOps,
			errs:   "may have been requested, so claims that were made are kept: root-m1, data-m1",
			change: func(m *moving) { m.refuse = apierrors.NewInternalError(fmt.Errorf("etcd")) },
		},
		"interrupted": {
			line: "demo --storage-class fast", code: cli.ExitInterrupted, made: twoMade, patch: twoOps,
			errs:   "interrupted: the copy of disks of VM team-a/demo may have been requested, so claims that were",
			change: func(m *moving) { m.cancel = func() {} },
		},
		"nothing to cancel": {line: "demo --cancel", code: 1, errs: "VM demo: no disk is being copied"},
	} {
		t.Run(name, m.run)
	}
}

// TestMigrateUsage has what no cluster is asked for.
func TestMigrateUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":                                     "the name of a VM, and perhaps of volumes",
		"demo":                                 "Name a class with --storage-class",
		"demo --cancel --storage-class x":      "--cancel takes back",
		"demo data --cancel":                   "name the VM alone",
		"demo --storage-class x --plan --wait": "--plan changes nothing",
		"demo --storage-class x --wait --dry-run":   "--wait cannot be given with --dry-run",
		"demo --storage-class x --volume-mode char": `--volume-mode: "char" is not one of filesystem, block`,
		"demo --storage-class x --access-mode RWO":  `--access-mode: "RWO" is not one of ReadWriteOnce`,
		"demo --storage-class x --claim-name y":     "--claim-name is of one volume",
		"demo a --storage-class x --claim-name Y":   `--claim-name: "Y" is not a name`,
		"demo a a --storage-class x":                "volume a is named twice",
		"vmi/demo --storage-class x":                "name the VM",
		"demo --storage-class x -o colour":          `unknown output format "colour"`,
	} {
		_, _, err := clitest.Command{New: NewCmdMigrate}.Run(t, strings.Fields(line)...)
		if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
