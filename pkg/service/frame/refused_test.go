package frame

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtkit/virtkit/pkg/names"
)

// closed is virt-api's refusal of what a feature gate would allow.
var closed = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: names.ReasonGateClosed, Message: "not enabled",
}}

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
		"a gate":       {closed, true},
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

func TestMalformed(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"none":       {nil, false},
		"a quota":    {apierrors.NewForbidden(pods, "a", errors.New("exceeded quota")), false},
		"validation": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), true},
		"a webhook":  {fmt.Errorf("create pod: %w", apierrors.NewBadRequest("denied the request")), true},
		"a gate":     {fmt.Errorf("create restore: %w", closed), false},
		"conflict":   {conflict, false},
	} {
		if got := Malformed(tc.err); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestEnding(t *testing.T) {
	ending := apierrors.NewForbidden(pods, "a", errors.New("namespace is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"none":         {nil, false},
		"a quota":      {apierrors.NewForbidden(pods, "a", errors.New("exceeded quota")), false},
		"as it comes":  {ending, true},
		"wrapped":      {fmt.Errorf("create pod: %w", ending), true},
		"is not there": {missing, false},
	} {
		if got := Ending(tc.err); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
