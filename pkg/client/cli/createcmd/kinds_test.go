package createcmd

import (
	"strings"
	"testing"
)

// TestKinds has the manifests of instance types and preferences, by what is asked for.
func TestKinds(t *testing.T) {
	for name, line := range map[string]string{
		"instancetype-devices.yaml": "instancetype --name big --cpu 8 --memory 16Gi --gpu " +
			"name:g0,devicename:vendor.example/gpu" +
			" --gpu devicename:vendor.example/gpu,name:g1 --hostdevice name:nic,devicename:vendor.example/nic " +
			"--iothreadspolicy shared",
		"instancetype-namespace.yaml": "instancetype --cpu 1 --memory 512Mi -n shop",
		"preference-all.yaml": "preference --name linux --cpu-topology spread --machine-type q35 " +
			"--volume-storage-class fast",
		"preference-empty.yaml": "preference --namespaced",
	} {
		out, errOut, err := newCluster(t).create("", strings.Fields(line)...)
		if err != nil || errOut != "" {
			t.Errorf("%s: %v, %s", name, err, errOut)
		}
		golden(t, name, out)
	}
}

// TestKindsRefused names the flag, and what it takes.
func TestKindsRefused(t *testing.T) {
	c := newCluster(t)
	for line, want := range map[string]string{
		"instancetype":                      `--cpu is missing; every instancetype needs it`,
		"instancetype --cpu 1":              `--memory is missing; every instancetype needs it`,
		"instancetype --cpu 0 --memory 1Gi": `--cpu: must be 1 or more`,
		"instancetype --cpu 1 --memory 0":   `--memory: "0": must be more than 0`,
		"instancetype --cpu 1 --memory 128": `--memory: 128 is less than 1Mi; a quantity has a unit, such as 2Gi or 512Mi`,
		"instancetype --cpu 1 --memory " +
			"1Gibi": `--memory: "1Gibi" is not a quantity such as 512Mi or 10Gi`,
		"instancetype --cpu 1 " +
			"--memory=": `--memory: "" is not a quantity such as 512Mi or 10Gi`,
		"instancetype --cpu 1 --memory 1Gi --gpu gpu":            `--gpu "gpu": "gpu" is not KEY:VALUE`,
		"instancetype --cpu 1 --memory 1Gi --gpu devicename:a/b": `--gpu "devicename:a/b": name is missing`,
		"instancetype --cpu 1 --memory 1Gi --hostdevice name:a":  `--hostdevice "name:a": devicename is missing`,
		"instancetype --cpu 1 --memory 1Gi --hostdevice " +
			"name:a,name:b": `--hostdevice "name:a,name:b": name is given twice`,
		"instancetype --cpu 1 --memory 1Gi --gpu " +
			"name:a,devicename:b/c,count:2": `--gpu "name:a,devicename:b/c,count:2": unknown parameter "count"`,
		"instancetype --cpu 1 --memory 1Gi " +
			"--iothreadspolicy supplementalPool": `--iothreadspolicy: "supplementalPool" is not one of auto, shared`,
		"instancetype --cpu 1 --memory 1Gi --name=": `--name: must not be empty`,
		"preference --name=":                        `--name: must not be empty`,
		"preference --cpu-topology " +
			"round": `--cpu-topology: "round" is not one of sockets, cores, threads, spread, any, preferSockets, preferCores, preferThreads, preferSpread, preferAny`,
	} {
		c.refused(line, want)
	}
	for _, kind := range []string{"instancetype --cpu 1 --memory 1Gi", "preference"} {
		_, _, err := c.create("", append(strings.Fields(kind), "--name", "Not_A_Name")...)
		if err == nil || !strings.HasPrefix(err.Error(), `--name: "Not_A_Name" is no name: `) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
