package claims

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestReferences(t *testing.T) {
	for volume, want := range map[string]string{
		`{dataVolume: {name: a}}`:                              "[{DataVolume a false}]",
		`{persistentVolumeClaim: {claimName: a}}`:              "[{PersistentVolumeClaim a false}]",
		`{ephemeral: {persistentVolumeClaim: {claimName: a}}}`: "[{PersistentVolumeClaim a false}]",
		`{memoryDump: {claimName: a}}`:                         "[{PersistentVolumeClaim a false}]",
		`{configMap: {name: a}}`:                               "[{ConfigMap a false}]",
		`{configMap: {name: a, optional: true}}`:               "[{ConfigMap a true}]",
		`{secret: {secretName: a, optional: false}}`:           "[{Secret a false}]",
		`{serviceAccount: {serviceAccountName: a}}`:            "[{ServiceAccount a false}]",
		`{containerDisk: {image: i}}`:                          "[]",
		`{containerDisk: {image: i, imagePullSecret: a}}`:      "[{Secret a true}]",
		`{sysprep: {configMap: {name: a}}}`:                    "[{ConfigMap a false}]",
		`{sysprep: {secret: {name: a}}}`:                       "[{Secret a false}]",
		`{cloudInitNoCloud: {secretRef: {name: a}}}`:           "[{Secret a false}]",
		`{cloudInitNoCloud: {secretRef: {name: a}, networkDataSecretRef: {name: b}}}`: "[{Secret a false} {Secret " +
			"b false}]",
		`{cloudInitConfigDrive: {networkDataSecretRef: {name: b}}}`: "[{Secret b false}]",
		`{emptyDisk: {capacity: 1Gi}}`:                              "[]",
	} {
		var v v1.Volume
		text, err := yaml.YAMLToJSON([]byte(volume))
		if err == nil {
			err = json.Unmarshal(text, &v) // yaml.Unmarshal makes sources that the text does not have
		}
		if err != nil {
			t.Fatalf("%s: %v", volume, err)
		}
		if got := fmt.Sprint(References(&v)); got != want {
			t.Errorf("%s: %s, want %s", volume, got, want)
		}
	}
}
