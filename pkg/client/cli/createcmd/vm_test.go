package createcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
)

const key = "ssh-ed25519 AAAA"

// TestVM has the manifests of combinations of flags: what one leaves to the other, and in which order disks come.
func TestVM(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	writeFile(t, password, "s3cr3t\r\nnot this line\n")
	for name, line := range map[string]string{
		// The disks come in the order of their kinds, whatever the order of the flags.
		"vm-disks.yaml": "--volume-empty size:1Gi --volume-import type:blank,size:2Gi,name:new " +
			"--volume-blank size:3Gi" +
			" --volume-clone-pvc src:images/gold --volume-datasource src:debian --volume-pvc " +
			"src:data,bootorder:1 --pvc plain" +
			" --volume-containerdisk src:tools,bootorder:2,name:tools --container-disk system --disk-bus scsi",
		// Every type of import, with all that it takes.
		"vm-imports.yaml": "--infer-instancetype=false --infer-preference=false" +
			" --volume-import type:gcs,size:1Gi,name:gcs,url:gs://b/o,secretref:s" +
			" --volume-import type:http,size:1Gi,name:http,url:https://h/d,secretref:s,certconfigmap:c," +
			"extraheaders:a;b,secretextraheaders:d;e" +
			" --volume-import type:imageio,size:1Gi,name:imageio,url:https://h,diskid:7,secretref:s,certconfigmap:c" +
			" --volume-import type:registry,size:1Gi,name:registry,imagestream:i,pullmethod:node,certconfigmap:c" +
			" --volume-import type:s3,size:1Gi,name:s3,url:https://h/o,secretref:s,certconfigmap:c" +
			" --volume-import " +
			"type:vddk,size:1Gi,name:vddk,url:https://h,uuid:u,thumbprint:t,backingfile:f,secretref:s,initimageurl:i" +
			" --volume-import type:snapshot,src:ns/snap --volume-import type:ds,src:ns/fedora,name:ds,bootorder:1",
		// A size that is given leaves no instance type to be inferred, but a preference.
		"vm-sized.yaml": "--cpu 2 --volume-pvc src:gold",
		// One that is inferred from a volume of its own leaves the preference to the one that is booted from.
		"vm-inferred.yaml": "--volume-pvc src:a,bootorder:1 --volume-pvc src:b,name:typed " +
			"--infer-instancetype-from typed",
		// A preference has the buses, and the answer file is then no CD-ROM.
		"vm-preference.yaml": "--memory 4Gi --preference windows --volume-pvc src:disk --volume-sysprep " +
			"src:answers,type:secret",
		"vm-sysprep.yaml": "--instancetype virtualmachineinstancetype/own --pvc disk --volume-sysprep src:answers",
		// The account of the keys is that of the guest; the agent may then write them.
		"vm-credentials.yaml": "--container-disk os --user me --access-cred src:keys --access-cred " +
			"type:ssh,src:root,method:ga,user:root" +
			" --access-cred type:password,src:passwords",
		"vm-not-managed.yaml": "--container-disk os --user me --access-cred src:keys --ga-manage-ssh=false",
		"vm-cloud-init.yaml": "--container-disk os --access-cred src:keys,method:configdrive " +
			"--cloud-init-network-data dmVyc2lvbjogMgo=" +
			" --password-file " + password,
		"vm-lifecycle.yaml": "-n shop --run-strategy RERUNONFAILURE --termination-grace-period 0 --container-disk os",
	} {
		out, errOut, err := newCluster(t).create("",
			append([]string{"vm", "--name", "demo"}, strings.Fields(line)...)...)
		if err != nil || errOut != "" {
			t.Errorf("%s: %v, %s", name, err, errOut)
		}
		golden(t, name, out)
	}
}

