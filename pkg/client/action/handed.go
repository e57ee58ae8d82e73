package action

// Handed is set in the environment of a program that the dashboard hands its terminal to. One that takes the user's
// keys to a guest then ends with the exit code EndedByItself when the guest ended it, and not the user, who may still
// be typing.
const (
	Handed        = "VIRTKIT_HANDED"
	EndedByItself = 79
)
