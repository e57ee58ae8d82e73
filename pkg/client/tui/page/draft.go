package page

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The fields of the form, in their order.
const (
	fieldName = iota
	fieldNamespace
	fieldInstancetype
	fieldPreference
	fieldCPUs
	fieldMemory
	fieldImage
	fieldClaim
	fieldImport
	fieldData
	fieldStrategy
	fieldUser
	fieldPassword
	fieldKey
	fieldCredential
	fieldSysprep
	fieldCloudInit
	fieldUserData
	fieldNetworkData
	fieldNetworks
	fieldIPs
	fieldMAC
	fieldInferInstancetype
	fieldInferPreference
	fieldDiskBus
	fieldGrace
	fields
)

// Draft has the texts typed into the form, by field.
type Draft [fields]string

// draftField describes a field: how it is called, by the form, the command line and errors, and what it
// shows while it is empty: a default, an example or what it is for, which cannot be taken for a value. Those with
// a long flag take that one's form too, `key:value,…`. Several values are separated by blanks.
type draftField struct {
	title, flag, example string
	long                 string
}

var draftFields = [fields]draftField{
	fieldName:         {title: "Name", flag: "name"},
	fieldNamespace:    {title: "Namespace", flag: "namespace"},
	fieldInstancetype: {title: "Instance type", flag: "instancetype", example: "CPUs and memory from one"},
	fieldPreference:   {title: "Preference", flag: "preference", example: "devices and firmware from one"},
	fieldCPUs:         {title: "CPUs", flag: "cpu", example: "default 1"},
	fieldMemory:       {title: "Memory", flag: "memory", example: "default " + create.DefaultMemory},
	fieldImage: {
		title: "Container disk", flag: "container-disk", long: "volume-containerdisk",
		example: "e.g. quay.io/containerdisks/fedora:latest",
	},
	fieldClaim: {
		title: "Claim", flag: "pvc", long: "volume-pvc",
		example: "a PersistentVolumeClaim to boot from",
	},
	fieldImport: {
		title: "Import", flag: "volume-import",
		example: "e.g. type:http,url:https://HOST/IMAGE,size:10Gi",
	},
	fieldData: {title: "Empty disk", flag: "volume-empty", long: "volume-empty", example: "e.g. 10Gi"},
	fieldStrategy: {
		title: "Run strategy", flag: "run-strategy", example: "default " + string(create.DefaultRunStrategy),
	},
	fieldUser:       {title: "User", flag: "user", example: "the image's own"},
	fieldPassword:   {title: "Password", flag: "password-file"},
	fieldKey:        {title: "SSH key", flag: "ssh-key", example: "e.g. ssh-ed25519 AAAA... me@here"},
	fieldCredential: {title: "Credentials", flag: "access-cred", example: "e.g. src:SECRET,method:nocloud"},
	fieldSysprep:    {title: "Sysprep", flag: "volume-sysprep", example: "e.g. src:CONFIGMAP"},
	fieldCloudInit:  {title: "cloud-init", flag: "cloud-init", example: "default " + create.CloudInitNoCloud},
	fieldUserData:   {title: "User data", flag: "cloud-init-user-data", example: "in base64, for cloud-init"},
	fieldNetworkData: {
		title: "Network data", flag: "cloud-init-network-data",
		example: "in base64, for cloud-init",
	},
	fieldNetworks: {title: "Networks", flag: "network", example: "e.g. red=red-net, besides the pod's"},
	fieldIPs:      {title: "IP addresses", flag: "ip", example: "e.g. red=192.0.2.7"},
	fieldMAC:      {title: "MAC address", flag: "mac", example: "default one that no other VM has"},
	fieldInferInstancetype: {
		title: "Type from", flag: "infer-instancetype-from",
		example: "a volume whose labels name it",
	},
	fieldInferPreference: {
		title: "Preference from", flag: "infer-preference-from",
		example: "a volume whose labels name it",
	},
	fieldDiskBus: {title: "Disk bus", flag: "disk-bus", example: "the preference's, or sata"},
	fieldGrace: {
		title: "Grace period", flag: "termination-grace-period",
		example: "default " + fmt.Sprint(create.DefaultTerminationGracePeriodSeconds) + " seconds to shut down",
	},
}

