package streams

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/stream"
)

func TestFirewall(t *testing.T) {
	s := &Server{Log: slog.New(slog.DiscardHandler)}
	s.Firewall = func(vmi types.NamespacedName) (*nwfilter.Filter, error) {
		switch vmi.Name {
		case "gone":
			return nil, stream.NewNotRunning("it does not run")
		case "broken":
			return nil, errors.New("no table")
		}
		return &nwfilter.Filter{Interfaces: []nwfilter.Interface{{Name: vmi.Name}}}, nil
	}
	for name, code := range map[string]int{"demo": http.StatusOK, "gone": 0, "broken": http.StatusInternalServerError} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet,
			"/v1/namespaces/ns/virtualmachineinstances/"+name+"/firewall", nil))
		var found nwfilter.Filter
		switch {
		case code != 0 && w.Code != code, code == 0 && w.Code < 400:
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		case code == http.StatusOK:
			if err := json.Unmarshal(w.Body.Bytes(), &found); err != nil || found.Interfaces[0].Name != "demo" {
				t.Errorf("%s: %v %+v", name, err, found)
			}
		}
	}
}
