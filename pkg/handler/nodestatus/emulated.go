package nodestatus

import "strings"

// emulatedFeatures are the features of the x86 CPU that QEMU 10 emulates, in libvirt's words: what its
// query-cpu-model-expansion of the model max returns without KVM. It is the same on every node.
var emulatedFeatures = strings.Fields(`
	3dnow 3dnowext 3dnowprefetch abm acpi adx aes apic arat avx avx2 bmi1 bmi2 clflush clflushopt clwb cmov cmp_legacy cr8legacy
	cx16 cx8 de erms f16c fma fpu fsgsbase fsrc fsrm fsrs fxsr fzrm hypervisor la57 lahf_lm lm mca mce mmx mmxext monitor movbe
	mpx msr mtrr npt nx pae pat pclmuldq pdpe1gb pge pks pku pni popcnt pse pse36 rdpid rdrand rdseed rdtscp sep sha-ni smap
	smep ss sse sse2 sse4.1 sse4.2 sse4a ssse3 svm svme-addr-chk syscall tsc umip vaes vgif wbnoinvd x2apic xgetbv1 xsave
	xsaveerptr xsaveopt
`)

// emulatedVendor is QEMU's name for the vendor of such a CPU.
const emulatedVendor = "AMD"
