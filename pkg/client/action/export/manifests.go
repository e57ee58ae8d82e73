package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// maxManifests bounds manifests, bytes.
const maxManifests = 8 << 20

// Manifests are what was downloaded of an export's manifests.
type Manifests struct {
	Data []byte
	// Export is the export that their DataVolumes read from.
	Export *v1beta1.VirtualMachineExport
	// Service is the name in the cluster that their addresses have, empty for addresses from outside.
	Service string
}

// Manifests downloads the manifests of an export's VM, as JSON or YAML, with the Secret that CDI needs if that is
// wanted.
func (d Download) Manifests(ctx context.Context, api API, asJSON, withSecret bool) (*Manifests, error) {
	export, err := Wait(ctx, api, d.Namespace, d.Name, d.Readiness, d.Report)
	if err != nil {
		return nil, err
	}
	server, err := reach(ctx, api, export, d.Reach)
	if err != nil {
		return nil, err
	}
	defer server.close()
	wanted := []v1beta1.ExportManifestType{v1beta1.AllManifests}
	if withSecret {
		wanted = append(wanted, v1beta1.AuthHeader)
	}
	var out bytes.Buffer
	for _, of := range wanted {
		address := ""
		for _, manifest := range server.link.Manifests {
			if manifest.Type == of {
				address = manifest.Url
			}
		}
		if address == "" {
			return nil, fmt.Errorf("VirtualMachineExport %s/%s has no manifests: it is of a claim", d.Namespace, d.Name)
		}
		part, err := d.manifest(ctx, server, address, asJSON)
		if err != nil {
			return nil, err
		}
		out.Write(part)
	}
	manifests := &Manifests{Data: out.Bytes(), Export: export}
	if host := exports.Host(d.Namespace, d.Name); bytes.Contains(manifests.Data, []byte("https://"+host+"/")) {
		manifests.Service = host
	}
	return manifests, nil
}

func (d Download) manifest(ctx context.Context, server *server, address string, asJSON bool) ([]byte, error) {
	accept := "application/yaml"
	if asJSON {
		accept = "application/json"
	}
	for tries := 0; ; tries++ {
		data, err := one(ctx, server, address, accept)
		var end final
		if err == nil || errors.As(err, &end) || tries >= d.Retries {
			return data, err
		}
		if err := action.Sleep(ctx, d.Pause); err != nil {
			return nil, err
		}
	}
}

func one(ctx context.Context, server *server, address, accept string) ([]byte, error) {
	response, err := server.get(ctx, address, http.Header{"Accept": {accept}})
	if err != nil {
		return nil, unreachable(err)
	}
	defer response.Body.Close()
	if err := refusal(response); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxManifests+1))
	if err == nil && len(data) > maxManifests {
		err = errors.New("the manifests are too long")
	}
	return data, err
}
