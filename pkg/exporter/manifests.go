package exporter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/names"
)

const typeYAML, typeJSON = "application/yaml", "application/json"

// manifests answers with the VM and its DataVolumes, or with the Secret whose header CDI sends. For a client outside of
// the cluster the addresses are those that virt-exportproxy says.
func (h *handler) manifests(w http.ResponseWriter, r *http.Request, path string, external bool) {
	contentType := typeJSON
	if r.Header.Get("Accept") == typeYAML {
		contentType = typeYAML
	}
	var data []byte
	var err error
	switch {
	case path == names.ExportSecret:
		data, err = h.secret(contentType == typeYAML)
	case external:
		data, err = h.outside(r.Header, contentType == typeYAML)
	case contentType == typeYAML:
		data, err = readBelow(h.Manifests, names.ExportManifestsYAML)
	default:
		data, err = readBelow(h.Manifests, names.ExportManifestsJSON)
	}
	switch {
	case errors.Is(err, errInside):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		h.Log.Error("could not be served", "path", r.URL.Path, "err", err)
		http.Error(w, "the manifests cannot be read", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// errInside is the answer to who asks for addresses outside of the cluster past the proxy.
var errInside = errors.New("only virt-exportproxy knows the addresses outside of the cluster: use " +
	names.ExportManifests)

// outside returns the manifests for another cluster, which reads the disks where the header says.
func (h *handler) outside(header http.Header, asYAML bool) ([]byte, error) {
	address := header.Get(names.HeaderExportAddress)
	if address == "" || h.Host == "" {
		return nil, errInside
	}
	authority, err := base64.StdEncoding.DecodeString(header.Get(names.HeaderExportAuthority))
	if err != nil {
		return nil, fmt.Errorf("header %s: %w", names.HeaderExportAuthority, err)
	}
	data, err := readBelow(h.Manifests, names.ExportManifestsJSON)
	if err != nil {
		return nil, err
	}
	list, err := h.moved(data, address, string(authority))
	if err != nil {
		return nil, err
	}
	if !asYAML {
		return json.MarshalIndent(list, "", "    ")
	}
	var documents bytes.Buffer
	items, _ := list["items"].([]any)
	for _, item := range items {
		document, err := yaml.Marshal(item)
		if err != nil {
			return nil, fmt.Errorf("encode a manifest: %w", err)
		}
		documents.Write(document)
		documents.WriteString("---\n")
	}
	return documents.Bytes(), nil
}

// moved returns a list of manifests with another address of the export and another certificate. Without a certificate
// the client's system has to know who signed it.
func (h *handler) moved(data []byte, address, authority string) (map[string]any, error) {
	var list map[string]any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("decode the manifests: %w", err)
	}
	name := names.ExportAuthority + h.Name
	var kept []any
	items, _ := list["items"].([]any)
	for _, item := range items {
		object, _ := item.(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		if object["kind"] == "ConfigMap" && metadata["name"] == name {
			if authority == "" {
				continue
			}
			object["data"] = map[string]any{"ca.pem": authority}
		}
		kept = append(kept, readdressed(item, "https://"+h.Host, address, authority == "", name))
	}
	list["items"] = kept
	return list, nil
}

// readdressed replaces what begins the addresses of an export, and, if that is asked for, drops the references to the
// ConfigMap of its certificate.
func readdressed(value any, from, to string, drop bool, name string) any {
	switch value := value.(type) {
	case string:
		if rest, ok := strings.CutPrefix(value, from+"/"); ok {
			return to + "/" + rest
		}
	case []any:
		for i := range value {
			value[i] = readdressed(value[i], from, to, drop, name)
		}
	case map[string]any:
		if drop && value["certConfigMap"] == name {
			delete(value, "certConfigMap")
		}
		for key := range value {
			value[key] = readdressed(value[key], from, to, drop, name)
		}
	}
	return value
}
