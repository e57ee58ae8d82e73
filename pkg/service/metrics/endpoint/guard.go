package endpoint

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// rememberYes and rememberNo are how long the API server's answers count: a scrape every half a minute asks it
	// every other time.
	rememberYes, rememberNo = time.Minute, 10 * time.Second
	// askTimeout bounds one question to the API server.
	askTimeout = 5 * time.Second
)

// guarded asks the API server about each caller (TokenReview, SubjectAccessReview).
func (e *Endpoint) guarded(cluster *rest.Config) (http.Handler, error) {
	client, err := rest.HTTPClientFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	tokens, err := authenticationv1.NewForConfigAndClient(cluster, client)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	access, err := authorizationv1.NewForConfigAndClient(cluster, client)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	again := &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}
	who, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: false}, TokenAccessReviewClient: tokens,
		TokenAccessReviewTimeout: askTimeout, CacheTTL: rememberYes, WebhookRetryBackoff: again,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("set up authentication: %w", err)
	}
	may, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: access, AllowCacheTTL: rememberYes, DenyCacheTTL: rememberNo,
		WebhookRetryBackoff: again,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("set up authorization: %w", err)
	}
	return guard(who, may, e), nil
}

// guard lets those through who are known and may.
func guard(who authenticator.Request, may authorizer.Authorizer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, ok, err := who.AuthenticateRequest(r)
		if err != nil || !ok {
			klog.V(4).InfoS("metrics asked for by nobody known", "err", err)
			http.Error(w, "a token is needed, which the API server knows: Authorization: Bearer TOKEN",
				http.StatusUnauthorized)
			return
		}
		decision, reason, err := may.Authorize(r.Context(),
			authorizer.AttributesRecord{User: caller.User, Verb: "get", Path: r.URL.Path})
		switch {
		case err != nil:
			klog.ErrorS(err, "the API server does not say who may read metrics")
			http.Error(w, "the API server does not say whether you may", http.StatusServiceUnavailable)
		case decision != authorizer.DecisionAllow:
			klog.V(4).InfoS("metrics refused", "user", caller.User.GetName(), "reason", reason)
			http.Error(w, fmt.Sprintf("%s may not get the path %s: bind the ClusterRole kubevirt.io:metrics-reader",
				caller.User.GetName(), r.URL.Path), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
