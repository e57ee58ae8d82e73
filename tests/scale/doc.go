// Package scale has what takes long and many: `make scale` runs it, CI does not. Each test says what it bounds.
package scale
