package cdi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Token is what a request to the upload proxy must have; InstallUploads has each UploadTokenRequest answered with it.
const Token = "stand-in"

// port is where an upload's pod takes the image: its size in decimal on a line, and the bytes. It answers on a line
// when the image is on the claim.
const port = 8080

// Uploader fills the DataVolumes of a namespace whose source is an upload: with a pod that takes the image and converts
// it into the claim. It binds the claim by that pod. As an http.Handler it is CDI's upload proxy, for one upload at a
// time.
type Uploader struct {
	Client    client.WithWatch
	Namespace string
	// Tools is an image with busybox and qemu-img.
	Tools string
	// Dial opens a stream to a port of a pod.
	Dial func(ctx context.Context, namespace, pod string, port uint16) (net.Conn, error)
}

// Run works until ctx ends, which is no error.
func (u *Uploader) Run(ctx context.Context) error { return follow(ctx, u.Client, u.Namespace, u.fill) }

func podOf(dv *cdiv1.DataVolume) string { return "cdi-upload-" + dv.Name }

func (u *Uploader) fill(ctx context.Context, dv *cdiv1.DataVolume, pods []corev1.Pod) error {
	if dv.Spec.Source == nil || dv.Spec.Source.Upload == nil {
		return nil
	}
	if dv.Status.Phase == "" {
		if _, err := Claim(ctx, u.Client, dv); err != nil {
			return err
		}
		if err := u.Client.Create(ctx, u.pod(dv)); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return SetPhase(ctx, u.Client, dv, cdiv1.UploadScheduled)
	}
	for i := range pods {
		if pods[i].Name != podOf(dv) {
			continue
		}
		status := pods[i].Status
		switch {
		case dv.Status.Phase == cdiv1.UploadScheduled && len(status.ContainerStatuses) == 1 &&
			status.ContainerStatuses[0].Ready:
			return SetPhase(ctx, u.Client, dv, cdiv1.UploadReady)
		case dv.Status.Phase == cdiv1.UploadReady && status.Phase == corev1.PodSucceeded:
			return SetPhase(ctx, u.Client, dv, cdiv1.Succeeded)
		case dv.Status.Phase != cdiv1.Failed && status.Phase == corev1.PodFailed:
			return SetPhase(ctx, u.Client, dv, cdiv1.Failed)
		}
	}
	return nil
}

// pod takes one image, and makes the disk somewhat larger than a small guest's.
func (u *Uploader) pod(dv *cdiv1.DataVolume) *corev1.Pod {
	const take = `read size && /usr/bin/busybox head -c "$size" >/scratch/image && ` +
		"qemu-img convert -O raw /scratch/image /target/disk.img && " +
		"qemu-img resize -q -f raw /target/disk.img 420M && echo done"
	pod := converter(dv, podOf(dv), u.Tools,
		fmt.Sprintf("exec /usr/bin/busybox nc -l -p %d -e /usr/bin/busybox sh -c '%s'", port, take))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
	container := &pod.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts,
		corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
	// A probe that connects would be taken for the upload.
	container.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		Exec: &corev1.ExecAction{Command: []string{
			"/usr/bin/busybox", "grep", "-q", fmt.Sprintf(":%04X ", port), "/proc/net/tcp", "/proc/net/tcp6",
		}},
	}}
	return pod
}

// ServeHTTP is the upload proxy.
func (u *Uploader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "Bearer "+Token:
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path != "/v1beta1/upload-async":
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodHead:
		if err := u.forget(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	default:
		if err := u.take(r); err != nil {
			http.Error(w, "Saving stream failed: "+err.Error(), http.StatusInternalServerError) // as CDI says
		}
	}
}

// forget deletes the UploadTokenRequests, which CDI does not store: the next of that name could not be made.
func (u *Uploader) forget(ctx context.Context) error {
	request := &unstructured.Unstructured{}
	request.SetAPIVersion("upload.cdi.kubevirt.io/v1beta1")
	request.SetKind("UploadTokenRequest")
	return u.Client.DeleteAllOf(ctx, request, client.InNamespace(u.Namespace))
}

// take passes the image on to the pod of the DataVolume that waits for one.
func (u *Uploader) take(r *http.Request) error {
	ctx := r.Context()
	var dvs cdiv1.DataVolumeList
	if err := u.Client.List(ctx, &dvs, client.InNamespace(u.Namespace)); err != nil {
		return err
	}
	for i := range dvs.Items {
		if dvs.Items[i].Status.Phase != cdiv1.UploadReady {
			continue
		}
		conn, err := u.Dial(ctx, u.Namespace, podOf(&dvs.Items[i]), port)
		if err != nil {
			return err
		}
		defer conn.Close()
		image := io.MultiReader(strings.NewReader(fmt.Sprintln(r.ContentLength)), r.Body)
		if _, err := io.Copy(conn, image); err != nil {
			return err
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if answer != "done\n" {
			return fmt.Errorf("the pod says %q: %w", answer, errors.Join(err, io.EOF))
		}
		return nil
	}
	return errors.New("no DataVolume waits for an image")
}
