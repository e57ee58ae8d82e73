package streams

import (
	"encoding/json"
	"net/http"
)

// firewall answers with what a guest may send on its networks.
func (s *Server) firewall(w http.ResponseWriter, r *http.Request) {
	found, err := s.Firewall(name(r))
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found) // an error means that the client is gone
}
