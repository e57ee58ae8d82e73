// Package kubeconfig writes the kubeconfigs of an instance: one for each of its own components, and the
// entries in the user's file, which `up` merges in and `down` takes out, touching nothing else.
package kubeconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// Credentials are what it takes to talk to a cluster: where, and PEM-encoded as whom.
type Credentials struct {
	Server                          string
	CA, Certificate, CertificateKey []byte
}

// Load reads the credentials of the certificate `name` in a PKI directory.
func Load(server, pkiDir, name string) (Credentials, error) {
	c := Credentials{Server: server}
	for file, into := range map[string]*[]byte{"ca.crt": &c.CA, name + ".crt": &c.Certificate, name +
		".key": &c.CertificateKey} {
		b, err := os.ReadFile(filepath.Join(pkiDir, file))
		if err != nil {
			return c, fmt.Errorf("read credentials: %w", err)
		}
		*into = b
	}
	return c, nil
}

// Config returns a whole kubeconfig whose only context is called name.
func (c Credentials) Config(name string) *api.Config {
	cfg := api.NewConfig()
	Merge(cfg, name, c)
	return cfg
}

// WriteFile writes a kubeconfig of its own to path.
func (c Credentials) WriteFile(path, name string) error {
	b, err := clientcmd.Write(*c.Config(name))
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return instance.WriteFile(path, b, 0o600)
}

// Merge puts the cluster, user and context `name` into cfg, replacing earlier ones of that name, and makes
// the context the current one.
func Merge(cfg *api.Config, name string, c Credentials) {
	cfg.Clusters[name] = &api.Cluster{Server: c.Server, CertificateAuthorityData: c.CA}
	cfg.AuthInfos[name] = &api.AuthInfo{ClientCertificateData: c.Certificate, ClientKeyData: c.CertificateKey}
	namespace := ""
	if old := cfg.Contexts[name]; old != nil {
		namespace = old.Namespace
	}
	cfg.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	cfg.CurrentContext = name
}

// Remove takes out what Merge put in.
func Remove(cfg *api.Config, name string) {
	delete(cfg.Clusters, name)
	delete(cfg.AuthInfos, name)
	delete(cfg.Contexts, name)
	if cfg.CurrentContext == name {
		cfg.CurrentContext = ""
	}
}

// UserPath returns the user's kubeconfig: the first file of $KUBECONFIG, else ~/.kube/config. Under sudo it is
// still root's, unless $KUBECONFIG was kept.
func UserPath() string {
	for _, path := range filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar)) {
		if path != "" {
			return path
		}
	}
	return clientcmd.RecommendedHomeFile
}

// Update reads the file at path (a missing one is empty), lets change alter it, and writes it back if that
// made a difference, with the owner it had. A file left without any entry is removed.
func Update(path string, change func(*api.Config)) error {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	existed := err == nil
	cfg, err := clientcmd.Load(before)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	untouched, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	change(cfg)
	after, err := clientcmd.Write(*cfg)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if string(after) == string(untouched) {
		return nil
	}
	if existed && len(cfg.Clusters)+len(cfg.AuthInfos)+len(cfg.Contexts)+len(cfg.Extensions) == 0 {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove the empty kubeconfig: %w", err)
		}
		return nil
	}
	return write(path, after, existed)
}

func write(path string, content []byte, existed bool) error {
	owner, err := ownerFor(path, existed)
	if err != nil {
		return err
	}
	made, err := mkdirOwned(filepath.Dir(path), owner)
	if err != nil {
		return fmt.Errorf("make %s: %w", made, err)
	}
	if err := instance.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	if err := os.Chown(path, owner.uid, owner.gid); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// Context describes how to use the entries in path: "" when they are where kubectl looks anyway.
func Context(path string) string {
	if path == clientcmd.RecommendedHomeFile && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" ||
		strings.HasPrefix(os.Getenv(clientcmd.RecommendedConfigPathEnvVar), path) {
		return ""
	}
	return "export KUBECONFIG=" + path
}
