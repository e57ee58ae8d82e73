// Package waits says how long to wait: for what failed, before it is tried again, and for what is slow, before it is
// given up. It does not wait itself.
package waits
