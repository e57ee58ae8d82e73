// Package security tries, against a real API server, what a tenant or a node that was broken into would try, as the
// user that it would have: each test is one exploit that once worked. The policies and roles are those of
// manifests/base, so what holds here holds on every cluster that virtkit is installed on.
//
// Exploits that need a node, a pod or a guest are tests/e2e/security_*_test.go; those of one package's code are its own
// tests. docs/security.md lists what each of them holds.
package security