// mistake is what is wrong with a draft; field is -1 where it is of no one field.
type mistake struct {
	field int
	text  string
}

// masked stands for a password where others may see it.
const masked = "********"

// options returns the draft's options as `virtctl create vm` has them.
func (d *Draft) options() (create.Options, *mistake) {
	o := create.Options{
		Name: d[fieldName], Namespace: d[fieldNamespace], RunStrategy: d[fieldStrategy], Memory: d[fieldMemory],
		MemoryGiven:                   d[fieldMemory] != "",
		TerminationGracePeriodSeconds: create.DefaultTerminationGracePeriodSeconds, Instancetype: d[fieldInstancetype],
		Preference: d[fieldPreference], DiskBus: d[fieldDiskBus],
		CloudInit: create.CloudInit{User: d[fieldUser], Password: d[fieldPassword]},
		MAC:       d[fieldMAC],
	}
	if o.Memory == "" {
		o.Memory = create.DefaultMemory
	}
	if text := d[fieldCPUs]; text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n == 0 {
			return o, &mistake{fieldCPUs, fmt.Sprintf("%q is no number of CPUs", text)}
		}
		o.CPU = uint32(n)
	}
	if d[fieldInstancetype] != "" && (d[fieldCPUs] != "" || d[fieldMemory] != "") {
		return o, &mistake{fieldInstancetype, "an instance type has CPUs and memory; leave those empty, or it"}
	}
	if wrong := d.volumes(&o); wrong != nil {
		return o, wrong
	}
	if wrong := d.extras(&o); wrong != nil {
		return o, wrong
	}
	if key := strings.TrimSpace(d[fieldKey]); key != "" {
		if !create.IsPublicKey(key) {
			return o, &mistake{fieldKey, "that is no public key, which is TYPE BASE64 [COMMENT]"}
		}
		o.CloudInit.SSHKeys = []string{key}
	}
	return o, nil
}

// volumes reads the disks, in the order of the command line.
func (d *Draft) volumes(o *create.Options) *mistake {
	for _, of := range []struct {
		field int
		kind  create.Kind
	}{
		{fieldImage, create.ContainerDisk},
		{fieldClaim, create.Claim},
		{fieldImport, create.Import},
		{fieldData, create.Empty},
	} {
		for n, text := range strings.Fields(d[of.field]) {
			v, err := create.Volume{Kind: of.kind, Source: text, Plain: true}, error(nil)
			switch {
			case of.kind == create.Import:
				v, err = create.ParseImport("", text, func() string { return importName(d[fieldName], n) })
			case longForm(text):
				v, err = create.ParseVolume(of.kind, text)
			}
			if err != nil {
				return &mistake{of.field, err.Error()}
			}
			v.Field = draftFields[of.field].flag
			o.Volumes = append(o.Volumes, v)
		}
	}
	return nil
}

// importName returns the name of the n-th imported volume that has none.
func importName(vm string, n int) string { return fmt.Sprintf("%s-import-%d", vm, n) }

// longForm reports whether a volume is given as `key:value,…`.
func longForm(text string) bool {
	return strings.HasPrefix(text, "src:") || strings.HasPrefix(text, "size:")
}

