package endpoint

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestGuard(t *testing.T) {
	known := func(r *http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "prometheus"}}, true, nil
	}
	for name, test := range map[string]struct {
		who  authenticator.RequestFunc
		may  authorizer.Decision
		err  error
		want int
	}{
		"nobody": {
			who:  func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil },
			want: http.StatusUnauthorized,
		},
		"a false token": {
			who:  func(*http.Request) (*authenticator.Response, bool, error) { return nil, false, errors.New("bad") },
			want: http.StatusUnauthorized,
		},
		"without right": {who: known, may: authorizer.DecisionNoOpinion, want: http.StatusForbidden},
		"denied":        {who: known, may: authorizer.DecisionDeny, want: http.StatusForbidden},
		"no answer": {
			who: known, may: authorizer.DecisionAllow, err: errors.New("down"), want: http.StatusServiceUnavailable,
		},
		"with the right": {who: known, may: authorizer.DecisionAllow, want: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			may := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes,
			) (authorizer.Decision, string, error) {
				if a.IsResourceRequest() || a.GetPath() != Path || a.GetVerb() != "get" ||
					a.GetUser().GetName() != "prometheus" {
					t.Errorf("asked for %+v", a)
				}
				return test.may, "", test.err
			})
			w := httptest.NewRecorder()
			guard(test.who, may, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).
				ServeHTTP(w, httptest.NewRequest(http.MethodGet, Path, nil))
			if w.Code != test.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body, test.want)
			}
		})
	}
}
