package passthrough

import v1 "kubevirt.io/api/core/v1"

// EncryptionOverhead is the memory that the pod of a guest with encrypted memory needs beyond others': its firmware and
// what it has of its devices are locked, too. Bytes; KubeVirt's and libvirt's.
const EncryptionOverhead = 256 << 20

// SEV reports a guest whose memory the processor of its node encrypts (AMD SEV, SEV-ES).
func SEV(domain *v1.DomainSpec) bool {
	return domain.LaunchSecurity != nil && domain.LaunchSecurity.SEV != nil
}

// SEVES reports a guest whose registers are encrypted besides (AMD SEV-ES).
func SEVES(domain *v1.DomainSpec) bool {
	if !SEV(domain) {
		return false
	}
	policy := domain.LaunchSecurity.SEV.Policy
	return policy != nil && policy.EncryptedState != nil && *policy.EncryptedState
}
