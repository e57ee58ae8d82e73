package frame

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefused(t *testing.T) {
	quota := apierrors.NewForbidden(pods, "a", errors.New("exceeded quota"))
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"none":         {nil, false},
		"a quota":      {quota, true},
		"wrapped":      {fmt.Errorf("create pod: %w", quota), true},
		"validation":   {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), true},
		"a webhook":    {apierrors.NewBadRequest("admission webhook denied the request"), true},
		"conflict":     {conflict, false},
		"is there":     {apierrors.NewAlreadyExists(pods, "a"), false},
		"is gone":      {missing, false},
		"busy":         {apierrors.NewTooManyRequests("later", 1), false},
		"no network":   {errors.New("connection refused"), false},
		"among others": {errors.Join(missing, quota), true},
		"of others":    {errors.Join(missing, conflict), false},
	} {
		if got := Refused(tc.err); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
