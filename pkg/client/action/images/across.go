package images

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/clones"
)

// SplitNamespace takes the namespace from NAMESPACE/NAME/VERSION; it is empty for NAME and NAME/VERSION, which are of
// the namespace that is asked.
func SplitNamespace(ref string) (namespace, image string, err error) {
	if strings.Count(ref, "/") < 2 {
		return "", ref, nil
	}
	namespace, image, _ = strings.Cut(ref, "/")
	if problems := content.IsDNS1123Label(namespace); len(problems) > 0 {
		return "", "", fmt.Errorf("%q is no namespace: %s", cut(namespace), problems[0])
	}
	return namespace, image, nil
}

// Across returns the VirtualMachineClone, called name, that copies an image of another namespace to a claim of that
// name, as large or, if size is not empty, larger. virt-controller makes the copy, of a snapshot of the image's volume.
func Across(image *corev1.PersistentVolumeClaim, name, size string) *clonev1beta1.VirtualMachineClone {
	out := &clonev1beta1.VirtualMachineClone{
		TypeMeta: metav1.TypeMeta{
			APIVersion: clonev1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineClone",
		},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{clones.NamespaceAnnotation: image.Namespace},
		},
		Spec: clonev1beta1.VirtualMachineCloneSpec{
			Source: &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: image.Name},
			Target: &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: name},
		},
	}
	if size != "" {
		out.Annotations[clones.SizeAnnotation] = size
	}
	return out
}
