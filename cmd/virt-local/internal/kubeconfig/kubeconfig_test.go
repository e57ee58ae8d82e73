package kubeconfig

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const others = `apiVersion: v1
kind: Config
preferences: {}
current-context: work
clusters:
- name: work
  cluster: {server: https://work.example:6443}
users:
- name: me
  user: {token: secret}
contexts:
- name: work
  context: {cluster: work, user: me, namespace: mine}
`

var credentials = Credentials{
	Server: "https://10.99.0.1:6443", CA: []byte("ca"), Certificate: []byte("crt"), CertificateKey: []byte("key"),
}

func TestMergeAndRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(others), 0o640); err != nil {
		t.Fatal(err)
	}
	merge := func(cfg *api.Config) { Merge(cfg, "virt-local", credentials) }
	if err := Update(path, merge); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.CurrentContext != "virt-local" || cfg.Clusters["virt-local"].Server != credentials.Server ||
		cfg.Contexts["work"].Namespace != "mine" || cfg.AuthInfos["me"].Token != "secret" {
		t.Fatalf("merged %+v", cfg)
	}
	// What the user does to the context stays, and merging again writes nothing.
	if err := Update(path, func(cfg *api.Config) { cfg.Contexts["virt-local"].Namespace = "vms" }); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Update(path, merge); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("merging again writes the file (%v)", err)
	}
	if err := Update(path, func(cfg *api.Config) { Remove(cfg, "virt-local") }); err != nil {
		t.Fatal(err)
	}
	cfg, err = clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Clusters) != 1 || len(cfg.AuthInfos) != 1 || len(cfg.Contexts) != 1 || cfg.CurrentContext != "" {
		t.Errorf("removed %+v", cfg)
	}
}

func TestNewFileGoesAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "config")
	if err := Update(path, func(cfg *api.Config) { Merge(cfg, "x", credentials) }); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", st.Mode(), err)
	}
	if err := Update(path, func(cfg *api.Config) { Remove(cfg, "x") }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the empty file is left: %v", err)
	}
	if err := Update(path, func(cfg *api.Config) { Remove(cfg, "x") }); err != nil {
		t.Errorf("removing from no file: %v", err)
	}
}

func TestRefusesABrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	const broken = "clusters: [}"
	if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Update(path, func(cfg *api.Config) { Merge(cfg, "x", credentials) }); err == nil {
		t.Error("a broken kubeconfig was overwritten")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != broken {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.WriteFile(real, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if err := Update(link, func(cfg *api.Config) { Merge(cfg, "x", credentials) }); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); err != nil || target != real {
		t.Errorf("the link was replaced: %q, %v", target, err)
	}
}
