package pki

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(b)
	}
	return all
}

func changed(before, after map[string]string) map[string]bool {
	names := map[string]bool{}
	for name, content := range after {
		if before[name] != content {
			names[name] = true
		}
	}
	return names
}

func TestEnsure(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	d := Dir{Path: t.TempDir(), Now: func() time.Time { return now }}
	certs := append(ControlPlane("10.99.0.1", "10.192.0.1"), Node("node1", "10.99.0.11")...)
	ensure := func() {
		t.Helper()
		if err := d.Ensure(certs); err != nil {
			t.Fatal(err)
		}
	}
	ensure()
	ca, _, err := d.load(CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for _, c := range certs {
		crt, _, err := d.load(c.Name)
		if err != nil {
			t.Fatal(err)
		}
		if c.Authority != CA {
			continue
		}
		usage := x509.ExtKeyUsageClientAuth
		if c.Server {
			usage = x509.ExtKeyUsageServerAuth
		}
		if _, err := crt.Verify(x509.VerifyOptions{
			Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		}); err != nil {
			t.Errorf("%s: %v", c.Name, err)
		}
		for _, ip := range c.IPs {
			if err := crt.VerifyHostname(net.ParseIP(ip).String()); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	server, _, err := d.load(FrontProxy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}); err == nil {
		t.Error("the front proxy's certificate is good for a client of the API server too")
	}

	before := contents(t, d.Path)
	ensure()
	if c := changed(before, contents(t, d.Path)); len(c) != 0 {
		t.Errorf("a second time changes %v", c)
	}

	// Other addresses: only that certificate is new.
	certs[0].IPs = append(certs[0].IPs, "192.0.2.1")
	ensure()
	after := contents(t, d.Path)
	if c := changed(before, after); len(c) != 2 || !c[APIServer+".crt"] {
		t.Errorf("another address changes %v", c)
	}

	// A crash between the two writes of a pair.
	if err := os.WriteFile(d.Key(Admin), []byte(after[Scheduler+".key"]), 0o600); err != nil {
		t.Fatal(err)
	}
	ensure()
	if _, _, err := d.load(Admin); err != nil {
		t.Errorf("a torn pair stays: %v", err)
	}

	// Near their end all are new, except the service account key, which would end all tokens.
	before = contents(t, d.Path)
	now = now.Add(lifetime - renewBefore/2)
	ensure()
	c := changed(before, contents(t, d.Path))
	if !c["ca.crt"] || !c["apiserver.crt"] || c["service-account.key"] || c["service-account.pub"] {
		t.Errorf("near the end changes %v", c)
	}
}
