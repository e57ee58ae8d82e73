// Package libvirt drives one domain through libvirt. It is the only package with cgo, and is empty
// unless built with it and with the tag libvirt_dlopen, which loads libvirt.so when the first
// connection is made: neither headers nor library are needed to build.
//
//	CGO_ENABLED=1 go build -tags launcher,libvirt_dlopen ./cmd/virt-server
package libvirt
