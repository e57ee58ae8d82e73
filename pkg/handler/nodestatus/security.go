package nodestatus

import (
	"os"
	"path/filepath"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// Confidential returns the labels kubevirt.io/sev, sev-es, sev-snp and tdx of a node whose kernel encrypts guests'
// memory, as the modules of KVM in modules (/sys/module) say.
func Confidential(modules string) Labels {
	on := func(module, parameter string) bool {
		data, err := os.ReadFile(filepath.Join(modules, module, "parameters", parameter))
		text := strings.TrimSpace(string(data))
		return err == nil && (text == "Y" || text == "1")
	}
	return func() (Wanted, error) {
		sev := on("kvm_amd", "sev")
		return flags(map[string]bool{
			v1.SEVLabel:    sev,
			v1.SEVESLabel:  sev && on("kvm_amd", "sev_es"),
			v1.SEVSNPLabel: sev && on("kvm_amd", "sev_snp"),
			v1.TDXLabel:    on("kvm_intel", "tdx"),
		}), nil
	}
}

// Realtime returns the label kubevirt.io/realtime of a node whose kernel lets tasks with real-time priority run without
// a limit, as its proc says.
func Realtime(proc string) Labels {
	return func() (Wanted, error) {
		data, err := os.ReadFile(filepath.Join(proc, "sys/kernel/sched_rt_runtime_us"))
		return flags(map[string]bool{v1.RealtimeLabel: err == nil && strings.TrimSpace(string(data)) == "-1"}), nil
	}
}
