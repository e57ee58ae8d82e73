package handler

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/virtkit/virtkit/pkg/handler/migrationproxy"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
)

// guards returns what the node that the guest migrates to is told of the guest's addresses; "" for nothing. It comes
// from this node's own record: what the API says of a guest's addresses may be the guest's word.
func (s *session) guards() (string, error) {
	plan, err := s.node.plans.Load(s.target.Pod)
	if err != nil || plan == nil {
		return "", err
	}
	of := plan.Guards(s.target.Annotations)
	if len(of) == 0 {
		return "", nil
	}
	text, err := json.Marshal(of)
	if err != nil {
		return "", fmt.Errorf("encode the guest's addresses: %w", err)
	}
	if len(text) > migrationproxy.MaxGuards {
		s.log.Warn("the guest has more addresses than the next node is told of")
		return "", nil
	}
	return string(text), nil
}

// parseGuards reads what another node says of a guest's addresses.
func parseGuards(text string) (map[string]network.Guard, error) {
	var of map[string]network.Guard
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		return nil, fmt.Errorf("read what the guest may say of itself: %w", err)
	}
	return of, nil
}

// errNoNetwork is a pod whose network is not ready for a guest that comes.
var errNoNetwork = errors.New("the network of the guest's pod is not ready")

// admit bounds the guest that comes by what the node that it comes from says of its addresses, before it runs here.
func (s *session) admit(text string) error {
	of, err := parseGuards(text)
	if err != nil {
		return err
	}
	s.admitting.Lock()
	defer s.admitting.Unlock()
	plan, err := s.node.plans.Load(s.target.Pod)
	if err != nil {
		return err
	}
	if plan == nil {
		return errNoNetwork
	}
	if !plan.Admit(of) {
		return nil
	}
	// First: whoever makes the pod's network anew makes these rules, too.
	if err := s.node.plans.Save(s.target.Pod, plan); err != nil {
		return err
	}
	ns, err := s.netns()
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := apply.Guard(ns, *plan); err != nil {
		return err
	}
	s.publish(false, func(o *observation) { o.Plan = plan })
	return nil
}
