package life

// What is reported about a container whose image, or image volume, cannot be had; the kubelet's words.
const (
	ErrImagePull     = "ErrImagePull"
	ImagePullBackOff = "ImagePullBackOff"
)

// ImageTrouble returns what a container's waiting reason means where that is that its image cannot be had:
// ImagePullBackOff, or ErrImagePull, also for an image that cannot even be tried. It is empty for another reason.
func ImageTrouble(waiting string) string {
	switch waiting {
	case ImagePullBackOff:
		return ImagePullBackOff
	case ErrImagePull, "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable",
		"SignatureValidationFailed":
		return ErrImagePull
	}
	return ""
}
