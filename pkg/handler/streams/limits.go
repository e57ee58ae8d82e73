package streams

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/quota"
)

// DefaultLimits are virt-handler's: what one node's guests need many times over. virt-api has limits of its own; these
// hold whatever number of virt-apis there is.
var DefaultLimits = quota.Limits{All: 1500, PerUser: 500, PerVM: 300}

// limited refuses streams, and logs, which may be followed, beyond the limits.
func (s *Server) limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		vm, verb, ok := stream.ParseHandlerPath(r.URL.Path)
		if !ok || !stream.IsUpgrade(r) && verb != "log" {
			next.ServeHTTP(w, r)
			return
		}
		release, err := s.quota.Take(r.Header.Get("X-Remote-User"), vm.String())
		if err != nil {
			refuse(w, types.NamespacedName{}, err) // which says what it is about
			return
		}
		defer release()
		next.ServeHTTP(w, r)
	})
}
