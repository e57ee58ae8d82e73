package launcherpb

// The commands that GuestState.agent_lacks may have, those that are needed of a guest agent, as KubeVirt has them: for
// what is known of every guest, and for each way in which accessCredentials reach a guest by its agent.
var (
	BasicCommands = []string{
		"guest-get-fsinfo", "guest-get-host-name", "guest-get-osinfo", "guest-get-time", "guest-get-timezone",
		"guest-get-users",
		"guest-info", "guest-network-get-interfaces", "guest-ping", "guest-shutdown",
	}
	KeyCommands      = []string{"guest-ssh-add-authorized-keys"}
	PasswordCommands = []string{"guest-set-user-password"}
)
