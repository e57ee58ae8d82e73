package names

// Reasons in the status of a VMI or VM by which virtctl knows what to advise.
const (
	// ReasonGuestCrashed and those after it are reasons of a VMI that has failed.
	ReasonGuestCrashed   = "GuestCrashed"
	ReasonGuestPanicked  = "GuestPanicked"
	ReasonCannotStart    = "CannotStart"
	ReasonLauncherGone   = "LauncherGone"
	ReasonLauncherFailed = "LauncherFailed"
	// ReasonPodTerminated is the reason of one that failed because its pod was ended, not its guest.
	ReasonPodTerminated = "PodTerminated"

	// ReasonPausedIOError is the reason of condition Paused of a VMI; KubeVirt's.
	ReasonPausedIOError = "PausedIOError"

	// ReasonFailedCreate is the reason of condition Synchronized of a VMI, and of condition Failure of a VM, for which
	// something could not be created; KubeVirt's.
	ReasonFailedCreate = "FailedCreate"
	// ReasonUploadIncomplete is that of a VMI with a claim whose image upload is under way, or was not completed.
	ReasonUploadIncomplete = "UploadIncomplete"
	// ReasonClaimHeld is that of a VMI with a claim to which the guest of another may still write, whose pod's object
	// was removed.
	ReasonClaimHeld = "ClaimHeld"
	// ReasonStateClaimTaken is that of a VMI whose claim for persistent state cannot be made, since another claim has
	// its name.
	ReasonStateClaimTaken = "StateClaimNameTaken"
	// ReasonNotOwned is the reason of condition Failure of a VM whose name a VMI has that is not its own.
	ReasonNotOwned = "VMINotOwned"
)

// Parts of messages that virtctl looks for, where the cause has no reason of its own.
const (
	// MessageCreatePod begins the message of ReasonFailedCreate when it is the launcher's pod; the API server's words
	// follow.
	MessageCreatePod = "create pod: "
	// MessageNeedsMultus is in the error of a network that another network plugin would have to connect.
	MessageNeedsMultus = "needs Multus"
)
