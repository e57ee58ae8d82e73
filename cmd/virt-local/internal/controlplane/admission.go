package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/pki"
)

// webhookServer is the one server to which the API server shows who it is: virt-api, whose ConfigMap
// kubevirt-webhook-clients lets nobody else call.
const webhookServer = "virt-api.kubevirt.svc"

// admissionFile is where the API server reads how to call webhooks.
const admissionFile = "admission.yaml"

// writeAdmission gives the API server a client certificate for webhooks, in the working directory.
func writeAdmission() error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	keys := pki.Dir{Path: filepath.Join(dir, "pki")}
	config := api.NewConfig()
	config.AuthInfos[webhookServer] = &api.AuthInfo{
		ClientCertificate: keys.Crt(pki.Webhooks),
		ClientKey:         keys.Key(pki.Webhooks),
	}
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write kubeconfig for webhooks: %w", err)
	}
	path := filepath.Join(dir, "pki", pki.Webhooks+".kubeconfig")
	if err := instance.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	return instance.WriteFile(admissionFile, fmt.Appendf(nil, admissionConfig, path, path), 0o644)
}

const admissionConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %q
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %q
`
