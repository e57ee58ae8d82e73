package cdi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
)

// image is what the tests send.
var image = strings.Repeat("0123456789abcdef", 1<<14)

// upload uploads the image to claim disk, after change.
func (w *world) upload(change func(*Options)) (Stage, error) {
	w.t.Helper()
	o := Options{
		Namespace: "ns", Name: "disk", Create: &upload.Claim{Size: "1Gi", AccessMode: "ReadWriteOnce"},
		Image: strings.NewReader(image), Size: int64(len(image)), Retries: 2, Patience: 10 * time.Second,
		Poll: time.Millisecond,
	}
	var err error
	if o.Proxy, err = FindProxy(w.t.Context(), w, "", false); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(o.Proxy.client.CloseIdleConnections)
	if change != nil {
		change(&o)
	}
	return Upload(w.t.Context(), w, o)
}

// TestUpload has what is made for an image, and how the proxy is asked.
func TestUpload(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		old    bool // CDI
		made   string
		asked  []string
	}{
		"claim": {
			change: func(o *Options) { o.Labels = map[string]string{"a": "b"} },
			made: "/api/v1/namespaces/ns/persistentvolumeclaims " +
				`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{` +
				`"cdi.kubevirt.io/storage.contentType":"kubevirt","cdi.kubevirt.io/storage.upload.target":""},` +
				`"labels":{"a":"b"},"name":"disk","namespace":"ns"},"spec":{"accessModes":["ReadWriteOnce"],` +
				`"resources":{"requests":{"storage":"1Gi"}}}}`,
			asked: []string{
				"HEAD /v1beta1/upload-async Bearer token-1", "POST /v1beta1/upload-async Bearer token-1",
			},
		},
		"claim, bound at once": {
			change: func(o *Options) {
				o.ForceBind, o.Archive = true, true
				o.Create = &upload.Claim{
					Size: "1Gi", AccessMode: "ReadWriteMany", VolumeMode: "Block", StorageClass: "fast",
				}
			},
			old: true,
			made: "/api/v1/namespaces/ns/persistentvolumeclaims " +
				`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"annotations":{` +
				`"cdi.kubevirt.io/storage.bind.immediate.requested":"",` +
				`"cdi.kubevirt.io/storage.contentType":"archive","cdi.kubevirt.io/storage.upload.target":""},` +
				`"name":"disk","namespace":"ns"},"spec":{"accessModes":["ReadWriteMany"],"resources":` +
				`{"requests":{"storage":"1Gi"}},"storageClassName":"fast","volumeMode":"Block"}}`,
			asked: []string{"HEAD /v1beta1/upload-async Bearer token-1", "POST /v1beta1/upload Bearer token-1"},
		},
		"DataVolume": {
			change: func(o *Options) { o.DataVolume, o.Create = true, &upload.Claim{Size: "1Gi"} },
			made: "/apis/cdi.kubevirt.io/v1beta1/namespaces/ns/datavolumes " +
				`{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"DataVolume","metadata":{"name":"disk","namespace":"ns"},` +
				`"spec":{"contentType":"kubevirt","source":{"upload":{}},"storage":{"resources":` +
				`{"requests":{"storage":"1Gi"}}}}}`,
			asked: []string{
				"HEAD /v1beta1/upload-async Bearer token-1", "POST /v1beta1/upload-async Bearer token-1",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.async = !test.old
			var shown int64
			stage, err := w.upload(func(o *Options) {
				o.Show = func(sent int64) { shown = sent }
				test.change(o)
			})
			if err != nil || stage != Done || w.got != image || shown != int64(len(image)) {
				t.Fatalf("%v, %v, %d bytes, %d shown", stage, err, len(w.got), shown)
			}
			if len(w.made) != 1 || w.made[0] != test.made {
				t.Errorf("made %q", w.made)
			}
			if !slices.Equal(w.asked, test.asked) {
				t.Errorf("asked %q", w.asked)
			}
		})
	}
}

