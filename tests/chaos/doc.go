// Package chaos kills the processes of a cluster while guests write to their disks, and checks that nothing is lost.
// `make chaos` runs it (build tag chaos); CI does not.
//
// The cluster is one of its own. Each of its VMs writes numbered records with checksums to a claim (journal.sh), and
// says on its serial console which of them are on the disk. One kill follows the other. After each, the run waits until
// all is well again and compares what the guests have acknowledged with what their disks hold, which it reads on the
// machine and not through the guests.
//
//	plan.go     which process is killed in which phase of a guest's life, and when: a pure function of a seed
//	journal.go  the records, and what may be wrong with them
//	report.go   what came of the kills: a table, and JSON
//	*_test.go   those with the build tag: the cluster, the phases, the kills, and when all is well
//
// CHAOS_SEED is a number or "random", CHAOS_KILLS how many kills there are, CHAOS_TIME after how long no new one
// begins, and CHAOS_OUT a file for the results as JSON.
package chaos
