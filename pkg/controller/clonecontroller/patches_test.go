package clonecontroller

import (
	"testing"

	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/controller/restorecontroller"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

// Each part of an identity is new, unless it is kept; one that the source does not have in its spec is of its name.
func TestKeptIdentity(t *testing.T) {
	type guest struct{ mac, second, uuid, serial, known, host string }
	plain := guest{}
	whole := guest{"02:00:00:00:00:01", "02:00:00:00:00:02", "u", "s", "old", "host"}
	ofName := string(identity.UUID("vm.a"))
	for name, test := range map[string]struct {
		source guest
		others bool // the template has another annotation, which a filter leaves out
		// recorded says that the VM has addresses by its annotation.
		recorded bool
		kept     []string
		macs     map[string]string
		patch    string
		want     guest
	}{
		"all new":  {source: whole, want: guest{}},
		"all kept": {source: whole, kept: clones.Parts, want: whole},
		"all kept, of the name": {
			source: plain, kept: clones.Parts, want: guest{uuid: ofName, known: "vm.a", host: "vm"},
		},
		"all new, of the name": {source: plain, want: guest{}},
		"MACs": {
			source: whole, kept: []string{"mac"}, want: guest{mac: whole.mac, second: whole.second},
		},
		"MACs but one": {
			source: whole, kept: []string{"mac"}, macs: map[string]string{"second": "02:00:00:00:00:09"},
			want: guest{mac: whole.mac, second: "02:00:00:00:00:09"},
		},
		"the UUID":        {source: whole, kept: []string{"uuid"}, want: guest{uuid: "u"}},
		"the serial":      {source: whole, kept: []string{"serial"}, want: guest{serial: "s"}},
		"the instance-id": {source: whole, kept: []string{"instance-id"}, want: guest{known: "old"}},
		"the instance-id beside others": {
			source: whole, others: true, kept: []string{"instance-id"}, want: guest{known: "old"},
		},
		"the instance-id of the name beside others": {
			source: plain, others: true, kept: []string{"instance-id"}, want: guest{known: "vm.a"},
		},
		"the host name": {source: whole, kept: []string{"hostname"}, want: guest{host: "host"}},
		"another host name": {
			source: whole, patch: `{"op":"replace","path":"/spec/template/spec/hostname","value":"mine"}`,
			want: guest{host: "mine"},
		},
		"MACs, of which one is recorded": {
			source: guest{mac: whole.mac}, recorded: true, kept: []string{"mac"},
			want: guest{mac: whole.mac, second: "02:00:00:00:00:0b"},
		},
		"MACs, another than is recorded": {
			source: guest{mac: whole.mac}, recorded: true, kept: []string{"mac"},
			macs: map[string]string{"second": "02:00:00:00:00:09"},
			want: guest{mac: whole.mac, second: "02:00:00:00:00:09"},
		},
		"a recorded MAC is not kept": {source: guest{mac: whole.mac}, recorded: true, want: guest{}},
	} {
		source := contentOf().Spec.Source.VirtualMachine
		source.Name = "vm.a"
		if test.recorded {
			text, err := macaddress.Encode(source.Namespace, source.Name,
				map[string]string{"default": "02:00:00:00:00:0a", "second": "02:00:00:00:00:0b"})
			if err != nil {
				t.Fatal(err)
			}
			source.Annotations = map[string]string{macaddress.Annotation: text}
		}
		template := source.Spec.Template
		template.Spec.Hostname = test.source.host
		template.Spec.Domain.Firmware = nil
		if test.source.uuid != "" {
			template.Spec.Domain.Firmware = &v1.Firmware{UUID: "u", Serial: test.source.serial}
		}
		template.Spec.Domain.Devices.Interfaces[0].MacAddress = test.source.mac
		template.Spec.Domain.Devices.Interfaces[1].MacAddress = test.source.second
		spec := &clonev1beta1.VirtualMachineCloneSpec{NewMacAddresses: test.macs}
		template.ObjectMeta.Annotations = map[string]string{}
		if test.others {
			template.ObjectMeta.Annotations["other"] = "x"
			spec.Template.AnnotationFilters = []string{"!other"}
		}
		if test.source.known != "" {
			template.ObjectMeta.Annotations[identity.KnownAs] = test.source.known
		}
		if test.patch != "" {
			spec.Patches = []string{test.patch}
		}
		patches, err := Patches(source, spec, test.kept)
		if err != nil {
			t.Fatal(err)
		}
		vm := &v1.VirtualMachine{ObjectMeta: source.ObjectMeta, Spec: source.Spec}
		delete(vm.Spec.Template.ObjectMeta.Annotations, identity.KnownAs) // as a restore does
		made, err := restorecontroller.Patch(vm, patches)
		if err != nil {
			t.Errorf("%s: %v of %v", name, err, patches)
			continue
		}
		annotations := made.Spec.Template.ObjectMeta.Annotations
		domain := made.Spec.Template.Spec.Domain
		got := guest{
			mac: domain.Devices.Interfaces[0].MacAddress, second: domain.Devices.Interfaces[1].MacAddress,
			known: annotations[identity.KnownAs], host: made.Spec.Template.Spec.Hostname,
		}
		if f := domain.Firmware; f != nil {
			got.uuid, got.serial = string(f.UUID), f.Serial
		}
		if got != test.want || annotations["other"] != "" {
			t.Errorf("%s: %+v, want %+v; annotations %v", name, got, test.want, annotations)
		}
	}
}

// A wish for IP addresses is the source's; the copy has it with the MAC addresses alone, and filters may leave it out.
func TestWishOfClone(t *testing.T) {
	for name, test := range map[string]struct {
		kept, filters []string
		want          bool
	}{
		"a new identity": {},
		"the MACs":       {kept: []string{clones.KeepMAC}, want: true},
		"filtered":       {filters: []string{"!network.kubevirt.io/*"}},
		"filtered, kept": {kept: []string{clones.KeepMAC}, filters: []string{"!network.kubevirt.io/*"}},
		"the instance":   {kept: []string{clones.KeepInstanceID}},
	} {
		source := contentOf().Spec.Source.VirtualMachine
		source.Spec.Template.ObjectMeta.Annotations = map[string]string{ipaddress.Wish: `{"default":["192.0.2.7"]}`}
		spec := &clonev1beta1.VirtualMachineCloneSpec{}
		spec.Template.AnnotationFilters = test.filters
		patches, err := Patches(source, spec, test.kept)
		if err != nil {
			t.Fatal(err)
		}
		vm := &v1.VirtualMachine{ObjectMeta: source.ObjectMeta, Spec: source.Spec}
		made, err := restorecontroller.Patch(vm, patches)
		if err != nil {
			t.Errorf("%s: %v of %v", name, err, patches)
			continue
		}
		if _, has := made.Spec.Template.ObjectMeta.Annotations[ipaddress.Wish]; has != test.want {
			t.Errorf("%s: it has %v", name, made.Spec.Template.ObjectMeta.Annotations)
		}
	}
}
