package install

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// noCodec is for requests whose answers are read raw.
var noCodec = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()

func parseVersion(raw []byte) (string, error) {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(raw, &info); err != nil {
		return "", fmt.Errorf("read the cluster's version: %w", err)
	}
	return info.GitVersion, nil
}
