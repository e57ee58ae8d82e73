package cdi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/upload"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// lateHint is what helps where a class waits for the first pod that uses a claim.
const lateHint = "its storage class waits for a first pod; add --force-bind to have it bound for the upload"

// waitReady waits until CDI's pod can take the image.
func (u *uploading) waitReady(ctx context.Context) error {
	began, said := time.Now(), false
	for {
		claim, dv, err := u.read(ctx)
		switch {
		case err != nil && !passes(err):
			return err
		case err != nil:
		case u.DataVolume && dv != nil:
			ready, failed := u.volumeReady(dv)
			if failed != nil {
				return failed
			}
			if ready {
				u.note(claim)
				return nil
			}
		case !u.DataVolume && claim != nil:
			if ready, _ := strconv.ParseBool(claim.Annotations[annotationPodReady]); ready {
				u.note(claim)
				return nil
			}
			if claim.Annotations[annotationPodPhase] == succeeded {
				return errHasImage
			}
		}
		waited := time.Since(began)
		if u.Waits != nil && !said && waited > min(15*time.Second, u.Patience/2) {
			said = true
			u.Waits(u.waitsFor(ctx, claim, dv))
		}
		if waited > u.Patience {
			if err != nil {
				return err
			}
			return fmt.Errorf("%w: CDI's pod has not been ready for %s: %s", action.ErrTimeout, u.Patience,
				u.waitsFor(ctx, claim, dv))
		}
		if err := action.Sleep(ctx, u.Poll); err != nil {
			return err
		}
	}
}

// note notes what is true of the claim before the image is sent.
func (u *uploading) note(claim *corev1.PersistentVolumeClaim) {
	if claim != nil {
		u.restarts = claim.Annotations[annotationPodRestarts]
	}
}

// volumeReady reports whether a DataVolume takes the image; an error says that it will not.
func (u *uploading) volumeReady(dv *cdiv1.DataVolume) (bool, error) {
	switch dv.Status.Phase {
	case cdiv1.UploadReady:
		return true, nil
	case cdiv1.Succeeded:
		return false, errHasImage
	case cdiv1.Failed:
		return false, errors.New(claims.Trouble(dv))
	case cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation:
		if !u.ForceBind {
			return false, errors.New(lateHint)
		}
	}
	return false, nil
}

// waitsFor returns why CDI's pod is not ready, as far as somebody says it.
func (u *uploading) waitsFor(ctx context.Context, claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) string {
	if dv != nil && claims.Trouble(dv) != "" {
		return claims.Trouble(dv)
	}
	if warning := upload.Warning(ctx, u.api, u.Namespace, u.Name); warning != "" {
		return warning
	}
	if claim != nil {
		if said := cmp.Or(claim.Annotations[annotationRunning], claim.Annotations[annotationBound]); said != "" {
			return "CDI says: " + said
		}
	}
	switch {
	case claim == nil:
		return "its claim is not there yet"
	case claim.Status.Phase == corev1.ClaimPending && !u.ForceBind:
		return "the claim is not bound; if " + lateHint
	case dv != nil:
		return fmt.Sprintf("the DataVolume is %s", claims.Phase(dv))
	}
	return "CDI says nothing of it; is it running?"
}

// mostWriting bounds how long CDI may write an image that it has.
const mostWriting = 24 * time.Hour

// waitWritten waits until the image that was sent is on the claim. CDI's pod begins anew when it cannot use the image.
func (u *uploading) waitWritten(ctx context.Context) error {
	began, failing := time.Now(), time.Time{}
	for {
		claim, dv, err := u.read(ctx)
		switch {
		case err != nil && !passes(err):
			return err
		case err != nil:
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing) > u.Patience {
				return err
			}
		case claim == nil && dv == nil:
			return errors.New("it was deleted while CDI wrote the image to it")
		default:
			failing = time.Time{}
			if done, err := u.written(claim, dv); done || err != nil {
				return err
			}
		}
		if time.Since(began) > mostWriting {
			return fmt.Errorf("%w: CDI has written to it for %s", action.ErrTimeout, mostWriting)
		}
		if err := action.Sleep(ctx, u.Poll); err != nil {
			return err
		}
	}
}

// errUnused is a pod of CDI's that began anew instead of writing the image.
var errUnused = errors.New("CDI could not use the image")

// written reports whether the image is on the claim; an error says that it will not be.
func (u *uploading) written(claim *corev1.PersistentVolumeClaim, dv *cdiv1.DataVolume) (bool, error) {
	if dv != nil {
		switch dv.Status.Phase {
		case cdiv1.Succeeded:
			return true, nil
		case cdiv1.Failed:
			return false, errors.New(claims.Trouble(dv))
		}
	}
	if claim == nil {
		return false, nil
	}
	if claim.Annotations[annotationPodPhase] == succeeded {
		return true, nil
	}
	before, _ := strconv.Atoi(u.restarts) // "" is none
	now, _ := strconv.Atoi(claim.Annotations[annotationPodRestarts])
	if now > before {
		return false, fmt.Errorf("%w: %s", errUnused,
			cmp.Or(claim.Annotations[annotationRunning], "its pod has ended, and does not say why"))
	}
	return false, nil
}

// passes reports whether an error of the API server's may be over soon.
func passes(err error) bool {
	return !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err)
}