// TestTrust: nobody but the proxy gets the token, unless that is said.
func TestTrust(t *testing.T) {
	foreign := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("it was asked")
		w.WriteHeader(http.StatusOK)
	}))
	defer foreign.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	}))
	defer plain.Close()
	w := newWorld(t)
	w.objects[configPath]["status"].(map[string]any)["uploadProxyCA"] = ""
	for address, want := range map[string]string{
		"": "its certificate is of an authority that this machine does not know",
		strings.Replace(plain.URL, "http:", "https:", 1): "it does not speak TLS",
		foreign.URL: "its certificate is of an authority that this machine does not know",
	} {
		_, err := w.upload(func(o *Options) {
			var err error
			if o.Proxy, err = FindProxy(t.Context(), w, address, false); err != nil {
				t.Fatal(err)
			}
		})
		var untrusted *CertificateError
		if !errors.As(err, &untrusted) || !strings.Contains(err.Error(), want) || len(w.asked) > 0 {
			t.Errorf("%q: %v, asked %q", address, err, w.asked)
		}
	}
	stage, err := w.upload(func(o *Options) {
		var err error
		if o.Proxy, err = FindProxy(t.Context(), w, w.proxy.URL, true); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil || stage != Done {
		t.Errorf("insecure: %v, %v", stage, err)
	}
	// The certificate is of another name.
	w = newWorld(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(w.proxy.URL, "https://"), ":")
	w.objects[configPath]["status"].(map[string]any)["uploadProxyURL"] = "https://localhost:" + port
	var untrusted *CertificateError
	if _, err := w.upload(nil); !errors.As(err, &untrusted) || !strings.Contains(err.Error(), "localhost") {
		t.Errorf("of another name: %v", err)
	}
}

// A proxy that is not there is said at once, with its host, and not asked again.
func TestUnreachable(t *testing.T) {
	w := newWorld(t)
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()
	_, err := w.upload(func(o *Options) {
		var err error
		if o.Proxy, err = FindProxy(t.Context(), w, gone.URL, false); err != nil {
			t.Fatal(err)
		}
	})
	var host *action.HostError
	if !errors.As(err, &host) || host.Host != strings.TrimPrefix(gone.URL, "https://") || w.tokens != 1 {
		t.Errorf("%v, %d tokens", err, w.tokens)
	}
}

func TestFindProxy(t *testing.T) {
	for address, want := range map[string]string{
		"proxy.example.com":                                  "https://proxy.example.com",
		"proxy.example.com:8443":                             "https://proxy.example.com:8443",
		"https://proxy.example.com/":                         "https://proxy.example.com",
		"https://proxy.example.com/v1beta1/upload":           "https://proxy.example.com",
		"https://proxy.example.com/cdi/v1beta1/upload-async": "https://proxy.example.com/cdi",
		"http://proxy.example.com":                           "http shows the upload's token to others",
		"ftp://proxy.example.com":                            "it has not https",
		"https://":                                           "write one such as",
		"https://me@proxy.example.com":                       "write one such as",
		"https://proxy.example.com?x=y":                      "write one such as",
		"":                                                   "https://",
	} {
		w := newWorld(t)
		p, err := FindProxy(t.Context(), w, address, false)
		var wrong *AddressError
		switch {
		case err == nil && !strings.HasPrefix(p.base.String(), want):
			t.Errorf("%q: %s", address, p.base)
		case err != nil && (!errors.As(err, &wrong) || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v", address, err)
		}
	}
	w := newWorld(t)
	w.objects[configPath] = map[string]any{}
	if _, err := FindProxy(t.Context(), w, "", false); !errors.Is(err, ErrNoProxy) {
		t.Errorf("no address: %v", err)
	}
	w.refuse["GET "+configPath] = apierrors.NewForbidden(schema.GroupResource{}, "config", nil)
	if _, err := FindProxy(t.Context(), w, "", false); !errors.Is(err, ErrNoProxy) {
		t.Errorf("not to be read: %v", err)
	}
	if _, err := FindProxy(t.Context(), w, "proxy.example.com", false); err != nil {
		t.Errorf("not to be read, and given: %v", err)
	}
}

// A token that may not be had ends the upload with the API server's reason.
func TestTokenForbidden(t *testing.T) {
	w := newWorld(t)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: Tokens}, "", nil)
	w.refuse["POST "+UploadGroup+"/namespaces/ns/uploadtokenrequests"] = forbidden
	if _, err := w.upload(nil); !apierrors.IsForbidden(err) || len(w.asked) > 0 {
		t.Errorf("%v, asked %q", err, w.asked)
	}
}

// Nothing is made and sent once the user has ended the command.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	proxy, err := FindProxy(ctx, w, "", false)
	if err != nil {
		t.Fatal(err)
	}
	w.answer = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			_, _ = io.CopyN(io.Discard, r.Body, 1)
			cancel()
			panic(http.ErrAbortHandler)
		}
		return false
	}
	stage, err := Upload(ctx, w, Options{
		Namespace: "ns", Name: "disk", Create: &upload.Claim{Size: "1Gi"}, Image: strings.NewReader(image),
		Size: int64(len(image)), Retries: 5, Patience: time.Minute, Poll: time.Millisecond, Proxy: proxy,
	})
	if !errors.Is(err, context.Canceled) || stage != Made || w.tokens != 1 {
		t.Errorf("%v, %v, %d tokens", stage, err, w.tokens)
	}
}
