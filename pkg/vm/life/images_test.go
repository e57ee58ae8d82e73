package life

import "testing"

func TestImageTrouble(t *testing.T) {
	for waiting, want := range map[string]string{
		"": "", "ContainerCreating": "", "PodInitializing": "", "CreateContainerError": "",
		"CreateContainerConfigError": "", "CrashLoopBackOff": "",
		"ImagePullBackOff": "ImagePullBackOff", "ErrImagePull": "ErrImagePull", "ErrImageNeverPull": "ErrImagePull",
		"InvalidImageName": "ErrImagePull", "ImageInspectError": "ErrImagePull", "RegistryUnavailable": "ErrImagePull",
		"SignatureValidationFailed": "ErrImagePull",
	} {
		if got := ImageTrouble(waiting); got != want {
			t.Errorf("%s: %q, want %q", waiting, got, want)
		}
	}
}
