package store

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestHasSystem(t *testing.T) {
	for text, want := range map[string]bool{
		"{}": false,
		"volumes: [{name: seed, cloudInitNoCloud: {}}, {name: scratch, emptyDisk: {}}]": false,
		"volumes: [{name: root, containerDisk: {image: tiny}}]":                         true,
		"volumes: [{name: root, persistentVolumeClaim: {claimName: c}}]":                true,
		"volumes: [{name: root, dataVolume: {name: d}}]":                                true,
		"domain: {firmware: {kernelBoot: {container: {image: kernel}}}}":                true,
		"domain: {devices: {interfaces: [{name: default, bootOrder: 1}]}}":              true,
		"domain: {devices: {interfaces: [{name: default}]}}":                            false,
	} {
		var spec v1.VirtualMachineInstanceSpec
		if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
			t.Fatal(err)
		}
		if got := HasSystem(&spec); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
