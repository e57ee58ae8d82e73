package script

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig with a context for each way to reach the cluster, or fail to.
func (c *cluster) writeKubeconfig(dir string) error {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw})
	otherCA, _, err := selfSigned(time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	expiredCert, expiredKey, err := selfSigned(time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC))
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	add := func(name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		config.Clusters[name], config.AuthInfos[name] = cluster, user
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	here := &clientcmdapi.Cluster{Server: c.server.URL, CertificateAuthorityData: ca}
	add("fake", here, &clientcmdapi.AuthInfo{Token: tokenAdmin})
	add("viewer", here, &clientcmdapi.AuthInfo{Token: tokenViewer})
	add("expired-token", here, &clientcmdapi.AuthInfo{Token: tokenExpired})
	add("expired-cert", here, &clientcmdapi.AuthInfo{ClientCertificateData: expiredCert, ClientKeyData: expiredKey})
	add("wrong-ca", &clientcmdapi.Cluster{Server: c.server.URL, CertificateAuthorityData: otherCA},
		&clientcmdapi.AuthInfo{Token: tokenAdmin})
	add("unreachable", &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}, &clientcmdapi.AuthInfo{Token: tokenAdmin})
	add("unknown-host", &clientcmdapi.Cluster{Server: "https://nowhere.invalid:6443"},
		&clientcmdapi.AuthInfo{Token: tokenAdmin})
	bareCA := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.bare.Certificate().Raw})
	add("bare", &clientcmdapi.Cluster{Server: c.bare.URL, CertificateAuthorityData: bareCA},
		&clientcmdapi.AuthInfo{Token: tokenAdmin})
	config.CurrentContext = "fake"
	return clientcmd.WriteToFile(*config, filepath.Join(dir, "kubeconfig"))
}

// selfSigned makes a certificate and its key, in PEM.
func selfSigned(notAfter time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "someone"},
		NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}
