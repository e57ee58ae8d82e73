// Package report holds what the reports share that virtctl prints with -o where there is no object of the
// cluster to print. Each report is a Go type of the action that makes it; docs/output.md is generated from them.
package report

// APIVersion is that of every report. Its fields are a contract: they may be added, never renamed or removed, within
// one version.
const APIVersion = "cli.virtkit.io/v1"