// TestVMRefused names the flag, and what fixes it. What goes wrong in a single field of the object is in
// pkg/client/action/create.
func TestVMRefused(t *testing.T) {
	c := newCluster(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	missing, nothing := filepath.Join(dir, "missing"), file("nothing", "\nsecond line\n")
	private := file("private", "-----BEGIN OPENSSH PRIVATE KEY-----\n")
	broken := file("broken", "# of me\n"+key+" me\n\nssh-ed25519 cut\n")
	for line, want := range map[string]string{
		"--name=":      `--name: must not be empty`,
		"--cpu 0":      `--cpu: must be at least 1`,
		"--memory 128": `--memory: 128 is less than 1Mi; a quantity has a unit, such as 2Gi or 512Mi`,
		"--password " +
			"secret": `--password is for the API server, as kubectl's; the guest's is read from a file: --password-file FILE, or - for stdin`,

		"--cpu 1 --instancetype a":     `--cpu and --instancetype exclude each other; remove one`,
		"--cpu 1 --infer-instancetype": `--cpu and --infer-instancetype exclude each other; remove one`,
		"--infer-instancetype-from a --memory " +
			"1Gi": `--memory and --infer-instancetype-from exclude each other; remove one`,
		"--instancetype a " +
			"--infer-instancetype=false": `--instancetype and --infer-instancetype exclude each other; remove one`,
		"--infer-instancetype-from a " +
			"--infer-instancetype": `--infer-instancetype and --infer-instancetype-from exclude each other; remove one`,
		"--preference a --infer-preference": `--preference and --infer-preference exclude each other; remove one`,
		"--infer-preference-from a " +
			"--preference a": `--preference and --infer-preference-from exclude each other; remove one`,
		"--infer-instancetype":                           `--infer-instancetype: there is no volume to infer from`,
		"--infer-preference --container-disk os":         `--infer-preference: volume "demo-containerdisk-0" is neither a claim nor imported, and so has no labels`,
		"--infer-instancetype-from x --volume-pvc src:a": `--infer-instancetype-from: there is no volume named "x"`,
		"--infer-preference-from x --volume-pvc src:a":   `--infer-preference-from: there is no volume named "x"`,
		"--preference " +
			"kind/a": `--preference: "kind" is not one of virtualmachinepreference, virtualmachineclusterpreference`,
		"--instancetype " +
			"virtualmachinepreference/a": `--instancetype: "virtualmachinepreference" is not one of virtualmachineinstancetype, virtualmachineclusterinstancetype`,
		"--disk-bus ide --pvc a":                           `--disk-bus: "ide" is not one of virtio, sata, scsi, usb`,
		"--disk-bus sata --volume-pvc src:a,readonly:true": `--disk-bus: sata has no read-only disks, as a is`,
		"--volume-pvc " +
			"src:a,readonly:maybe": `--volume-pvc "src:a,readonly:maybe": readonly "maybe" is neither true nor false`,
		"--volume-pvc src:a,bootorder:0": `--volume-pvc "src:a,bootorder:0": bootorder "0" is not a number from 1 on`,
		"--container-disk=":              `--container-disk: must not be empty`,
		"--pvc=":                         `--pvc: must not be empty`,
		"--pvc other/a":                  `volume other/a: a claim must be in the VM's own namespace; leave "other/" out, or clone a with --volume-import type:pvc`,
		"--volume-empty name:a":          `--volume-empty "name:a": size is missing`,
		"--volume-import " +
			"type:tape": `--volume-import "type:tape": type "tape" is not one of blank, gcs, http, imageio, pvc, registry, s3, vddk, snapshot, ds`,
		"--volume-import type:blank": `--volume-import: size is missing`,
		"--volume-import " +
			"type:blank,size:big": `--volume-import size: "big" is not a quantity such as 512Mi or 10Gi`,
		"--volume-import type:ds,src:a,url:x":         `--volume-import "type:ds,src:a,url:x": unknown parameter "url"`,
		"--volume-import type:imageio,size:1Gi,url:x": `--volume-import: diskid is missing; type imageio needs it`,
		"--volume-import " +
			"type:registry,size:1Gi,url:x,imagestream:y": `--volume-import: exactly one of url and imagestream is needed by type registry`,
		"--volume-import " +
			"type:registry,size:1Gi,url:x,pullmethod:y": `--volume-import: pullmethod "y" is not one of pod, node`,
		"--volume-import " +
			"type:snapshot,src:a": `--volume-import: src "a" is not NAMESPACE/NAME, as type snapshot needs it`,
		"--volume-datasource src:a/b/c":    `--volume-datasource: src "a/b/c" is not [NAMESPACE/]NAME`,
		"--volume-blank name:a":            `--volume-blank: size is missing`,
		"--volume-sysprep src:a,type:file": `--volume-sysprep: type "file" is not one of configMap, secret`,
		"--volume-sysprep a":               `--volume-sysprep "a": "a" is not KEY:VALUE`,

		"--access-cred src:a,type:token --user me": `--access-cred: type "token" is not one of ssh, password`,
		"--access-cred type:ssh":                   `--access-cred "type:ssh": src is missing`,
		"--access-cred " +
			"src:a,user:me,method:nocloud": `--access-cred: user goes with method ga only; with nocloud the keys are the user's of cloud-init`,
		"--access-cred " +
			"src:a,type:password,user:me": `--access-cred: user goes with type ssh and method ga only; the Secret's keys are the accounts of passwords`,
		"--access-cred src:a,type:password,method:nocloud": `--access-cred: method "nocloud" is not one of ga`,
		"--access-cred src:a,method:nocloud --cloud-init " +
			"configdrive": `--access-cred: method nocloud and --cloud-init configdrive do not go together; make them the same`,
		"--ga-manage-ssh --cloud-init-user-data " +
			"eA==": `--cloud-init-user-data: cannot be given together with user, password-file, ssh-key or ga-manage-ssh; put them into the user data`,
		"--password-file " + missing: `--password-file: ` + missing + `: there is no such file here`,
		"--password-file " + nothing: `--password-file: ` + nothing + ` is empty`,
		"--password-file -":          `--password-file: - is empty`,
		"--ssh-key " + missing: `--ssh-key: ` + missing +
			`: there is no such file here, and it is no public key itself`,
		"--ssh-key " + private: `--ssh-key: ` + private +
			` holds a private key; give the public one, which ends in .pub`,
		"--ssh-key " +
			broken: `--ssh-key: "ssh-ed25519 cut" is no public key, which is TYPE BASE64 [COMMENT] such as "ssh-ed25519 AAAA… me@here"`,
	} {
		name := "--name demo "
		if strings.HasPrefix(line, "--name") {
			name = ""
		}
		c.refused("vm "+name+line, want)
	}
}

// TestVMWarnings says on stderr what is likely not meant; the manifest is as it was asked for.
func TestVMWarnings(t *testing.T) {
	const diskless = "warning: the VM has no disk to boot from; --image, --container-disk, " +
		"--pvc and the --volume flags give it one\n"
	const unused = "warning: --cloud-init none: --user, --ssh-key and the other options for cloud-init have no effect\n"
	for line, want := range map[string]string{
		"":                                       diskless,
		"--volume-empty size:1Gi":                diskless,
		"--pvc a":                                "",
		"--volume-import type:blank,size:1Gi":    "",
		"--pvc a --cloud-init none":              "",
		"--pvc a --cloud-init None --user me":    unused,
		"--cloud-init none --ga-manage-ssh":      unused + diskless,
		"--pvc a --cloud-init none -o name":      "",
		"--pvc a --user me --cloud-init NOCLOUD": "",
	} {
		out, errOut, err := newCluster(t).create("",
			append([]string{"vm", "--name", "demo"}, strings.Fields(line)...)...)
		if err != nil || errOut != want || !strings.Contains(out, "demo") {
			t.Errorf("%s: stderr %q, want %q; %v\n%s", line, errOut, want, err, out)
		}
	}
}

// TestReadKeys takes keys from flags and from files, and leaves comments and empty lines out.
func TestReadKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.pub")
	writeFile(t, path, "# mine\n"+key+" one\n\n  "+key+" two\n")
	for name, test := range map[string]struct {
		values []string
		want   []string
	}{
		"none":  {nil, nil},
		"a key": {[]string{key + " me"}, []string{key + " me"}},
		"several in one flag": {
			[]string{key + " me,you," + key + ",ssh-rsa BBBB x, y"},
			[]string{key + " me,you", key, "ssh-rsa BBBB x, y"},
		},
		"lines in one flag": {[]string{key + " a\n" + key + " b\n"}, []string{key + " a", key + " b"}},
		"options before it": {[]string{`command="ls",no-pty ` + key}, []string{`command="ls",no-pty ` + key}},
		"a file and a key":  {[]string{path, key}, []string{key + " one", key + " two", key}},
	} {
		got, err := readKeys(test.values)
		if err != nil || strings.Join(got, "|") != strings.Join(test.want, "|") {
			t.Errorf("%s: %q, want %q; %v", name, got, test.want, err)
		}
	}
}

// TestReadPassword takes the first line alone, without its end, of a file or of stdin.
func TestReadPassword(t *testing.T) {
	for text, want := range map[string]string{"a": "a", "a\n": "a", "a b\r\nc": "a b", " a ": " a "} {
		got, err := readPassword(strings.NewReader(text), "-")
		if err != nil || got != want {
			t.Errorf("%q from stdin: %q, want %q; %v", text, got, want, err)
		}
		path := filepath.Join(t.TempDir(), "password")
		writeFile(t, path, text)
		if got, err := readPassword(nil, path); err != nil || got != want {
			t.Errorf("%q from a file: %q, want %q; %v", text, got, want, err)
		}
	}
	if _, err := readPassword(unreadable{}, "-"); cli.ExitCode(err) != cli.ExitUsage ||
		err.Error() != "--password-file: stdin cannot be read: "+os.ErrClosed.Error() {
		t.Errorf("unreadable: %v", err)
	}
}

type unreadable struct{}

func (unreadable) Read([]byte) (int, error) { return 0, os.ErrClosed }
