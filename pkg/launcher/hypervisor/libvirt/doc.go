// Package libvirt drives one domain through libvirt. It is the only package with cgo, and is empty
// unless built with it and with the tag libvirt_dlopen, which loads libvirt.so when the first
// connection is made: neither headers nor library are needed to build.
//
//	CGO_ENABLED=1 go build -tags launcher,libvirt_dlopen,grpcnotrace ./cmd/virt-server
//
// (grpcnotrace leaves gRPC's debug pages out, and with them html/template, which by its use of
// reflection keeps the linker from dropping a third of the program.)
package libvirt
