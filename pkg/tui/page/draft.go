package page

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/virtkit/virtkit/pkg/action/create"
	"github.com/virtkit/virtkit/pkg/surface"
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
	fieldData
	fieldStrategy
	fieldUser
	fieldPassword
	fieldKey
	fields
)

// Draft is what was typed into the form, by field.
type Draft [fields]string

// draftField describes a field: how it is called, by the form, the command line and errors, and an example.
type draftField struct {
	title, flag, example string
}

var draftFields = [fields]draftField{
	fieldName:         {"Name", "name", "web"},
	fieldNamespace:    {"Namespace", "namespace", ""},
	fieldInstancetype: {"Instance type", "instancetype", "CPUs and memory from one"},
	fieldPreference:   {"Preference", "preference", "devices and firmware from one"},
	fieldCPUs:         {"CPUs", "cpu", "1"},
	fieldMemory:       {"Memory", "memory", create.DefaultMemory},
	fieldImage:        {"Container disk", "container-disk", "quay.io/containerdisks/fedora:latest"},
	fieldClaim:        {"Claim", "pvc", "a PersistentVolumeClaim to boot from"},
	fieldData:         {"Empty disk", "volume-empty", "10Gi"},
	fieldStrategy:     {"Run strategy", "run-strategy", string(create.DefaultRunStrategy)},
	fieldUser:         {"User", "user", "the image's own"},
	fieldPassword:     {"Password", "password-file", ""},
	fieldKey:          {"SSH key", "ssh-key", "ssh-ed25519 AAAA... me@here"},
}

// mistake is what is wrong with a draft; field is -1 where it is of no one field.
type mistake struct {
	field int
	text  string
}

// masked stands for a password where others may see it.
const masked = "********"

// options are the draft's as `virtctl create vm` has them.
func (d *Draft) options() (create.Options, *mistake) {
	o := create.Options{
		Name: d[fieldName], Namespace: d[fieldNamespace], RunStrategy: d[fieldStrategy], Memory: d[fieldMemory], MemoryGiven: d[fieldMemory] != "",
		TerminationGracePeriodSeconds: create.DefaultTerminationGracePeriodSeconds, Instancetype: d[fieldInstancetype], Preference: d[fieldPreference],
		CloudInit: create.CloudInit{User: d[fieldUser], Password: d[fieldPassword]},
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
	for _, v := range []struct {
		field int
		kind  create.Kind
	}{{fieldImage, create.ContainerDisk}, {fieldClaim, create.Claim}, {fieldData, create.Empty}} {
		if text := d[v.field]; text != "" {
			o.Volumes = append(o.Volumes, create.Volume{Kind: v.kind, Source: text, Field: draftFields[v.field].flag})
		}
	}
	if key := strings.TrimSpace(d[fieldKey]); key != "" {
		if !create.IsPublicKey(key) {
			return o, &mistake{fieldKey, "that is no public key, which is TYPE BASE64 [COMMENT]"}
		}
		o.CloudInit.SSHKeys = []string{key}
	}
	return o, nil
}

// build makes the VirtualMachine of the draft, or says what keeps it from that.
func (d *Draft) build() (*v1.VirtualMachine, *mistake) {
	o, wrong := d.options()
	if wrong != nil {
		return nil, wrong
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
		if f.flag == name {
			return &mistake{i, fe.Reason}
		}
	}
	return &mistake{-1, fe.Error()}
}

// preview is the manifest, without the password.
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

// line is the command line that creates the same. The password is not on it.
func (d *Draft) line(program string) string {
	words := []string{program, "create", "vm"}
	for i, f := range draftFields {
		value := d[i]
		switch {
		case value == "":
			continue
		case i == fieldPassword:
			value = "FILE"
		case i == fieldData:
			value = "size:" + value
		}
		words = append(words, "--"+f.flag, quoted(value))
	}
	return strings.Join(append(words, "--apply"), " ")
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if word != "" && strings.IndexFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@=+,%", r)
	}) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
