package streams

import (
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// firewall answers with what a guest may send on its networks.
func (s *Server) firewall(w http.ResponseWriter, r *http.Request) {
	found, err := s.Firewall(name(r))
	if err != nil {
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) { // it is this node's, and no guest's state
			err = apierrors.NewInternalError(errors.New(Words(err)))
		}
		refuse(w, name(r), err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found) // an error means that the client is gone
}