// extras reads what few machines have.
func (d *Draft) extras(o *create.Options) *mistake {
	var err error
	if text := d[fieldSysprep]; text != "" {
		if o.Sysprep, err = create.ParseSysprep(text); err != nil {
			return &mistake{fieldSysprep, err.Error()}
		}
	}
	for _, text := range strings.Fields(d[fieldCredential]) {
		c, err := create.ParseAccessCredential(text)
		if err != nil {
			return &mistake{fieldCredential, err.Error()}
		}
		o.AccessCredentials = append(o.AccessCredentials, c)
	}
	if o.Networks, o.IPs, err = create.ParseNetworks(strings.Fields(d[fieldNetworks]),
		strings.Fields(d[fieldIPs])); err != nil {
		return mistakeOf(err)
	}
	if text := d[fieldGrace]; text != "" {
		if o.TerminationGracePeriodSeconds, err = strconv.ParseInt(text, 10, 32); err != nil {
			return &mistake{fieldGrace, fmt.Sprintf("%q is no number of seconds", text)}
		}
	}
	o.CloudInit.Source, o.CloudInit.UserData, o.CloudInit.NetworkData = d[fieldCloudInit], d[fieldUserData],
		d[fieldNetworkData]
	for _, infer := range []struct {
		field, excludes int
		into            *create.Inference
	}{
		{fieldInferInstancetype, fieldInstancetype, &o.InferInstancetype},
		{fieldInferPreference, fieldPreference, &o.InferPreference},
	} {
		if d[infer.field] != "" && d[infer.excludes] != "" {
			return &mistake{infer.field, "leave this empty, or " + strings.ToLower(draftFields[infer.excludes].title)}
		}
		infer.into.From, infer.into.Explicit = d[infer.field], d[infer.field] != ""
	}
	return nil
}

// build makes the VirtualMachine of the draft, or says what keeps it from that.
func (d *Draft) build() (*v1.VirtualMachine, *mistake) {
	o, wrong := d.options()
	switch {
	case wrong != nil:
		return nil, wrong
	case o.Name == "":
		return nil, &mistake{fieldName, "give one"}
	case o.Namespace == "":
		return nil, &mistake{fieldNamespace, "give one"}
	}
	vm, err := create.VM(o)
	if err != nil {
		return nil, mistakeOf(err)
	}
	if errs, _ := create.Check(vm); len(errs) > 0 {
		return vm, &mistake{-1, surface.Message(errs)}
	}
	return vm, nil
}

func mistakeOf(err error) *mistake {
	var fe *create.FieldError
	if !errors.As(err, &fe) {
		return &mistake{-1, err.Error()}
	}
	name, _, _ := strings.Cut(fe.Field, " ")
	for i, f := range draftFields {
		if f.flag == name || strings.TrimSuffix(f.flag, "-from") == name {
			return &mistake{i, fe.Reason}
		}
	}
	return &mistake{-1, fe.Error()}
}

// preview returns the manifest, without the password.
func (d *Draft) preview() string {
	shown := *d
	if shown[fieldPassword] != "" {
		shown[fieldPassword] = masked
	}
	o, wrong := shown.options()
	if wrong != nil {
		return ""
	}
	if o.Name == "" {
		o.Name = "name"
	}
	vm, err := create.VM(o)
	if err != nil {
		return ""
	}
	manifest, err := create.Manifest(vm)
	if err != nil {
		return ""
	}
	text, err := yaml.Marshal(manifest.Object)
	if err != nil {
		return ""
	}
	return string(text)
}

// line returns the command line that creates the same. The password is not on it.
func (d *Draft) line(program string) string {
	words := []string{program, "create", "vm"}
	for i, f := range draftFields {
		value := d[i]
		switch {
		case value == "":
			continue
		case i == fieldPassword:
			words = append(words, "--"+f.flag, "FILE")
			continue
		case !slices.Contains(several, i) && f.long == "":
			words = append(words, "--"+f.flag, quoted(value))
			continue
		}
		for n, part := range strings.Fields(value) {
			flag := f.flag
			switch {
			case f.long != "" && longForm(part):
				flag = f.long
			case i == fieldData:
				part = "size:" + part
			case i == fieldImport && !strings.Contains(","+part, ",name:"):
				part += ",name:" + importName(d[fieldName], n)
			}
			words = append(words, "--"+flag, quoted(part))
		}
	}
	return strings.Join(append(words, "--apply"), " ")
}

// several are the fields of which each value is a flag of its own, besides those with a long form.
var several = []int{fieldImport, fieldCredential, fieldNetworks, fieldIPs}

// quoted returns a word as a shell takes it.
func quoted(word string) string {
	if word != "" && strings.IndexFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=+,%", r)
	}) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
